package quota

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxOwners bounds how many tenants and users a replica remembers, the last seen ones. A forgotten one begins anew.
const maxOwners = 100_000

// Starts counts the starts of tenants and users in token buckets. It may be used by many goroutines.
type Starts struct {
	mu      sync.Mutex
	buckets *simplelru.LRU[Owner, *bucket]
}

// bucket holds tokens as of a time.
type bucket struct {
	tokens float64
	at     time.Time
}

// NewStarts returns full buckets for all.
func NewStarts() *Starts {
	buckets, err := simplelru.NewLRU[Owner, *bucket](maxOwners, nil)
	if err != nil {
		panic(err) // the size is above 0
	}
	return &Starts{buckets: buckets}
}

// Take takes a token of the owner. Without one it returns how long to wait for it.
func (s *Starts) Take(of Owner, l Limits, now time.Time) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, known := s.buckets.Get(of)
	if !known {
		b = &bucket{tokens: float64(l.Burst), at: now}
		s.buckets.Add(of, b)
	}
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens, b.at = b.tokens+passed.Seconds()*l.StartsPerSecond, now
	}
	b.tokens = min(b.tokens, float64(l.Burst))
	const rounding = 1e-9
	if b.tokens < 1-rounding {
		return time.Duration(math.Ceil((1 - b.tokens) / l.StartsPerSecond * float64(time.Second)))
	}
	b.tokens--
	return 0
}

// GiveBack returns an unused token.
func (s *Starts) GiveBack(of Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, known := s.buckets.Get(of); known {
		b.tokens++
	}
}
