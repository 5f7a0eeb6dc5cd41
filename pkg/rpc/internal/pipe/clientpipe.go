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
	errEnding  = errors.New("the pipe takes no more calls")
	errNoPipes = errors.New("the server knows no pipes")
)

// clientPipe is the client's side of one pipe. Calls may be added before it is open.
type clientPipe struct {
	out    *outbox
	places chan struct{} // one for each call in flight
	over   chan struct{} // closed by fail

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan<- result // nil for a call that its caller has given up
	ending  bool                     // no call is added any more
	err     error                    // why the pipe is over
}

func newClientPipe() *clientPipe {
	return &clientPipe{
		out: newOutbox(), places: make(chan struct{}, MaxCalls), over: make(chan struct{}),
		pending: map[uint64]chan<- result{},
	}
}

func (p *clientPipe) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ending && p.err == nil
}

// call adds a call and waits for its end or that of ctx.
func (p *clientPipe) call(ctx context.Context, memory *scratch, c call, request proto.Message, size int) (result, error) {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return result{}, ctx.Err()
	case <-p.over:
		return result{}, p.err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if c.timeout = time.Until(deadline); c.timeout < time.Microsecond {
			<-p.places
			return result{}, context.DeadlineExceeded
		}
	}
	answered := make(chan result, 1) // the reader never waits for a caller
	var err error
	if c.number, err = p.add(answered); err != nil {
		<-p.places
		return result{}, err
	}
	b := memory.get()
	defer memory.put(b)
	if *b, err = appendMessage(c.head(*b, size), request); err != nil {
		p.forget(c.number)
		return result{}, grpcstatus.Errorf(codes.Internal, "write a request: %v", err)
	}
	p.out.put(*b)
	select {
	case r := <-answered:
		return r, r.err
	case <-ctx.Done():
		p.giveUp(c.number)
		return result{}, ctx.Err()
	}
}

// add gives a call its number.
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

// forget takes back a call of which nothing was sent.
func (p *clientPipe) forget(number uint64) {
	p.mu.Lock()
	delete(p.pending, number)
	p.mu.Unlock()
	<-p.places
}

// giveUp cancels a call. Its place is taken until the server has answered.
func (p *clientPipe) giveUp(number uint64) {
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

// run opens the pipe and reads it. It returns how the pipe ended, which is never nil.
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

// write sends what waits until ctx ends. When the server wants the pipe to end, it
// closes it behind the last call.
func (p *clientPipe) write(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case <-p.out.wake:
		case <-ctx.Done():
			return
		}
		if p.out.flush(stream.SendMsg) != nil {
			return // the reader learns why
		}
		if p.drained() {
			_ = stream.CloseSend() // the reader learns of a stream that is broken
			return
		}
	}
}

// drained reports that the server wants the pipe to end and nothing waits for it any more.
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
			p.out.nudge()
		}
	}
}

// answered hands an answer to the caller who waits for it.
func (p *clientPipe) answered(a answer, f *frame) {
	p.mu.Lock()
	caller, ok := p.pending[a.number]
	delete(p.pending, a.number)
	p.mu.Unlock()
	if !ok {
		return // a server that answers twice
	}
	<-p.places
	if caller != nil {
		f.in.Ref()
		caller <- result{answer: a, buffer: f.in}
	}
}

// end stops adding calls: the next one opens another pipe.
func (p *clientPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

// fail ends every call with err, those that wait for a place too.
func (p *clientPipe) fail(err error) {
	p.mu.Lock()
	p.err = err
	pending := p.pending
	p.pending = nil
	p.mu.Unlock()
	close(p.over)
	for _, caller := range pending {
		if caller != nil {
			caller <- result{err: err}
		}
	}
}
