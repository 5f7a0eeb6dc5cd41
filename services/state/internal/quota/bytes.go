package quota

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// A sum of stored bytes is added up again after bytesFresh, and not before bytesRest times as long as it took, so that a
// large tenant does not keep the database busy.
const (
	bytesFresh = 5 * time.Second
	bytesRest  = 20
)

// Bytes remembers how many bytes each tenant stores. It may be used by many goroutines.
type Bytes struct {
	sum func(ctx context.Context, tenant string) (int64, error)
	now func() time.Time

	mu      sync.Mutex
	tenants *simplelru.LRU[string, *stored]
}

// stored is guarded by Bytes.mu.
type stored struct {
	bytes  int64
	due    time.Time // of the next sum; zero before the first
	adding bool      // a sum is under way
}

// NewBytes returns a memory for the results of sum.
func NewBytes(sum func(ctx context.Context, tenant string) (int64, error), now func() time.Time) *Bytes {
	tenants, err := simplelru.NewLRU[string, *stored](maxOwners, nil)
	if err != nil {
		panic(err) // the size is above 0
	}
	return &Bytes{sum: sum, now: now, tenants: tenants}
}

// Used returns about how many bytes the tenant stores.
func (b *Bytes) Used(ctx context.Context, tenant string) (int64, error) {
	b.mu.Lock()
	s, known := b.tenants.Get(tenant)
	if !known {
		s = &stored{}
		b.tenants.Add(tenant, s)
	}
	began := b.now()
	if !s.due.IsZero() && (s.adding || began.Before(s.due)) {
		defer b.mu.Unlock()
		return s.bytes, nil
	}
	s.adding = true
	b.mu.Unlock()
	bytes, err := b.sum(ctx, tenant)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.adding = false
	if err != nil {
		return 0, err
	}
	ended := b.now()
	s.bytes, s.due = bytes, ended.Add(max(bytesFresh, bytesRest*ended.Sub(began)))
	return bytes, nil
}

// Add adds the bytes stored since the last sum.
func (b *Bytes) Add(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, known := b.tenants.Get(tenant); known {
		s.bytes += n
	}
}
