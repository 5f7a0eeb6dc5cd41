package worker

import "sync"

// once is a set of ids for which something was done. The zero value is empty. Safe for
// concurrent use.
type once struct {
	mu  sync.Mutex
	ids map[string]bool
}

// first adds the id, and reports whether it is new.
func (o *once) first(id string) bool {
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

func (o *once) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = nil
}
