package process

// ServiceReserve is what a service of Holdfast that has a process of its own keeps
// in reserve: its live heap is small and its garbage much, so that without it the
// collector would run many times a second.
const ServiceReserve = 64 << 20

// reserve is never written to: it is room in the address space and no memory.
var reserve []byte

// ReserveHeap lets the heap grow by that many bytes more before it is collected, for
// as long as the process lives. It costs as much memory while the process is busy, and
// nothing while it is not. It counts for GOMEMLIMIT. It is called once, before Main.
func ReserveHeap(bytes int) { reserve = make([]byte, bytes) }
