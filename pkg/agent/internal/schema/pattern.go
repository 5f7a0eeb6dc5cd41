package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	ecma "github.com/holdfast-run/holdfast/pkg/agent/internal/pattern"
)

// Limits of patterns.
const (
	maxPattern      = 2000    // bytes of a pattern
	maxProgram      = 5000    // instructions of a pattern
	maxTotalProgram = 100_000 // instructions of all patterns of a schema
	// matchSteps is how many steps (bytes of text × instructions) count as one visit.
	matchSteps = 256
	// patternVisits is the cost of 256 steps of a pattern of ECMA-262, in visits.
	patternVisits = 8
	// classRunes is how many runes of a character class count as one instruction.
	classRunes = 64
)

// pattern is a compiled pattern of ECMA-262, or of RE2 if only RE2 reads it.
type pattern struct {
	ecma *ecma.Pattern
	re2  *regexp.Regexp
	// size is the instructions of re2, the cost of one character of text.
	size int
}

// String returns the pattern as it was written.
func (p *pattern) String() string {
	if p.ecma != nil {
		return p.ecma.String()
	}
	return p.re2.String()
}

func (c *compiler) pattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(text), maxPattern)
	}
	if c.programSize > maxTotalProgram {
		return nil, fmt.Errorf("the patterns of the schema take more than %d instructions together", maxTotalProgram)
	}
	p, err := compilePattern(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is not a regular expression of ECMA-262: %w", clip(text, maxShown), err)
	}
	c.programSize += p.size
	if p.size > maxProgram {
		return nil, fmt.Errorf(
			"the pattern %q takes %d instructions; at most %d are allowed; repeat less",
			clip(text, maxShown),
			p.size,
			maxProgram,
		)
	}
	return p, nil
}

// compilePattern reads a pattern in the Unicode mode of ECMA-262, then as RE2, which has flags such as (?i), and then with
// the leniency of the standard's Annex B. The error is that of the standard.
func compilePattern(text string) (*pattern, error) {
	if strict, err := ecma.CompileStrict(text); err == nil {
		return &pattern{ecma: strict, size: strict.Size()}, nil
	}
	if size, err := programSize(text); err == nil {
		compiled, err := regexp.Compile(text)
		if err == nil {
			return &pattern{re2: compiled, size: size}, nil
		}
	}
	lenient, err := ecma.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{ecma: lenient, size: lenient.Size()}, nil
}

// programSize returns the instructions of a pattern of RE2.
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
	if p.ecma == nil {
		if !k.spend(1 + len(text)*p.size/matchSteps) {
			return true
		}
		return p.re2.MatchString(text)
	}
	if !k.spend(1) {
		return true
	}
	found, ok := p.ecma.Match(text, func() bool { return k.spend(patternVisits) })
	if !ok && k.exceeded == "" {
		k.exceeded = "is too large to be checked with the pattern " + clip(p.String(), maxShown)
	}
	return found || !ok
}
