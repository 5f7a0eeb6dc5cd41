package schema

import "strings"

func (k *checker) checkObject(n *node, object map[string]any, at *path, out *problems, seen *evaluated) bool {
	ok := checkSize(len(object), n.minProperties, n.maxProperties, "members", at, out)
	for _, name := range n.required {
		if _, has := object[name]; !has {
			ok = out.add(at.member(name), "is missing")
		}
		if k.done(out) {
			return ok
		}
	}
	if n.looksAtMembers() {
		for name, value := range sorted(object) {
			ok = k.checkMember(n, name, value, at, out, seen) && ok
			if k.done(out) {
				return ok
			}
		}
	}
	ok = k.checkNeeds(n, object, at, out, seen) && ok
	if n.unevaluated != nil {
		ok = k.checkRest(n, object, at, out, seen) && ok
	}
	return ok
}

func (n *node) looksAtMembers() bool {
	return len(n.properties) > 0 || len(n.patterns) > 0 || n.additional != nil || n.propertyNames != nil
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
		if k.spend(1+len(name)/visitBytes) && p.pattern.MatchString(name) {
			known = true
			ok = k.check(p.node, value, at.member(name), out, nil) && ok
		}
	}
	switch {
	case known:
		seen.member(name)
	case n.additional == nil:
	case n.additional.never:
		return out.add(at.member(name), "is not known; %s", n.knownNames())
	default:
		seen.member(name)
		ok = k.check(n.additional, value, at.member(name), out, nil) && ok
	}
	return ok
}

func (n *node) knownNames() string {
	switch {
	case len(n.names) == 0:
		return "leave it out"
	case len(n.names) > maxNamed:
		return "known are " + clip(strings.Join(n.names[:maxNamed], ", "), maxList) + ", …"
	}
	return "known are " + clip(strings.Join(n.names, ", "), maxList)
}

// checkNeeds checks what members bring along.
func (k *checker) checkNeeds(n *node, object map[string]any, at *path, out *problems, seen *evaluated) bool {
	ok := true
	for _, need := range n.needs {
		if _, has := object[need.member]; !has {
			continue
		}
		for _, name := range need.members {
			if _, has := object[name]; !has {
				ok = out.add(at.member(name), "is missing; it goes with %q", clip(need.member, maxShown))
			}
		}
		if need.node != nil {
			ok = k.check(need.node, object, at, out, seen) && ok
		}
	}
	return ok
}

// checkRest checks the members that no other keyword has looked at.
func (k *checker) checkRest(n *node, object map[string]any, at *path, out *problems, seen *evaluated) bool {
	ok := true
	for name, value := range sorted(object) {
		if seen.hasMember(name) {
			continue
		}
		seen.member(name)
		if n.unevaluated.never {
			ok = out.add(at.member(name), "is not known; leave it out")
		} else {
			ok = k.check(n.unevaluated, value, at.member(name), out, nil) && ok
		}
		if k.done(out) {
			break
		}
	}
	return ok
}
