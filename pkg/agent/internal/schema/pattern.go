package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// Limits of patterns.
const (
	maxPattern      = 2000    // bytes of a pattern
	maxProgram      = 5000    // instructions of a pattern
	maxTotalProgram = 100_000 // instructions of all patterns of a schema
	// matchSteps is how many steps (bytes of text × instructions) count as one visit.
	matchSteps = 256
	// classRunes is how many runes of a character class count as one instruction.
	classRunes = 64
)

// pattern is a compiled pattern. size is its instructions, the cost of one character of text.
type pattern struct {
	*regexp.Regexp
	size int
}

func (c *compiler) pattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, %d are allowed", len(text), maxPattern)
	}
	if c.programSize > maxTotalProgram {
		return nil, fmt.Errorf("the patterns of the schema take more than %d instructions together", maxTotalProgram)
	}
	size, err := programSize(text)
	c.programSize += size
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is not RE2 (it has no look-around and no back-references)", text)
	}
	if size > maxProgram {
		return nil, fmt.Errorf("the pattern %q takes %d instructions, %d are allowed; repeat less", clip(text, maxShown), size, maxProgram)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q cannot be compiled", clip(text, maxShown))
	}
	return &pattern{compiled, size}, nil
}

// programSize returns the instructions of a pattern.
func programSize(text string) (int, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	size := len(program.Inst)
	for _, i := range program.Inst {
		size += len(i.Rune) / classRunes
	}
	return size, nil
}

// matchPattern reports whether a text matches. It returns true if the work exceeds the bound, which
// ends the check.
func (k *checker) matchPattern(p *pattern, text string) bool {
	if !k.spend(1 + len(text)*p.size/matchSteps) {
		return true
	}
	return p.MatchString(text)
}
