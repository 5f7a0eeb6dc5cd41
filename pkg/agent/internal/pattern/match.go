package pattern

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// stepsAtOnce is how many steps are paid for together.
const stepsAtOnce = 256

// bitsAtOnce is how many remembered bits cost as much as stepsAtOnce steps.
const bitsAtOnce = 1 << 16

// maxMemory bounds what a match remembers, in bits.
const maxMemory = 1 << 26

// Match reports whether a text has a match. spend pays for stepsAtOnce steps, and reports whether the budget allows
// them; ok is false if it does not, or if the match would need too much memory.
func (p *Pattern) Match(text string, spend func() bool) (found, ok bool) {
	m := &matcher{Pattern: p, text: text, spend: spend}
	if p.registers == 0 {
		bits := p.splits * (len(text) + 1)
		if bits > maxMemory {
			return false, false
		}
		for range bits / bitsAtOnce {
			if !spend() {
				return false, false
			}
		}
		m.failed = make([]uint64, bits/64+1)
	}
	for at := 0; at <= len(text); at++ {
		if at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
			continue
		}
		if m.run(0, at, make([]int, p.registers)) {
			return true, true
		}
		if m.exceeded {
			return false, false
		}
		if p.program[0].op == beginning {
			break
		}
	}
	return false, true
}

// matcher is the state of a match.
type matcher struct {
	*Pattern
	text     string
	spend    func() bool
	steps    int
	exceeded bool
	// failed has a bit for each visited split and position. It is nil with back-references, for they make the outcome
	// depend on more.
	failed []uint64
	// visited are the bits set since the outermost look-around began.
	visited []int
	looks   int   // the depth of look-around
	ended   []int // the registers at the end of the last match
}

// thread is a place in the program and in the text. registers are never changed.
type thread struct {
	pc, at    int
	registers []int
}

// run reports whether the program has a match from a place on.
func (m *matcher) run(pc, at int, registers []int) bool {
	stack := []thread{{pc, at, registers}}
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for alive := true; alive; {
			if m.steps++; m.steps%stepsAtOnce == 0 && !m.spend() {
				m.exceeded = true
			}
			if m.exceeded {
				return false
			}
			i := &m.program[t.pc]
			switch i.op {
			case matched:
				m.ended = t.registers
				return true
			case split:
				if alive = m.visit(i.number, t.at); alive {
					stack = append(stack, thread{i.y, t.at, t.registers})
					t.pc = i.x
				}
			default:
				alive = m.step(i, &t)
			}
		}
	}
	return false
}

// visit reports whether a split was not visited at the position before.
func (m *matcher) visit(number, at int) bool {
	if m.failed == nil {
		return true
	}
	bit := number*(len(m.text)+1) + at
	if m.failed[bit/64]&(1<<(bit%64)) != 0 {
		return false
	}
	m.failed[bit/64] |= 1 << (bit % 64)
	if m.looks > 0 {
		m.visited = append(m.visited, bit)
	}
	return true
}

// step executes an instruction, and reports whether the thread goes on.
func (m *matcher) step(i *instruction, t *thread) bool {
	t.pc++
	switch i.op {
	case character:
		r, size := m.read(t.at, i.back)
		if size == 0 || i.isOnly && r != i.only || !i.isOnly && !i.class.contains(r) {
			return false
		}
		t.move(size, i.back)
	case jump:
		t.pc = i.x
	case beginning:
		return t.at == 0
	case ending:
		return t.at == len(m.text)
	case wordBoundary:
		return (m.isWord(t.at, true) != m.isWord(t.at, false)) != i.negate
	case lookAround:
		t.pc = i.y
		found := m.look(i, t)
		if found && !i.negate {
			t.registers = m.ended // a look-around keeps what its groups have matched
		}
		return found != i.negate
	case save:
		t.registers = slices.Clone(t.registers)
		t.registers[i.x] = t.at + 1 // 0 is unset
	case progress:
		return t.registers[i.x] != t.at+1
	case repetition:
		return m.repeats(i, t)
	}
	return true
}

func (t *thread) move(size int, back bool) {
	if back {
		size = -size
	}
	t.at += size
}

// read returns the next character, or the one before; size is 0 at the end.
func (m *matcher) read(at int, back bool) (r rune, size int) {
	if back {
		return utf8.DecodeLastRuneInString(m.text[:at])
	}
	return utf8.DecodeRuneInString(m.text[at:])
}

func (m *matcher) isWord(at int, back bool) bool {
	r, size := m.read(at, back)
	return size > 0 && class{ranges: words}.contains(r)
}

// look runs the program of a look-around. After a success, the places on its way have not failed.
func (m *matcher) look(i *instruction, t *thread) bool {
	m.looks++
	before := len(m.visited)
	found := m.run(i.x, t.at, t.registers)
	m.looks--
	if found {
		for _, bit := range m.visited[before:] {
			m.failed[bit/64] &^= 1 << (bit % 64)
		}
		m.visited = m.visited[:before]
	}
	if m.looks == 0 {
		m.visited = m.visited[:0]
	}
	return found
}

// repeats reports whether the text of a group follows. A group without a match is empty.
func (m *matcher) repeats(i *instruction, t *thread) bool {
	first, last := t.registers[2*i.x], t.registers[2*i.x+1]
	if first == 0 || last == 0 || last < first {
		return true
	}
	group := m.text[first-1 : last-1]
	m.steps += len(group) / stepsAtOnce
	if i.back {
		if !strings.HasSuffix(m.text[:t.at], group) {
			return false
		}
	} else if !strings.HasPrefix(m.text[t.at:], group) {
		return false
	}
	t.move(len(group), i.back)
	return true
}
