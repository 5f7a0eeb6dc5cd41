package schema

// evaluated is which members and items of a value a schema has looked at. On nil its
// methods do nothing.
type evaluated struct {
	members map[string]bool
	items   map[int]bool
}

func (e *evaluated) member(name string) {
	if e == nil {
		return
	}
	if e.members == nil {
		e.members = map[string]bool{}
	}
	e.members[name] = true
}

func (e *evaluated) item(i int) {
	if e == nil {
		return
	}
	if e.items == nil {
		e.items = map[int]bool{}
	}
	e.items[i] = true
}

func (e *evaluated) hasMember(name string) bool { return e != nil && e.members[name] }

func (e *evaluated) hasItem(i int) bool { return e != nil && e.items[i] }

func (e *evaluated) merge(other *evaluated) {
	for name := range other.members {
		e.member(name)
	}
	for i := range other.items {
		e.item(i)
	}
}
