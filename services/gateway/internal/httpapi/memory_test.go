package httpapi_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

func TestLargeBodiesShareAMemoryAndSmallOnesPass(t *testing.T) {
	t.Parallel()
	const mebibyte = 1 << 20
	m := httpapi.NewMemory(3*mebibyte, 0, 0)
	grow := func(h *httpapi.Reservation, size int64) string { return fault.ReasonOf(h.Grow(size)) }
	first, second, small := m.Reserve("acme"), m.Reserve("acme"), m.Reserve("acme")
	for size := int64(1); size <= 2*mebibyte; size += 4 << 10 {
		if got := grow(first, size); got != "" {
			t.Fatalf("%d bytes of an empty memory: %s", size, got)
		}
	}
	if got := grow(second, mebibyte+64<<10); got != "BODY_MEMORY_FULL" {
		t.Errorf("more than is left: got %q", got)
	}
	if got := grow(second, 512<<10); got != "" {
		t.Errorf("less than is left: got %q", got)
	}
	if got := grow(small, 64<<10); got != "" {
		t.Errorf("a small body: got %q", got)
	}
	first.Release()
	first.Release()
	if got := grow(second, 3*mebibyte); got != "" {
		t.Errorf("after a release: got %q", got)
	}
	second.Release()
	if got := grow(m.Reserve("acme"), 3*mebibyte+1); got != "BODY_MEMORY_FULL" {
		t.Errorf("more than the memory: got %q", got)
	}
	var unbounded *httpapi.Memory
	if got := grow(unbounded.Reserve("acme"), 1<<40); got != "" {
		t.Errorf("without a bound: got %q", got)
	}
}
