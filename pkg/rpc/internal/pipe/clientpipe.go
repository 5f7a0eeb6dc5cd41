package pipe

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

var (
	errEnding  = errors.New("the pipe accepts no more calls")
	errNoPipes = errors.New("the server does not support pipes")
)

// clientPipe is the client's side of a pipe. Calls may be added before it is open.
type clientPipe struct {
	out    *outbox
	slots  chan struct{} // one per call in flight
	failed chan struct{} // closed by fail

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan<- result // nil for an abandoned call
	ending  bool                     // accepts no new calls
	err     error                    // why the pipe ended
}

func newClientPipe() *clientPipe {
	return &clientPipe{
		out: newOutbox(), slots: make(chan struct{}, MaxCalls), failed: make(chan struct{}),
		pending: map[uint64]chan<- result{},
	}
}

func (p *clientPipe) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ending && p.err == nil
}

// call adds a call and waits for its result or for ctx.
func (p *clientPipe) call(ctx context.Context, memory *scratch, c call, request proto.Message, size int) (result, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return result{}, ctx.Err()
	case <-p.failed:
		return result{}, p.err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if c.timeout = time.Until(deadline); c.timeout < time.Microsecond {
			<-p.slots
			return result{}, context.DeadlineExceeded
		}
	}
	answered := make(chan result, 1) // buffered, so the reader never blocks
	var err error
	if c.number, err = p.add(answered); err != nil {
		<-p.slots
		return result{}, err
	}
	b := memory.get()
	defer memory.put(b)
	if *b, err = appendMessage(c.head(*b, size), request); err != nil {
		p.drop(c.number)
		return result{}, grpcstatus.Errorf(codes.Internal, "write a request: %v", err)
	}
	p.out.put(*b)
	select {
	case r := <-answered:
		return r, r.err
	case <-ctx.Done():
		p.cancel(c.number)
		return result{}, ctx.Err()
	}
}

// add assigns a number to a call.
func (p *clientPipe) add(answered chan<- result) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	if p.ending {
		return 0, errEnding
	}
	p.last++
	p.pending[p.last] = answered
	return p.last, nil
}

// drop removes an unsent call.
func (p *clientPipe) drop(number uint64) {
	p.mu.Lock()
	delete(p.pending, number)
	p.mu.Unlock()
	<-p.slots
}

// cancel cancels a call. It keeps its place until the server has answered.
func (p *clientPipe) cancel(number uint64) {
	p.mu.Lock()
	_, pending := p.pending[number]
	if pending {
		p.pending[number] = nil
	}
	p.mu.Unlock()
	if pending {
		p.out.put(appendVarint(nil, frameCancelled, number))
	}
}

// run opens the pipe and reads it. It returns the reason of the pipe's end, never nil.
func (p *clientPipe) run(conn grpc.ClientConnInterface, methods []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.MD{methodsKey: methods})
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: streamName, ClientStreams: true, ServerStreams: true}, FullName,
		grpc.ForceCodecV2(Codec()))
	if err != nil {
		return err
	}
	var writer sync.WaitGroup
	writer.Go(func() { p.write(ctx, stream) })
	defer writer.Wait()
	defer cancel()
	return p.read(stream)
}

// write sends waiting calls until ctx ends. If the server wants to end the pipe, it closes the pipe after the
// last call.
func (p *clientPipe) write(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case <-p.out.wake:
		case <-ctx.Done():
			return
		}
		if p.out.flush(stream.SendMsg) != nil {
			return // the reader receives the reason
		}
		if p.drained() {
			_ = stream.CloseSend() // the reader notices a broken stream
			return
		}
	}
}

// drained reports that the server wants to end the pipe and no call is waiting.
func (p *clientPipe) drained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending && len(p.pending) == 0
}

func (p *clientPipe) read(stream grpc.ClientStream) error {
	for {
		var f frame
		if err := stream.RecvMsg(&f); errors.Is(err, io.EOF) {
			return grpcstatus.Error(codes.Unavailable, "the server has ended the pipe")
		} else if err != nil {
			return err
		}
		err := f.read(reader{answer: func(a answer) { p.answered(a, &f) }, ending: p.end})
		f.in.Free()
		if err != nil {
			return err
		}
		if p.drained() {
			p.out.wakeWriter()
		}
	}
}

// answered delivers an answer to its caller.
func (p *clientPipe) answered(a answer, f *frame) {
	p.mu.Lock()
	caller, ok := p.pending[a.number]
	delete(p.pending, a.number)
	p.mu.Unlock()
	if !ok {
		return // a duplicate answer
	}
	<-p.slots
	if caller != nil {
		f.in.Ref()
		caller <- result{answer: a, buffer: f.in}
	}
}

// end stops accepting calls: the next one opens another pipe.
func (p *clientPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

// fail ends every call with err, including calls waiting for a place.
func (p *clientPipe) fail(err error) {
	p.mu.Lock()
	p.err = err
	pending := p.pending
	p.pending = nil
	p.mu.Unlock()
	close(p.failed)
	for _, caller := range pending {
		if caller != nil {
			caller <- result{err: err}
		}
	}
}
