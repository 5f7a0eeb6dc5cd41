package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// Limits of patterns.
const (
	maxPattern  = 2000    // bytes of one
	maxProgram  = 5000    // size of one, see programSize
	maxPrograms = 100_000 // size of all of a schema
	// matchSteps of a program on a text count as much as one visit.
	matchSteps = 256
	// classRunes of a class of characters count as much as one instruction.
	classRunes = 64
)

// pattern is a compiled pattern and the size of its program: what one character of a
// text may cost.
type pattern struct {
	*regexp.Regexp
	size int
}

func (c *compiler) pattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, %d are allowed", len(text), maxPattern)
	}
	if c.programs > maxPrograms {
		return nil, fmt.Errorf("the patterns of the schema take more than %d instructions together", maxPrograms)
	}
	size, err := programSize(text)
	c.programs += size
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

// programSize is the number of instructions that a pattern is compiled to.
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

// matches holds a text against a pattern. Where the work is spent it says yes, and the
// check ends.
func (k *checker) matches(p *pattern, text string) bool {
	if !k.spend(1 + len(text)*p.size/matchSteps) {
		return true
	}
	return p.MatchString(text)
}
