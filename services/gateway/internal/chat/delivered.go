package chat

import (
	"container/list"
	"sync"
)

// delivered remembers which finished runs this gateway has told some reader to
// the end, the newest ones up to its size. What it has forgotten, or another
// gateway has told, is told once more: a replay puts the same message in place.
type delivered struct {
	size int

	mu    sync.Mutex
	order *list.List // of run ids, the newest at the front
	runs  map[string]*list.Element
}

func newDelivered(size int) *delivered {
	return &delivered{size: size, order: list.New(), runs: map[string]*list.Element{}}
}

func (d *delivered) add(run string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.runs[run]; e != nil {
		d.order.MoveToFront(e)
		return
	}
	d.runs[run] = d.order.PushFront(run)
	if d.order.Len() > d.size {
		oldest := d.order.Back()
		d.order.Remove(oldest)
		delete(d.runs, oldest.Value.(string))
	}
}

func (d *delivered) has(run string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs[run] != nil
}
