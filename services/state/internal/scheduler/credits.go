package scheduler

import "sync"

// credits counts how many more claims the executor can take.
type credits struct {
	more chan struct{} // holds one signal: the number or the end has changed

	spare int // the last credits, for tenants without a running run

	mu    sync.Mutex
	free  int
	ended error // why no more will come; io.EOF when the executor has closed its side
}

// maxCredits prevents an overflow by a faulty client.
const maxCredits = 1 << 20

func newCredits(n, spare int) *credits {
	return &credits{free: max(n, 0), spare: max(spare, 0), more: make(chan struct{}, 1)}
}

// fill adds the executor's grants until its side of the stream ends.
func (c *credits) fill(stream Stream) {
	for {
		n, err := stream.Credits()
		c.mu.Lock()
		c.ended = err
		c.free = min(c.free+max(n, 0), maxCredits)
		c.mu.Unlock()
		signal(c.more)
		if err != nil {
			return
		}
	}
}

func (c *credits) get() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.free, c.ended
}

// open returns how many credits are left for any tenant: all but the spare ones.
func (c *credits) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return 0
	}
	return max(c.free-c.spare, 0)
}

// take takes at most limit credits, and returns how many: none once the executor has closed its
// side. It takes spare credits only if there are no others, and reports it.
func (c *credits) take(limit int) (n int, spare bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return 0, false
	}
	n = min(c.free-c.spare, limit)
	if n <= 0 {
		n, spare = min(c.free, limit), true
	}
	c.free -= n
	return n, spare
}

// giveBack returns unused credits.
func (c *credits) giveBack(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	c.free += n
	c.mu.Unlock()
	signal(c.more)
}

// signal puts a signal into a channel of size one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
