package schema

import "strings"

func (k *checker) checkObject(n *node, object map[string]any, at *path, out *problems, seen *evaluated) bool {
	ok := checkSize(len(object), n.minProperties, n.maxProperties, "members", at, out)
	if !k.spend(len(n.required) + len(n.dependencies)) {
		return true
	}
	for _, name := range n.required {
		if _, has := object[name]; !has {
			ok = out.add(at.member(name), "is missing")
		}
		if k.done(out) {
			return ok
		}
	}
	for _, name := range k.relevantNames(n, object) {
		if value, has := object[name]; has {
			ok = k.checkMember(n, name, value, at, out, seen) && ok
		}
		if k.done(out) {
			return ok
		}
	}
	ok = k.checkDependencies(n, object, at, out, seen) && ok
	if n.unevaluated != nil {
		ok = k.checkUnevaluatedMembers(n, object, at, out, seen) && ok
	}
	return ok
}

// relevantNames returns the names to check: all members of the object, or only the properties of the node
// if no other keyword needs more. It counts them as work.
func (k *checker) relevantNames(n *node, object map[string]any) []string {
	names := n.names
	if len(n.patterns) > 0 || n.additional != nil || n.propertyNames != nil || len(names) > len(object) {
		if !k.spend(len(object)) {
			return nil
		}
		return k.names(object)
	}
	k.spend(len(names))
	return names
}

func (k *checker) checkMember(n *node, name string, value any, at *path, out *problems, seen *evaluated) bool {
	ok := true
	if n.propertyNames != nil && !k.try(n.propertyNames, name, at, nil) {
		ok = out.add(at.member(name), "has a name that is not allowed")
	}
	of, known := n.properties[name]
	if known {
		ok = k.check(of, value, at.member(name), out, nil) && ok
	}
	for _, p := range n.patterns {
		if k.matchPattern(p.pattern, name) {
			known = true
			ok = k.check(p.node, value, at.member(name), out, nil) && ok
		}
	}
	switch {
	case known:
		seen.addMember(name)
	case n.additional == nil:
	case n.additional.never:
		return out.add(at.member(name), "is not known; %s", knownNames{n})
	default:
		seen.addMember(name)
		ok = k.check(n.additional, value, at.member(name), out, nil) && ok
	}
	return ok
}

// knownNames lists the properties of a node. It is a Stringer because most problems are never printed.
type knownNames struct{ *node }

func (n knownNames) String() string {
	if len(n.names) == 0 {
		return "leave it out"
	}
	var shown []string
	for _, name := range n.names[:min(len(n.names), maxListed)] {
		shown = append(shown, clip(name, maxList))
	}
	text := "known are " + clip(strings.Join(shown, ", "), maxList)
	if len(n.names) > maxListed {
		text += ", …"
	}
	return text
}

// checkDependencies checks dependentRequired, dependentSchemas and dependencies.
func (k *checker) checkDependencies(n *node, object map[string]any, at *path, out *problems, seen *evaluated) bool {
	ok := true
	for _, need := range n.dependencies {
		if _, has := object[need.name]; !has {
			continue
		}
		if !k.spend(len(need.required)) {
			return true
		}
		for _, name := range need.required {
			if _, has := object[name]; !has {
				ok = out.add(at.member(name), "is missing; %q requires it", clip(need.name, maxShown))
			}
		}
		if need.node != nil {
			ok = k.check(need.node, object, at, out, seen) && ok
		}
	}
	return ok
}

// checkUnevaluatedMembers checks the members that no other keyword has evaluated.
func (k *checker) checkUnevaluatedMembers(n *node, object map[string]any, at *path, out *problems, seen *evaluated) bool {
	if !k.spend(len(object)) {
		return true
	}
	ok := true
	for _, name := range k.names(object) {
		if seen.hasMember(name) {
			continue
		}
		seen.addMember(name)
		if n.unevaluated.never {
			ok = out.add(at.member(name), "is not known; leave it out")
		} else {
			ok = k.check(n.unevaluated, object[name], at.member(name), out, nil) && ok
		}
		if k.done(out) {
			break
		}
	}
	return ok
}
