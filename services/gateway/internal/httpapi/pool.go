package httpapi

import "sync"

// Pool bounds what the requests of all tenants use at the same time, such as memory. Beyond its bound, a spare part is for tenants
// with little of it, so one tenant cannot lock out the others. It may be used by many goroutines. A nil Pool has no bound.
type Pool struct {
	all   int64
	spare int64
	each  int64

	mu    sync.Mutex
	taken int64
	by    map[string]int64 // what each tenant has; above 0
}

// NewPool returns a Pool of the size. Its spare part is that percentage of it, and at least each; 0 for none. A tenant
// may take from the spare part as long as it has no more than each altogether.
func NewPool(size int64, percent int, each int64) *Pool {
	p := &Pool{all: size, each: each, by: map[string]int64{}}
	if percent > 0 {
		p.spare = max((size*int64(percent)+99)/100, each)
	}
	return p
}

// Take takes n for the tenant, which has to give them back. It reports whether there was room.
func (p *Pool) Take(tenant string, n int64) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	room := p.all
	if p.by[tenant]+n <= p.each {
		room += p.spare
	}
	if p.taken+n > room {
		return false
	}
	p.taken += n
	p.by[tenant] += n
	return true
}

// Give gives back n that the tenant has taken.
func (p *Pool) Give(tenant string, n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken -= n
	if p.by[tenant] -= n; p.by[tenant] == 0 {
		delete(p.by, tenant)
	}
}
