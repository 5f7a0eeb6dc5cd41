// Package crowd runs goroutines that may have to be abandoned, because they execute user code that may never
// return.
package crowd

import (
	"sync"
	"time"
)

// Group is a group of goroutines with a bounded wait. The zero value is empty. Safe for concurrent use.
type Group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when the group is empty; nil without a waiter
}

// Go runs f in a goroutine of the group.
func (c *Group) Go(f func()) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	go func() {
		defer c.end()
		f()
	}()
}

func (c *Group) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Wait waits for the goroutines and reports whether they ended within the limit.
func (c *Group) Wait(limit time.Duration) bool {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return true
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
