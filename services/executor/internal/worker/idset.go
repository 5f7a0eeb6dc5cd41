package worker

import "sync"

// idSet is a set of ids for which something was done. The zero value is empty. Safe for
// concurrent use.
type idSet struct {
	mu  sync.Mutex
	ids map[string]bool
}

// add adds the id, and reports whether it is new.
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
