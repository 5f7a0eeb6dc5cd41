package httpapi

import (
	"io"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Memory bounds the bytes of request bodies that are in memory at once. A nil Memory has no bound.
type Memory struct{ pool *Pool }

// NewMemory returns a Memory of that many bytes. Its spare part is that percentage, and has room for a body of the largest size.
func NewMemory(bytes int64, percent int, largest int64) *Memory {
	return &Memory{NewPool(bytes, percent, largest+freeBytes)}
}

// freeBytes of each body are not counted, so that small requests pass when the memory is full.
const freeBytes = 64 << 10

// Held is the share of one body in a Memory. It must be released.
type Held struct {
	of     *Memory
	tenant string
	bytes  int64
}

// Hold returns a Held without bytes, for a body of the tenant.
func (m *Memory) Hold(tenant string) *Held { return &Held{of: m, tenant: tenant} }

// Grow makes room for a body that has become this large. Exhausted (BODY_MEMORY_FULL).
func (h *Held) Grow(size int64) error {
	if h.of == nil || size <= freeBytes || size <= h.bytes {
		return nil
	}
	more := max(size, min(2*h.bytes, size+freeBytes)) - h.bytes
	if !h.of.pool.Take(h.tenant, more) {
		return fault.New(fault.Exhausted, "BODY_MEMORY_FULL", "other requests fill the memory for bodies; send it again in a moment, or raise HOLDFAST_GATEWAY_BODY_MEMORY")
	}
	h.bytes += more
	return nil
}

// Release gives the bytes back.
func (h *Held) Release() {
	if h.bytes > 0 {
		h.of.pool.Give(h.tenant, h.bytes)
		h.bytes = 0
	}
}

// heldReader reads a body into memory.
type heldReader struct {
	from io.Reader
	held *Held
	read int64
}

// Read implements io.Reader. Exhausted (BODY_MEMORY_FULL).
func (h *heldReader) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	h.read += int64(n)
	if full := h.held.Grow(h.read); full != nil {
		return 0, full
	}
	return n, err
}
