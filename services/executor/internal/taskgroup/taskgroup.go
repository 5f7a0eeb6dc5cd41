// Package taskgroup runs goroutines of user code. The code may never return, so a group can abandon them.
package taskgroup

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
func (g *Group) Go(f func()) {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	go func() {
		defer g.end()
		f()
	}()
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Wait waits for the goroutines and reports whether they ended within the limit.
func (g *Group) Wait(limit time.Duration) bool {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return true
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
