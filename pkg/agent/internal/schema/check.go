package schema

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// Limits of a check.
const (
	// maxVisits bounds the work: the pairs of schema and value that are looked at, and
	// what takes as long as one.
	maxVisits = 1 << 20
	// maxFrames bounds the depth of value and schema together.
	maxFrames = 20_000
	// maxValueDepth bounds the depth of a value.
	maxValueDepth = 512
	// maxProblems bounds the problems that are told of one value.
	maxProblems = 8
	// visitBytes of text count as much as one visit.
	visitBytes = 64
	// keyBytes and digitsAtOnce are the same for texts to compare values by and for the
	// digits of a division.
	keyBytes, digitsAtOnce = 8, 16
)

// Problem is something that does not fit.
type Problem struct {
	// Path is a JSON pointer (RFC 6901) in the value, "" for the whole of it. One that
	// is too long to be read is cut.
	Path string
	// Text goes on with what must be changed: "must be a string, not a number".
	Text string
}

// Check holds a JSON value against the schema, and gives the first problems, none
// where it fits. The same value gives the same problems.
func (s *Schema) Check(raw []byte) []Problem {
	value, err := decode(raw)
	if err != nil {
		return []Problem{{Text: "is not JSON"}}
	}
	k := &checker{tracks: s.tracks}
	found := &problems{limit: maxProblems}
	k.check(s.root, value, nil, found, nil)
	if k.tooMuch != "" {
		return []Problem{{Text: k.tooMuch}}
	}
	return found.list
}

// checker is one check. tooMuch ends it.
type checker struct {
	tracks  bool
	visits  int
	frames  int
	tooMuch string
	sorted  map[uintptr][]string // names of the value's objects that were asked for
}

// problems are told up to a limit. What is found behind it counts only as found.
type problems struct {
	list  []Problem
	limit int
	found bool
	// brief problems are those of an alternative: alternatives in it are not explained,
	// which would take as much work as there are combinations.
	brief bool
}

// alternative collects why one alternative does not fit, behind others.
func (p *problems) alternative(told int) *problems {
	if p.brief || p.full() || told > maxTried {
		return &problems{brief: true}
	}
	return &problems{limit: 1, brief: true}
}

func (p *problems) full() bool { return len(p.list) >= p.limit }

// path is a place in the value: a list that ends at the root, which is nil.
type path struct {
	above *path
	name  string // of a member
	index int    // of an item, -1 for a member
	depth int
}

func (p *path) member(name string) *path { return &path{p, name, -1, p.deep() + 1} }

func (p *path) item(i int) *path { return &path{p, "", i, p.deep() + 1} }

func (p *path) deep() int {
	if p == nil {
		return 0
	}
	return p.depth
}

func (p *path) String() string {
	var tokens []string
	for ; p != nil; p = p.above {
		if p.index >= 0 {
			tokens = append(tokens, strconv.Itoa(p.index))
		} else {
			tokens = append(tokens, p.name)
		}
	}
	return pointer(tokens)
}

// spend counts work, and reports whether there may be more.
func (k *checker) spend(visits int) bool {
	if k.visits += visits; k.visits > maxVisits && k.tooMuch == "" {
		k.tooMuch = "is too large to be checked; make it smaller"
	}
	return k.tooMuch == ""
}

// names gives the members of an object of the value, sorted, so that what is told first is
// the same in every check. It sorts once.
func (k *checker) names(object map[string]any) []string {
	id := reflect.ValueOf(object).Pointer()
	names, known := k.sorted[id]
	if !known {
		if k.sorted == nil {
			k.sorted = map[uintptr][]string{}
		}
		names = slices.Sorted(maps.Keys(object))
		k.sorted[id] = names
	}
	return names
}

// check holds a value against a node. Problems go to out, what the node has
// evaluated to seen, which is nil where nobody asks.
func (k *checker) check(n *node, value any, at *path, out *problems, seen *evaluated) bool {
	k.frames++
	defer func() { k.frames-- }()
	if (k.frames > maxFrames || at.deep() > maxValueDepth) && k.tooMuch == "" {
		k.tooMuch = "is nested too deeply; make it flatter"
	}
	cost := 1
	if number, ok := value.(json.Number); ok {
		cost += len(number) / visitBytes
	}
	if !k.spend(cost) {
		return true
	}
	if n.never {
		return out.add(at, "must not be there")
	}
	if n.types != nil && !hasType(n.types, typeOf(value)) {
		return out.add(at, "must be %s, not %s", typesText(n.types), typeNames[typeOf(value)])
	}
	own := seen
	if own == nil && k.tracks && (n.unevaluated != nil || n.unevaluatedItems != nil) {
		own = &evaluated{}
	}
	ok := k.checkAllowed(n, value, at, out)
	ok = k.checkInPlace(n, value, at, out, own) && ok
	switch v := value.(type) {
	case json.Number:
		ok = k.checkNumber(n, v, at, out) && ok
	case string:
		ok = k.checkText(n, v, at, out) && ok
	case []any:
		ok = k.checkList(n, v, at, out, own) && ok
	case map[string]any:
		ok = k.checkObject(n, v, at, out, own) && ok
	}
	return ok
}

func (k *checker) checkAllowed(n *node, value any, at *path, out *problems) bool {
	if n.allowed == nil {
		return true
	}
	text, work := keyWithin(value, n.longest)
	if !k.spend(work/keyBytes) || n.allowed[text] {
		return true
	}
	if n.allowedText == "" {
		return out.add(at, "must not be there")
	}
	if len(n.allowed) == 1 {
		return out.add(at, "must be %s", n.allowedText)
	}
	return out.add(at, "must be one of %s", n.allowedText)
}

// checkInPlace checks the schemas that hold for the same value.
func (k *checker) checkInPlace(n *node, value any, at *path, out *problems, seen *evaluated) bool {
	ok := true
	if n.ref != nil {
		ok = k.check(n.ref, value, at, out, seen)
	}
	for _, one := range n.allOf {
		ok = k.check(one, value, at, out, seen) && ok
	}
	if n.anyOf != nil {
		ok = k.checkAny(n.anyOf, value, at, out, seen) && ok
	}
	if n.oneOf != nil {
		ok = k.checkOne(n.oneOf, value, at, out, seen) && ok
	}
	if n.not != nil && k.try(n.not, value, at, nil) {
		ok = out.add(at, "is of a kind that is ruled out")
	}
	if n.when != nil {
		next := n.otherwise
		if k.try(n.when, value, at, seen) {
			next = n.then
		}
		if next != nil {
			ok = k.check(next, value, at, out, seen) && ok
		}
	}
	return ok
}

// try reports whether a value fits, and tells nobody why not.
func (k *checker) try(n *node, value any, at *path, seen *evaluated) bool {
	return k.attempt(n, value, at, &problems{}, seen)
}

// attempt is check; what was evaluated counts only where the value fits.
func (k *checker) attempt(n *node, value any, at *path, out *problems, seen *evaluated) bool {
	if seen == nil {
		return k.check(n, value, at, out, nil)
	}
	own := &evaluated{}
	if !k.check(n, value, at, out, own) {
		return false
	}
	if k.spend(len(own.members) + len(own.items)) {
		seen.merge(own)
	}
	return true
}

func (k *checker) checkAny(nodes []*node, value any, at *path, out *problems, seen *evaluated) bool {
	var why []Problem
	fits := false
	for _, n := range nodes {
		own := out.alternative(len(why))
		if k.attempt(n, value, at, own, seen) {
			fits = true
			if seen == nil {
				break // others could only have evaluated more
			}
			continue
		}
		why = append(why, own.list...)
	}
	return fits || out.add(at, "fits none of %d alternatives%s", len(nodes), alternatives(why))
}

func (k *checker) checkOne(nodes []*node, value any, at *path, out *problems, seen *evaluated) bool {
	var why []Problem
	var fits []int
	for i, n := range nodes {
		own := out.alternative(len(why))
		if k.attempt(n, value, at, own, seen) {
			fits = append(fits, i+1)
			continue
		}
		why = append(why, own.list...)
	}
	switch {
	case len(fits) == 1:
		return true
	case len(fits) > 1:
		return out.add(at, "fits alternatives %d and %d of %d, but must fit exactly one", fits[0], fits[1], len(nodes))
	}
	return out.add(at, "fits none of %d alternatives%s", len(nodes), alternatives(why))
}
