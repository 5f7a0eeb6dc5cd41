package pattern

import "fmt"

// maxProgram bounds the instructions of a pattern.
const maxProgram = 20_000

// op is what an instruction does.
type op int

const (
	matched op = iota
	character
	split // x is tried before y
	jump  // to x
	beginning
	ending
	wordBoundary
	lookAround // x begins the sub-program, and y follows
	save       // the position in register x
	progress   // fails if the position is that in register x
	repetition // of the text of group x
)

type instruction struct {
	op           op
	x, y         int
	class        class
	only         rune // the only character of the class, if isOnly
	isOnly       bool
	negate, back bool
	number       int // of a split or a lookAround
}

// Pattern is a compiled pattern. Immutable.
type Pattern struct {
	text      string
	program   []instruction
	splits    int
	registers int // 0 without back-references
}

// Compile compiles a pattern of ECMA-262 in its Unicode mode, or else as its Annex B reads it.
func Compile(text string) (*Pattern, error) {
	p, err := CompileStrict(text)
	if err == nil {
		return p, nil
	}
	return compile(text, false)
}

// CompileStrict compiles a pattern of ECMA-262 in its Unicode mode.
func CompileStrict(text string) (*Pattern, error) { return compile(text, true) }

func compile(text string, strict bool) (*Pattern, error) {
	of, groups, err := parse(text, strict)
	if err != nil {
		return nil, err
	}
	c := &compiler{Pattern: &Pattern{text: text}}
	if groups > 0 {
		c.registers = 2 * (groups + 1)
	}
	c.part(of, false)
	c.emit(instruction{op: matched})
	if c.tooLarge {
		return nil, fmt.Errorf("it takes more than %d instructions; repeat less", maxProgram)
	}
	return c.Pattern, nil
}

// String returns the pattern as it was written.
func (p *Pattern) String() string { return p.text }

// Size returns the number of instructions.
func (p *Pattern) Size() int { return len(p.program) }

type compiler struct {
	*Pattern
	tooLarge bool
}

func (c *compiler) emit(i instruction) (at int) {
	if len(c.program) > maxProgram {
		c.tooLarge = true
		return 0
	}
	c.program = append(c.program, i)
	return len(c.program) - 1
}

// emitSplit emits a split whose targets are set later.
func (c *compiler) emitSplit() int {
	c.splits++
	return c.emit(instruction{op: split, number: c.splits - 1})
}

// part emits the instructions of a part. back reads the text backwards, as in a look-behind.
func (c *compiler) part(of part, back bool) {
	if c.tooLarge {
		return
	}
	switch of := of.(type) {
	case sequence:
		for i := range of {
			if back {
				i = len(of) - 1 - i
			}
			c.part(of[i], back)
		}
	case alternative:
		c.alternative(of, back)
	case repeat:
		c.repeat(of, back)
	case group:
		c.group(of, back)
	case class:
		only, isOnly := of.isSingle()
		c.emit(instruction{op: character, class: of, only: only, isOnly: isOnly, back: back})
	case begin:
		c.emit(instruction{op: beginning})
	case end:
		c.emit(instruction{op: ending})
	case boundary:
		c.emit(instruction{op: wordBoundary, negate: of.negate})
	case look:
		c.splits++
		at := c.emit(instruction{op: lookAround, negate: of.negate, number: c.splits - 1})
		c.part(of.of, of.behind)
		c.emit(instruction{op: matched})
		c.program[at].x = at + 1
		c.program[at].y = len(c.program)
	case *reference:
		c.emit(instruction{op: repetition, x: of.index, back: back})
	}
}

func (c *compiler) group(of group, back bool) {
	first, second := 2*of.index, 2*of.index+1
	if back {
		first, second = second, first
	}
	if c.registers > 0 {
		c.emit(instruction{op: save, x: first})
	}
	c.part(of.of, back)
	if c.registers > 0 {
		c.emit(instruction{op: save, x: second})
	}
}

func (c *compiler) alternative(of alternative, back bool) {
	var ends []int
	for i, one := range of {
		if i == len(of)-1 {
			c.part(one, back)
			break
		}
		at := c.emitSplit()
		c.part(one, back)
		ends = append(ends, c.emit(instruction{op: jump}))
		c.program[at].x, c.program[at].y = at+1, len(c.program)
	}
	for _, at := range ends {
		c.program[at].x = len(c.program)
	}
}

func (c *compiler) repeat(of repeat, back bool) {
	for range of.min {
		c.part(of.of, back)
		if c.tooLarge {
			return
		}
	}
	if of.max < 0 {
		at := c.emitSplit()
		register := c.registers
		if c.registers > 0 { // without memory, an empty repetition would be endless
			c.registers++
			c.emit(instruction{op: save, x: register})
		}
		c.part(of.of, back)
		if register > 0 {
			c.emit(instruction{op: progress, x: register})
		}
		c.emit(instruction{op: jump, x: at})
		c.setSplit(at, of.lazy)
		return
	}
	var splits []int
	for range of.max - of.min {
		splits = append(splits, c.emitSplit())
		c.part(of.of, back)
		if c.tooLarge {
			return
		}
	}
	for _, at := range splits {
		c.setSplit(at, of.lazy)
	}
}

// setSplit lets a split choose between what follows it and the end of the program so far.
func (c *compiler) setSplit(at int, lazy bool) {
	c.program[at].x, c.program[at].y = at+1, len(c.program)
	if lazy {
		c.program[at].x, c.program[at].y = c.program[at].y, c.program[at].x
	}
}
