package worker

import "sync"

// idSet is a set of ids. The zero value is empty. Safe for concurrent use.
type idSet struct {
	mu  sync.Mutex
	ids map[string]bool
}

// add reports whether the id is new.
func (o *idSet) add(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids[id] {
		return false
	}
	if o.ids == nil {
		o.ids = map[string]bool{}
	}
	o.ids[id] = true
	return true
}

func (o *idSet) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = nil
}
