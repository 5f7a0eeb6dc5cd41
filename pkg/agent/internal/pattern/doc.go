// Package pattern matches regular expressions of ECMA-262, which JSON Schema prescribes: with look-ahead and look-behind,
// back-references, named groups and Unicode properties.
//
// Patterns and texts may be hostile. A match backtracks, but remembers where it has failed: it visits each place of the
// pattern at each place of the text once, so its work is at most their product. Look-around and back-references can
// repeat work, and every step counts against the budget of the caller. Nothing depends on time.
package pattern
