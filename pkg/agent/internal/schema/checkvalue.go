package schema

import (
	"encoding/json"
	"math"
	"unicode/utf8"
)

func (k *checker) checkNumber(n *node, text json.Number, at *path, out *problems) bool {
	if n.minimum == nil && n.maximum == nil && n.exclusiveMinimum == nil && n.exclusiveMaximum == nil && n.multipleOf == nil {
		return true
	}
	ok := true
	d, shown := parseDecimal(text), clip(string(text), maxShown)
	if b := n.minimum; b != nil && d.compare(b.decimal) < 0 {
		ok = out.add(at, "must be at least %s, not %s", b.text, shown)
	}
	if b := n.maximum; b != nil && d.compare(b.decimal) > 0 {
		ok = out.add(at, "must be at most %s, not %s", b.text, shown)
	}
	if b := n.exclusiveMinimum; b != nil && d.compare(b.decimal) <= 0 {
		ok = out.add(at, "must be above %s, not %s", b.text, shown)
	}
	if b := n.exclusiveMaximum; b != nil && d.compare(b.decimal) >= 0 {
		ok = out.add(at, "must be below %s, not %s", b.text, shown)
	}
	if b := n.multipleOf; b != nil && k.spend(d.divisionDigits(b.decimal)/digitsAtOnce) && !d.multipleOf(b.decimal) {
		ok = out.add(at, "must be a multiple of %s, not %s", b.text, shown)
	}
	return ok
}

func (k *checker) checkText(n *node, text string, at *path, out *problems) bool {
	ok := true
	if (n.minLength != nil || n.maxLength != nil) && k.spend(len(text)/visitBytes) {
		length := utf8.RuneCountInString(text)
		if n.minLength != nil && length < *n.minLength {
			ok = out.add(at, "must have at least %d characters, not %d", *n.minLength, length)
		}
		if n.maxLength != nil && length > *n.maxLength {
			ok = out.add(at, "must have at most %d characters, not %d", *n.maxLength, length)
		}
	}
	if n.pattern != nil && !k.matchPattern(n.pattern, text) {
		ok = out.add(at, "must match the pattern %s", clip(n.pattern.String(), maxShown))
	}
	return ok
}

func (k *checker) checkList(n *node, list []any, at *path, out *problems, seen *evaluated) bool {
	ok := checkSize(len(list), n.minItems, n.maxItems, "items", at, out)
	for i, item := range list {
		of := n.items
		if i < len(n.prefix) {
			of = n.prefix[i]
		}
		if of == nil {
			break
		}
		seen.addItem(i)
		ok = k.check(of, item, at.item(i), out, nil) && ok
		if k.done(out) {
			return ok
		}
	}
	if n.unique {
		ok = k.checkUnique(list, at, out) && ok
	}
	if n.contains != nil {
		ok = k.checkContains(n, list, at, out, seen) && ok
	}
	if n.unevaluatedItems != nil {
		ok = k.checkUnevaluatedItems(n, list, at, out, seen) && ok
	}
	return ok
}

// done reports whether the check can stop.
func (k *checker) done(out *problems) bool {
	return k.exceeded != "" || out.found && out.full()
}

func (k *checker) checkUnique(list []any, at *path, out *problems) bool {
	first := make(map[string]int, len(list))
	for i, item := range list {
		text, work := canonicalWithin(item, math.MaxInt)
		if !k.spend(1 + work/compareBytes) {
			return true
		}
		if j, twice := first[text]; twice {
			return out.add(at, "must have distinct items, but items %d and %d are equal", j, i)
		}
		first[text] = i
	}
	return true
}

func (k *checker) checkContains(n *node, list []any, at *path, out *problems, seen *evaluated) bool {
	count := 0
	for i, item := range list {
		if k.try(n.contains, item, at.item(i), nil) {
			count++
			seen.addItem(i)
		}
		if k.exceeded != "" {
			return true
		}
	}
	least := 1
	if n.minContains != nil {
		least = *n.minContains
	}
	if count < least {
		return out.add(at, "must have at least %d items that fit contains, not %d", least, count)
	}
	if n.maxContains != nil && count > *n.maxContains {
		return out.add(at, "must have at most %d items that fit contains, not %d", *n.maxContains, count)
	}
	return true
}

func (k *checker) checkUnevaluatedItems(n *node, list []any, at *path, out *problems, seen *evaluated) bool {
	if !k.spend(len(list)) {
		return true
	}
	ok := true
	for i, item := range list {
		if seen.hasItem(i) {
			continue
		}
		seen.addItem(i)
		ok = k.check(n.unevaluatedItems, item, at.item(i), out, nil) && ok
		if k.done(out) {
			break
		}
	}
	return ok
}

func checkSize(size int, least, most *int, what string, at *path, out *problems) bool {
	ok := true
	if least != nil && size < *least {
		ok = out.add(at, "must have at least %d %s, not %d", *least, what, size)
	}
	if most != nil && size > *most {
		ok = out.add(at, "must have at most %d %s, not %d", *most, what, size)
	}
	return ok
}
