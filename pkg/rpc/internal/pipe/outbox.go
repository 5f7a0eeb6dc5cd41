package pipe

import (
	"runtime"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// FrameBytes is the size limit of a frame. A larger answer goes alone.
const FrameBytes = 64 << 10

// bufferBytes is the size of the buffers for waiting entries.
const bufferBytes = 4 << 10

// outbox holds the entries for the writer.
type outbox struct {
	mu      sync.Mutex
	waiting []*[]byte     // whole entries each
	wake    chan struct{} // one place: the writer takes all waiting entries
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put adds a copy of an entry.
func (o *outbox) put(entry []byte) {
	o.mu.Lock()
	tail := o.tail(len(entry))
	*tail = append(*tail, entry...)
	o.mu.Unlock()
	o.wakeWriter()
}

// wakeWriter wakes the writer.
func (o *outbox) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// tail returns the buffer for an entry of this size.
func (o *outbox) tail(size int) *[]byte {
	if n := len(o.waiting); n > 0 {
		if last := o.waiting[n-1]; cap(*last)-len(*last) >= size {
			return last
		}
	}
	tail := mem.DefaultBufferPool().Get(max(size, bufferBytes))
	*tail = (*tail)[:0]
	o.waiting = append(o.waiting, tail)
	return tail
}

// take returns what waits, up to FrameBytes, and at least one buffer if there is one.
func (o *outbox) take() mem.BufferSlice {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out mem.BufferSlice
	size, n := 0, 0
	for ; n < len(o.waiting) && (n == 0 || size+len(*o.waiting[n]) <= FrameBytes); n++ {
		size += len(*o.waiting[n])
		out = append(out, mem.NewBuffer(o.waiting[n], mem.DefaultBufferPool()))
	}
	rest := copy(o.waiting, o.waiting[n:])
	clear(o.waiting[rest:])
	o.waiting = o.waiting[:rest]
	return out
}

// flush sends the waiting entries. It first yields to goroutines about to add entries, so these go into
// the same frame.
func (o *outbox) flush(send func(any) error) error {
	runtime.Gosched()
	for {
		out := o.take()
		if out == nil {
			return nil
		}
		if err := send(&frame{out: out}); err != nil {
			return err
		}
	}
}

// scratch lends memory for writing entries.
type scratch struct{ pool sync.Pool }

func newScratch() *scratch {
	return &scratch{pool: sync.Pool{New: func() any { b := make([]byte, 0, bufferBytes); return &b }}}
}

func (s *scratch) get() *[]byte { return s.pool.Get().(*[]byte) }

// put returns memory from get. Memory of a large answer is released.
func (s *scratch) put(b *[]byte) {
	if cap(*b) <= FrameBytes {
		*b = (*b)[:0]
		s.pool.Put(b)
	}
}

// appendMessage appends a message whose size was computed just before.
func appendMessage(b []byte, m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}
