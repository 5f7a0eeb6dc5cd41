package quota

import "sync"

// Pending counts the starts under way in this replica, which a count in the database misses. It may be used by many
// goroutines.
type Pending struct {
	mu       sync.Mutex
	underWay map[Owner]int64
}

// Begin adds a start, and returns how many were under way before it.
func (p *Pending) Begin(of Owner) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.underWay == nil {
		p.underWay = map[Owner]int64{}
	}
	p.underWay[of]++
	return p.underWay[of] - 1
}

// End removes a start.
func (p *Pending) End(of Owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.underWay[of]--; p.underWay[of] == 0 {
		delete(p.underWay, of)
	}
}
