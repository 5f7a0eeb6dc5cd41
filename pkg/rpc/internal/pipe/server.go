package pipe

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	serviceName = "holdfast.pipe.v1.PipeService"
	streamName  = "Calls"
	// FullName is the full method name of pipes.
	FullName = "/" + serviceName + "/" + streamName

	// methodsKey is the metadata key with the methods of a pipe. Calls refer to them by index.
	methodsKey = "holdfast-pipe-methods"
)

// Server serves the calls of pipes with the handlers of unary calls.
type Server struct {
	admit     Admit
	boundary  Boundary
	mostBytes int
	methods   map[string]method
	scratch   *scratch

	stopOnce sync.Once
	stopping chan struct{} // closed by Stop
}

// Boundary is deferred around every handler. It converts the handler's error or panic into a gRPC status.
type Boundary func(ctx context.Context, fullMethod string, err *error)

// Admit checks the caller of a method, and returns the context for its handler.
type Admit func(ctx context.Context, fullMethod string) (context.Context, error)

// method is a handler and its service.
type method struct {
	name    string
	handler grpc.MethodHandler
	service any
}

// NewServer returns a server with answers of at most mostBytes.
func NewServer(mostBytes int, admit Admit, boundary Boundary) *Server {
	return &Server{
		admit: admit, boundary: boundary, mostBytes: mostBytes, methods: map[string]method{}, scratch: newScratch(),
		stopping: make(chan struct{}),
	}
}

// Add registers the unary methods of a service. It must not be called after the first pipe.
func (s *Server) Add(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		s.methods[name] = method{name: name, handler: m.Handler, service: service}
	}
}

// Register adds the pipe service to a gRPC server with Codec.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: streamName, ClientStreams: true, ServerStreams: true,
			Handler: serve,
		}},
	}, s)
}

// Stop asks all clients to open other pipes. A pipe ends once its client has closed it, with every call
// answered.
func (s *Server) Stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// serve serves one pipe of a Server. It returns after the last handler of the pipe.
func serve(server any, stream grpc.ServerStream) error {
	s := server.(*Server)
	p := &serverPipe{
		server: s, ctx: stream.Context(), out: newOutbox(), slots: make(chan struct{}, MaxCalls),
		work: make(chan task), running: map[uint64]context.CancelFunc{},
	}
	for _, name := range metadata.ValueFromIncomingContext(stream.Context(), methodsKey) {
		p.methods = append(p.methods, s.methods[name])
	}
	written := make(chan struct{})
	closed := make(chan struct{})
	go func() {
		defer close(written)
		p.write(stream, closed)
	}()
	p.mu.Lock()
	p.idleTimer = time.AfterFunc(idleTime, p.endIdleWorker)
	p.mu.Unlock()
	err := p.read(stream)
	p.stopIdleTimer()
	close(p.work)
	p.workers.Wait()
	close(closed)
	<-written
	return err
}

// serverPipe is the server's side of one pipe.
type serverPipe struct {
	server  *Server
	ctx     context.Context //nolint:containedctx // of the stream, the parent of all calls
	methods []method        // zero for a method unknown to the server
	out     *outbox
	slots   chan struct{} // one per call in flight

	work    chan task // to an idle worker; the zero task ends it
	workers sync.WaitGroup
	idle    atomic.Int32 // number of idle workers

	mu        sync.Mutex
	running   map[uint64]context.CancelFunc
	idleTimer *time.Timer // nil at the end
}

// read receives calls until the client closes the pipe, which is no error, or the pipe breaks.
func (p *serverPipe) read(stream grpc.ServerStream) error {
	for {
		var f frame
		if err := stream.RecvMsg(&f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		err := f.read(reader{call: func(c call) { p.begin(c, &f) }, cancelled: p.cancel})
		f.in.Free()
		if err != nil {
			return grpcstatus.Error(codes.Internal, err.Error())
		}
	}
}

// write sends answers until every call is answered, and announces the end when the server stops.
func (p *serverPipe) write(stream grpc.ServerStream, closed <-chan struct{}) {
	stopping := p.server.stopping
	for last := false; !last; {
		select {
		case <-p.out.wake:
		case <-stopping:
			stopping = nil
			p.out.put(appendVarint(nil, frameEnding, 1))
		case <-closed:
			last = true
		}
		if p.out.flush(stream.SendMsg) != nil {
			return // the pipe is broken: the reader notices
		}
	}
}

// task is a call for a worker.
type task struct {
	call
	ctx    context.Context //nolint:containedctx // a task is one call
	cancel context.CancelFunc
	buffer mem.Buffer // holds the payload
}

// begin passes a call to a worker. It waits for a place; a client that respects MaxCalls never causes a wait.
func (p *serverPipe) begin(c call, f *frame) {
	p.slots <- struct{}{}
	t := task{call: c, buffer: f.in}
	t.buffer.Ref()
	t.ctx, t.cancel = p.callContext(c)
	p.mu.Lock()
	p.running[c.number] = t.cancel
	p.mu.Unlock()
	select {
	case p.work <- t:
	default:
		p.workers.Go(func() { p.worker(t) })
	}
}

func (p *serverPipe) callContext(c call) (context.Context, context.CancelFunc) {
	ctx := p.ctx
	if c.traceparent != "" {
		carrier := propagation.MapCarrier{traceparentKey: c.traceparent, tracestateKey: c.tracestate}
		ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	}
	if c.timeout > 0 {
		return context.WithTimeout(ctx, c.timeout)
	}
	return context.WithCancel(ctx)
}

func (p *serverPipe) cancel(number uint64) {
	p.mu.Lock()
	cancel := p.running[number]
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// Workers wait for more work, because they keep the stacks grown by handlers. At most idleWorkers of a pipe
// wait, and one of them ends per idleTime.
const (
	idleWorkers = 64
	idleTime    = time.Second
)

func (p *serverPipe) worker(t task) {
	for ok := true; ok; {
		p.serve(t)
		t, ok = p.next()
	}
}

// next waits for work. It reports false when the worker must end.
func (p *serverPipe) next() (t task, ok bool) {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > idleWorkers {
		return task{}, false
	}
	t = <-p.work // closed at the end of the pipe
	return t, t.cancel != nil
}

// endIdleWorker ends one idle worker, and repeats after idleTime for the life of the pipe. One timer for all workers adds
// no cost to a call.
func (p *serverPipe) endIdleWorker() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idleTimer == nil {
		return
	}
	select {
	case p.work <- task{}:
	default: // no worker is idle
	}
	p.idleTimer.Reset(idleTime)
}

// stopIdleTimer ends it.
func (p *serverPipe) stopIdleTimer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleTimer.Stop()
	p.idleTimer = nil
}

// serve runs a handler and answers.
func (p *serverPipe) serve(t task) {
	reply, err := p.invoke(t)
	t.cancel()
	p.mu.Lock()
	delete(p.running, t.number)
	p.mu.Unlock()
	p.answer(t.number, reply, err)
	<-p.slots
}

// invoke calls the handler.
func (p *serverPipe) invoke(t task) (reply any, err error) {
	if t.method >= uint64(len(p.methods)) || p.methods[t.method].handler == nil {
		t.buffer.Free()
		return nil, grpcstatus.Error(codes.Unimplemented, "unknown method")
	}
	m := p.methods[t.method]
	defer p.server.boundary(t.ctx, m.name, &err)
	ctx, err := p.server.admit(t.ctx, m.name)
	if err != nil {
		t.buffer.Free()
		return nil, err
	}
	return m.handler(m.service, ctx, func(request any) error {
		defer t.buffer.Free()
		if err := proto.Unmarshal(t.payload, request.(proto.Message)); err != nil {
			return grpcstatus.Errorf(codes.Internal, "read a request: %v", err)
		}
		return nil
	}, nil)
}

// answer adds the answer to the outbox.
func (p *serverPipe) answer(number uint64, reply any, err error) {
	memory := p.server.scratch
	b := memory.get()
	defer memory.put(b)
	if err == nil {
		if *b, err = p.appendReply(*b, number, reply.(proto.Message)); err != nil {
			*b = (*b)[:0]
		}
	}
	if err != nil {
		*b = appendStatus(*b, number, err)
	}
	p.out.put(*b)
}

func (p *serverPipe) appendReply(b []byte, number uint64, reply proto.Message) ([]byte, error) {
	size := proto.Size(reply)
	b = answer{number: number}.head(b, answerPayload, size)
	if most := p.server.mostBytes; len(b)+size > most {
		return b, grpcstatus.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", size, most)
	}
	return appendMessage(b, reply)
}

func appendStatus(b []byte, number uint64, err error) []byte {
	s, marshalErr := proto.Marshal(grpcstatus.Convert(err).Proto())
	if marshalErr != nil { // a text with invalid UTF-8
		s, _ = proto.Marshal(grpcstatus.New(grpcstatus.Code(err), "").Proto())
	}
	b = answer{number: number}.head(b, answerStatus, len(s))
	return append(b, s...)
}
