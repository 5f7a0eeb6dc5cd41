package pattern

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The parts of an expression. A nil part matches the empty text.
type (
	part any

	sequence    []part
	alternative []part
	repeat      struct {
		of       part
		min, max int // max is unlimited below 0
		lazy     bool
	}
	group struct {
		of    part
		index int // from 1
	}
	look struct {
		of             part
		behind, negate bool
	}
	boundary  struct{ negate bool }
	begin     struct{}
	end       struct{}
	reference struct {
		index int
		name  string
	}
)

// maxNesting bounds the depth of groups.
const maxNesting = 100

// parser reads an expression. strict is the Unicode mode of ECMA-262. Otherwise it is as lenient as its Annex B.
type parser struct {
	text       string
	strict     bool
	depth      int
	groups     int
	names      map[string]int
	references []*reference
}

func parse(text string, strict bool) (of part, groups int, err error) {
	p := &parser{text: text, strict: strict, names: map[string]int{}}
	of, err = p.alternatives()
	if err == nil && p.text != "" {
		err = errors.New("it has a ) without a (")
	}
	for _, r := range p.references {
		if r.name != "" {
			r.index = p.names[r.name]
		}
		if err == nil && (r.index == 0 || r.index > p.groups) {
			err = errors.New("it refers to a group that it does not have")
		}
	}
	if len(p.references) == 0 {
		return of, 0, err
	}
	return of, p.groups, err
}

func (p *parser) has(prefix string) bool { return strings.HasPrefix(p.text, prefix) }

// skip consumes a prefix if it is there.
func (p *parser) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(p.text, prefix)
	p.text = rest
	return ok
}

func (p *parser) next() rune {
	r, size := utf8.DecodeRuneInString(p.text)
	p.text = p.text[size:]
	return r
}

func (p *parser) alternatives() (part, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("its groups are nested deeper than %d levels", maxNesting)
	}
	defer func() { p.depth-- }()
	var all alternative
	for {
		one, err := p.sequence()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
		if !p.skip("|") {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func (p *parser) sequence() (sequence, error) {
	var parts sequence
	for p.text != "" && !p.has("|") && !p.has(")") {
		one, err := p.term()
		if err != nil {
			return nil, err
		}
		parts = append(parts, one)
	}
	return parts, nil
}

func (p *parser) term() (part, error) {
	atom, err := p.atom()
	if err != nil {
		return nil, err
	}
	least, most, ok, err := p.quantifier()
	if err != nil || !ok {
		return atom, err
	}
	switch of := atom.(type) {
	case begin, end, boundary:
		return nil, errors.New("it repeats an assertion")
	case look:
		if p.strict || of.behind {
			return nil, errors.New("it repeats an assertion")
		}
	}
	return repeat{of: atom, min: least, max: most, lazy: p.skip("?")}, nil
}

// quantifier reads what follows an atom. ok is false for none.
func (p *parser) quantifier() (least, most int, ok bool, err error) {
	switch {
	case p.skip("*"):
		return 0, -1, true, nil
	case p.skip("+"):
		return 1, -1, true, nil
	case p.skip("?"):
		return 0, 1, true, nil
	case !p.has("{"):
		return 0, 0, false, nil
	}
	inside, rest, closed := strings.Cut(p.text[1:], "}")
	first, second, ranged := strings.Cut(inside, ",")
	least, isLeast := count(first)
	most, isMost := count(second)
	switch {
	case !ranged:
		most, isMost = least, isLeast
	case second == "":
		most, isMost = -1, true
	}
	if !closed || !isLeast || !isMost {
		if p.strict {
			return 0, 0, false, errors.New("it has a { that begins no quantifier")
		}
		return 0, 0, false, nil
	}
	if most >= 0 && most < least {
		return 0, 0, false, errors.New("the numbers of a quantifier are out of order")
	}
	p.text = rest
	return least, most, true, nil
}

// count reads a decimal number; larger ones than a program may have are equal.
func count(digits string) (n int, ok bool) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > maxProgram {
		return maxProgram + 1, true
	}
	return n, true
}

func (p *parser) atom() (part, error) {
	switch {
	case p.skip("^"):
		return begin{}, nil
	case p.skip("$"):
		return end{}, nil
	case p.skip("."):
		return class{negate: true, ranges: []span{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}}, nil
	case p.skip("("):
		return p.group()
	case p.skip("["):
		return p.class()
	case p.skip(`\`):
		return p.escape()
	case strings.ContainsAny(p.text[:1], "*+?"):
		return nil, errors.New("it has a quantifier behind nothing")
	case p.strict && strings.ContainsAny(p.text[:1], "{}]"):
		return nil, fmt.Errorf("it has a %s that must be escaped", p.text[:1])
	}
	return single(p.next()), nil
}

func (p *parser) group() (part, error) {
	var made func(part) part
	switch {
	case p.skip("?:"):
		made = func(of part) part { return of }
	case p.skip("?="):
		made = func(of part) part { return look{of: of} }
	case p.skip("?!"):
		made = func(of part) part { return look{of: of, negate: true} }
	case p.skip("?<="):
		made = func(of part) part { return look{of: of, behind: true} }
	case p.skip("?<!"):
		made = func(of part) part { return look{of: of, behind: true, negate: true} }
	default:
		p.groups++
		index := p.groups
		if p.skip("?<") {
			name, rest, closed := strings.Cut(p.text, ">")
			if _, taken := p.names[name]; !closed || taken || !isName(name) {
				return nil, errors.New("it has a group with an invalid name")
			}
			p.text, p.names[name] = rest, index
		} else if p.has("?") {
			return nil, errors.New("it has a group of an unknown kind")
		}
		made = func(of part) part { return group{of: of, index: index} }
	}
	of, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.skip(")") {
		return nil, errors.New("it has a ( without a )")
	}
	return made(of), nil
}

func isName(name string) bool {
	for i, r := range name {
		if r != '_' && r != '$' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return name != ""
}

// escape reads what follows a backslash outside of a class.
func (p *parser) escape() (part, error) {
	switch {
	case p.skip("b"):
		return boundary{}, nil
	case p.skip("B"):
		return boundary{negate: true}, nil
	case p.has("k<"):
		name, rest, closed := strings.Cut(p.text[2:], ">")
		if !closed || !isName(name) {
			return nil, errors.New("it refers to a group with an invalid name")
		}
		p.text = rest
		r := &reference{name: name}
		p.references = append(p.references, r)
		return r, nil
	case p.text != "" && p.text[0] >= '1' && p.text[0] <= '9':
		digits := p.text[:len(p.text)-len(strings.TrimLeft(p.text, "0123456789"))]
		p.text = p.text[len(digits):]
		index, _ := count(digits) // it has digits alone
		r := &reference{index: index}
		p.references = append(p.references, r)
		return r, nil
	}
	return p.characters()
}

// characters reads the escape of a character or of a class of characters.
func (p *parser) characters() (class, error) {
	if p.text == "" {
		return class{}, errors.New("it ends with a backslash")
	}
	switch r := p.next(); r {
	case 'd', 'D':
		return class{negate: r == 'D', ranges: digits}, nil
	case 'w', 'W':
		return class{negate: r == 'W', ranges: words}, nil
	case 's', 'S':
		return class{negate: r == 'S', ranges: spaces}, nil
	case 'p', 'P':
		return p.property(r == 'P')
	case 't':
		return single('\t'), nil
	case 'n':
		return single('\n'), nil
	case 'v':
		return single('\v'), nil
	case 'f':
		return single('\f'), nil
	case 'r':
		return single('\r'), nil
	case '0':
		return single(0), nil
	case 'c':
		if p.text != "" && (p.text[0]|0x20) >= 'a' && (p.text[0]|0x20) <= 'z' {
			return single(p.next() % 32), nil
		}
	case 'x':
		if code, ok := p.hex(2); ok {
			return single(code), nil
		}
	case 'u':
		if code, ok := p.unicode(); ok {
			return single(code), nil
		}
	default:
		if strings.ContainsRune(`^$\.*+?()[]{}|/-`, r) || !p.strict {
			return single(r), nil
		}
	}
	return class{}, errors.New("it has an unknown escape")
}

// hex reads a number of hexadecimal digits.
func (p *parser) hex(digits int) (rune, bool) {
	if len(p.text) < digits {
		return 0, false
	}
	code, err := strconv.ParseUint(p.text[:digits], 16, 32)
	if err != nil {
		return 0, false
	}
	p.text = p.text[digits:]
	return rune(code), true
}

// unicode reads what follows \u: four digits, a pair of surrogates, or digits in braces.
func (p *parser) unicode() (rune, bool) {
	if p.skip("{") {
		digits, rest, closed := strings.Cut(p.text, "}")
		code, err := strconv.ParseUint(digits, 16, 32)
		p.text = rest
		return rune(code), closed && err == nil && code <= unicode.MaxRune
	}
	high, ok := p.hex(4)
	if ok && high >= 0xD800 && high < 0xDC00 && p.has(`\u`) {
		rest := p.text
		p.text = p.text[2:]
		if low, ok := p.hex(4); ok && low >= 0xDC00 && low < 0xE000 {
			return (high-0xD800)<<10 + (low - 0xDC00) + 0x10000, true
		}
		p.text = rest
	}
	return high, ok
}
