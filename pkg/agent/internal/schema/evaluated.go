package schema

// evaluated is the members and items of a value that a schema has evaluated. The methods of nil do
// nothing.
type evaluated struct {
	members map[string]bool
	items   map[int]bool
}

func (e *evaluated) addMember(name string) {
	if e == nil {
		return
	}
	if e.members == nil {
		e.members = map[string]bool{}
	}
	e.members[name] = true
}

func (e *evaluated) addItem(i int) {
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
		e.addMember(name)
	}
	for i := range other.items {
		e.addItem(i)
	}
}
