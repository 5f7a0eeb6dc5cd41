package schema

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Limits of a check.
const (
	// maxVisits bounds the work, in visits. One visit checks one value against one schema.
	maxVisits = 1 << 20
	// maxDepth bounds the depth of value and schema together.
	maxDepth = 20_000
	// maxValueDepth bounds the depth of a value.
	maxValueDepth = 512
	// maxProblems bounds the reported problems of one value.
	maxProblems = 8
	// visitBytes is how many bytes of text count as one visit.
	visitBytes = 64
	// compareBytes and digitsAtOnce are the same for compared bytes and for divided digits.
	compareBytes, digitsAtOnce = 8, 16
)

// Problem is a part of a value that does not fit.
type Problem struct {
	// Path is a JSON pointer (RFC 6901) into the value, "" for the whole value. A long one is cut.
	Path string
	// Text continues a sentence that begins with the path: "must be a string, not a number".
	Text string
}

// Check returns the first problems of a JSON value, none if it fits. The same value has the same
// problems each time.
func (s *Schema) Check(raw []byte) []Problem {
	found := &problems{limit: maxProblems}
	s.collect(raw, found)
	return found.list
}

// CheckChange returns the first problems that a change of a JSON value adds. Problems are counted by
// their rule and place, and all items of a list are one place: items move when others are deleted.
func (s *Schema) CheckChange(before, after []byte) []Problem {
	if len(s.Check(after)) == 0 {
		return nil
	}
	known := &problems{counts: map[kind]int{}, limit: math.MaxInt, withoutReasons: true}
	s.collect(before, known)
	added := &problems{limit: maxProblems, known: known.counts}
	s.collect(after, added)
	return added.list
}

func (s *Schema) collect(raw []byte, to *problems) {
	value, err := decode(raw)
	if err != nil {
		to.add(nil, "is not JSON")
		return
	}
	k := &checker{tracks: s.tracks}
	k.check(s.root, value, nil, to, nil)
	if k.exceeded != "" {
		to.list = nil
		to.add(nil, "%s", k.exceeded)
	}
}

// checker is the state of one check. The check ends when exceeded is set.
type checker struct {
	tracks   bool
	visits   int
	depth    int
	exceeded string
	sorted   map[uintptr][]string // member names by object
}

// problems collects problems up to a limit. Beyond it only found is set.
type problems struct {
	list  []Problem
	limit int
	found bool
	// counts, if not nil, counts the problems, and list stays empty.
	counts map[kind]int
	// known are problems to leave out, each as often as its count.
	known map[kind]int
	// withoutReasons is set within an alternative. Explaining nested alternatives would multiply
	// the work.
	withoutReasons bool
}

// kind is the common trait of problems with one rule at one location.
type kind struct {
	location uint64
	rule     string // the format of the text
}

// alternative returns a collector for the reasons of one alternative, given how many were collected
// for earlier ones.
func (p *problems) alternative(earlier int) *problems {
	if p.withoutReasons || p.full() || earlier > maxReasons {
		return &problems{withoutReasons: true}
	}
	return &problems{limit: 1, withoutReasons: true}
}

func (p *problems) full() bool { return len(p.list) >= p.limit }

// path is a place in the value. nil is the root.
type path struct {
	parent *path
	name   string // of a member
	index  int    // of an item, -1 for a member
	depth  int
	hash   uint64 // see place; 0 until it is known
}

func (p *path) member(name string) *path { return &path{p, name, -1, p.level() + 1, 0} }

func (p *path) item(i int) *path { return &path{p, "", i, p.level() + 1, 0} }

var locationSeed = maphash.MakeSeed()

// location returns a hash of the path. All items of a list have the same.
func (p *path) location() uint64 {
	if p == nil {
		return 0
	}
	if p.hash == 0 {
		p.hash = maphash.Comparable(locationSeed, struct {
			parent uint64
			name   string
			isItem bool
		}{p.parent.location(), p.name, p.index >= 0})
	}
	return p.hash
}

func (p *path) level() int {
	if p == nil {
		return 0
	}
	return p.depth
}

func (p *path) String() string {
	var tokens []string
	for ; p != nil; p = p.parent {
		if p.index >= 0 {
			tokens = append(tokens, strconv.Itoa(p.index))
		} else {
			tokens = append(tokens, p.name)
		}
	}
	return pointer(tokens)
}

// spend adds to the work, and reports whether it is within the bound.
func (k *checker) spend(visits int) bool {
	if k.visits += visits; k.visits > maxVisits && k.exceeded == "" {
		k.exceeded = "is too large to be checked; make it smaller"
	}
	return k.exceeded == ""
}

// names returns the sorted member names of an object. It sorts each object once.
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

// check reports whether a value fits a node. It adds problems to out, and the evaluated members and
// items to seen, which may be nil.
func (k *checker) check(n *node, value any, at *path, out *problems, seen *evaluated) bool {
	k.depth++
	defer func() { k.depth-- }()
	if (k.depth > maxDepth || at.level() > maxValueDepth) && k.exceeded == "" {
		k.exceeded = "is nested too deeply; make it flatter"
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
	text, work := canonicalWithin(value, n.longest)
	if !k.spend(work/compareBytes) || n.allowed[text] {
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

// checkInPlace checks the subschemas for the same value.
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
		ok = out.add(at, "must not have this form")
	}
	if n.ifNode != nil {
		next := n.elseNode
		if k.try(n.ifNode, value, at, seen) {
			next = n.thenNode
		}
		if next != nil {
			ok = k.check(next, value, at, out, seen) && ok
		}
	}
	return ok
}

// try is check without reasons.
func (k *checker) try(n *node, value any, at *path, seen *evaluated) bool {
	return k.tryWithReasons(n, value, at, &problems{}, seen)
}

// tryWithReasons is check, but adds to seen only if the value fits.
func (k *checker) tryWithReasons(n *node, value any, at *path, out *problems, seen *evaluated) bool {
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
		if k.tryWithReasons(n, value, at, own, seen) {
			fits = true
			if seen == nil {
				break // later alternatives matter only to seen
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
		if k.tryWithReasons(n, value, at, own, seen) {
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
