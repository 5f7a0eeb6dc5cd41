package httpapi

import (
	"io"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Memory bounds the bytes of request bodies in memory at once. A nil Memory has no bound.
type Memory struct{ pool *Pool }

// NewMemory returns a Memory of that many bytes. Its spare part is that percentage, and has room for a body of the largest size.
func NewMemory(bytes int64, percent int, largest int64) *Memory {
	return &Memory{NewPool(bytes, percent, largest+freeBytes)}
}

// freeBytes of each body are not counted, so that small requests pass when the memory is full.
const freeBytes = 64 << 10

// Reservation is the share of one body in a Memory. It must be released.
type Reservation struct {
	of     *Memory
	tenant string
	bytes  int64
}

// Reserve returns a Reservation without bytes, for a body of the tenant.
func (m *Memory) Reserve(tenant string) *Reservation { return &Reservation{of: m, tenant: tenant} }

// Grow makes room for a body of this size. Exhausted (BODY_MEMORY_FULL).
func (r *Reservation) Grow(size int64) error {
	if r.of == nil || size <= freeBytes || size <= r.bytes {
		return nil
	}
	more := max(size, min(2*r.bytes, size+freeBytes)) - r.bytes
	if !r.of.pool.Take(r.tenant, more) {
		return fault.New(
			fault.Exhausted,
			"BODY_MEMORY_FULL",
			"other requests fill the memory for bodies; send it again in a moment, or raise HOLDFAST_GATEWAY_BODY_MEMORY",
		)
	}
	r.bytes += more
	return nil
}

// Release gives the bytes back.
func (r *Reservation) Release() {
	if r.bytes > 0 {
		r.of.pool.Give(r.tenant, r.bytes)
		r.bytes = 0
	}
}

// countedReader reserves memory for what it reads.
type countedReader struct {
	from        io.Reader
	reservation *Reservation
	read        int64
}

// Read implements io.Reader. Exhausted (BODY_MEMORY_FULL).
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += int64(n)
	if full := c.reservation.Grow(c.read); full != nil {
		return 0, full
	}
	return n, err
}
