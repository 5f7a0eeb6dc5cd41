package process

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestAReserveLetsTheHeapGrowFurtherBeforeItIsCollected(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := goal()
	ReserveHeap(ServiceReserve)
	defer func() { reserve = nil }()
	if after := goal(); after < before+ServiceReserve {
		t.Errorf("the heap is collected at %d bytes, without a reserve at %d", after, before)
	}
	if len(reserve) != ServiceReserve {
		t.Errorf("the reserve has %d bytes", len(reserve))
	}
}
