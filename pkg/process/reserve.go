package process

// ServiceReserve is the heap reserve of a service with its own process. Services have a small live heap and much
// garbage; without the reserve the collector would run many times per second.
const ServiceReserve = 64 << 20

// reserve is never written: it takes address space and no memory.
var reserve []byte

// ReserveHeap lets the heap grow by this number of bytes more before a collection, for the life of the process.
// The cost is as much memory under load, and none at rest. GOMEMLIMIT includes the reserve. Call it once, before
// Main.
func ReserveHeap(bytes int) { reserve = make([]byte, bytes) }
