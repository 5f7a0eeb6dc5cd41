package pattern

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// span is a range of characters, with both ends.
type span struct{ first, last rune }

// class is a set of characters.
type class struct {
	negate bool
	ranges []span
	tables []*unicode.RangeTable
	others []class
}

var (
	digits = []span{{'0', '9'}}
	words  = []span{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	// White space and line terminators of ECMA-262.
	spaces = []span{
		{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
		{0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF},
	}
)

func single(r rune) class { return class{ranges: []span{{r, r}}} }

func (c class) contains(r rune) bool {
	for _, s := range c.ranges {
		if r >= s.first && r <= s.last {
			return !c.negate
		}
	}
	for _, t := range c.tables {
		if unicode.Is(t, r) {
			return !c.negate
		}
	}
	for _, other := range c.others {
		if other.contains(r) {
			return !c.negate
		}
	}
	return c.negate
}

// isSingle returns the only character of a class.
func (c class) isSingle() (rune, bool) {
	if c.negate || len(c.ranges) != 1 || len(c.tables)+len(c.others) > 0 || c.ranges[0].first != c.ranges[0].last {
		return 0, false
	}
	return c.ranges[0].first, true
}

// class reads what follows a [.
func (p *parser) class() (part, error) {
	c := class{negate: p.skip("^")}
	for !p.skip("]") {
		first, err := p.member()
		if err != nil {
			return nil, err
		}
		from, isFrom := first.isSingle()
		if !p.has("-") || p.has("-]") {
			c.add(first)
			continue
		}
		p.skip("-")
		second, err := p.member()
		if err != nil {
			return nil, err
		}
		to, isTo := second.isSingle()
		switch {
		case isFrom && isTo && from > to:
			return nil, errors.New("it has a range out of order")
		case isFrom && isTo:
			c.ranges = append(c.ranges, span{from, to})
		case p.strict:
			return nil, errors.New("it has a range with a class as its end")
		default:
			c.add(first)
			c.add(single('-'))
			c.add(second)
		}
	}
	return c, nil
}

func (c *class) add(member class) {
	if !member.negate && len(member.others) == 0 {
		c.ranges, c.tables = append(c.ranges, member.ranges...), append(c.tables, member.tables...)
		return
	}
	c.others = append(c.others, member)
}

// member reads a member of a class.
func (p *parser) member() (class, error) {
	switch {
	case p.text == "":
		return class{}, errors.New("it has a [ without a ]")
	case p.skip(`\b`):
		return single('\b'), nil
	case p.skip(`\`):
		return p.characters()
	}
	return single(p.next()), nil
}

// longNames are other names of general categories.
var longNames = map[string]string{
	"Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo",
	"Mark": "M", "Nonspacing_Mark": "Mn", "Number": "N", "Decimal_Number": "Nd", "Letter_Number": "Nl", "Other_Number": "No",
	"Punctuation": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs", "Other": "C", "Control": "Cc",
}

// property reads what follows \p or \P.
func (p *parser) property(negate bool) (class, error) {
	name, rest, closed := strings.Cut(strings.TrimPrefix(p.text, "{"), "}")
	if !p.has("{") || !closed {
		if p.strict {
			return class{}, errors.New("it has a property without a name")
		}
		return single('p'), nil
	}
	p.text = rest
	kind, value, valued := strings.Cut(name, "=")
	switch {
	case !valued:
		value = name
	case kind != "Script" && kind != "sc" && kind != "Script_Extensions" && kind != "scx" && kind != "General_Category" && kind != "gc":
		return class{}, fmt.Errorf("it has the unknown property %.40q", name)
	}
	if short, ok := longNames[value]; ok {
		value = short
	}
	table := unicode.Categories[value]
	if valued && kind != "General_Category" && kind != "gc" {
		table = unicode.Scripts[value]
	}
	switch {
	case table != nil:
	case valued:
	case value == "Alphabetic":
		return class{negate: negate, tables: []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic}}, nil
	case value == "Lowercase":
		return class{negate: negate, tables: []*unicode.RangeTable{unicode.Ll, unicode.Other_Lowercase}}, nil
	case value == "Uppercase":
		return class{negate: negate, tables: []*unicode.RangeTable{unicode.Lu, unicode.Other_Uppercase}}, nil
	case value == "Any":
		return class{negate: negate, ranges: []span{{0, unicode.MaxRune}}}, nil
	case value == "ASCII":
		return class{negate: negate, ranges: []span{{0, 0x7F}}}, nil
	default:
		table = unicode.Properties[value]
	}
	if table == nil {
		return class{}, fmt.Errorf("it has the unknown property %.40q", name)
	}
	return class{negate: negate, tables: []*unicode.RangeTable{table}}, nil
}
