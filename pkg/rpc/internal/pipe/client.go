package pipe

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// MaxCalls is how many calls of one pipe are in flight. It is above what an executor
// with all its slots in use has, and bounds what a slow server holds.
const MaxCalls = 1024

// unaryPause is how long calls stay unary after a server has refused a pipe. An
// older server is replaced within it or not for long.
const unaryPause = 30 * time.Second

// Client sends the calls of some methods over pipes, one at a time. Its methods may
// be called by many goroutines at once.
type Client struct {
	methods []string
	index   map[string]uint64
	scratch *scratch

	mu      sync.Mutex
	current *clientPipe // nil before the first call
	unary   time.Time   // until then the server is taken to know no pipes
}

// NewClient returns a client for the methods, full names. It opens nothing.
func NewClient(methods []string) *Client {
	c := &Client{methods: methods, index: make(map[string]uint64, len(methods)), scratch: newScratch()}
	for i, method := range methods {
		c.index[method] = uint64(i)
	}
	return c
}

// Call makes a call over the pipe of conn, which must be the same one always. It reports false, and has not made the
// call, when the call has to be a unary one: its method is none of the client's, the
// request is large, or the server knows no pipes.
//
// The error is a gRPC status, or that of ctx. UNAVAILABLE: the pipe broke, and the
// call may have been done.
func (c *Client) Call(ctx context.Context, conn grpc.ClientConnInterface, method string, request, reply any) (bool, error) {
	index, ok := c.index[method]
	in, isProto := request.(proto.Message)
	out, isProtoReply := reply.(proto.Message)
	if !ok || !isProto || !isProtoReply {
		return false, nil
	}
	size := proto.Size(in)
	if size > FrameBytes {
		return false, nil
	}
	entry := call{method: index}
	entry.traceparent, entry.tracestate = sampled(ctx)
	for {
		p := c.pipe(conn) //nolint:contextcheck // a pipe outlives the call that opens it
		if p == nil {
			return false, nil
		}
		result, err := p.call(ctx, c.scratch, entry, in, size)
		switch {
		case err == errEnding: //nolint:errorlint // never wrapped
			continue // nothing was sent, and the next pipe is another one
		case err == errNoPipes: //nolint:errorlint // never wrapped
			return false, nil
		case err != nil:
			return true, err
		}
		return true, result.decode(out)
	}
}

// pipe returns the pipe for a call, nil when the call has to be unary.
func (c *Client) pipe(conn grpc.ClientConnInterface) *clientPipe {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.current.usable() {
		return c.current
	}
	if !c.unary.IsZero() && time.Now().Before(c.unary) {
		return nil
	}
	c.unary = time.Time{}
	c.current = newClientPipe()
	go c.run(c.current, conn) // ends with the pipe, at the latest when conn is closed
	return c.current
}

// run opens a pipe and reads it until it ends.
func (c *Client) run(p *clientPipe, conn grpc.ClientConnInterface) {
	err := p.run(conn, c.methods)
	if grpcstatus.Code(err) == codes.Unimplemented {
		c.mu.Lock()
		c.unary = time.Now().Add(unaryPause)
		c.mu.Unlock()
		p.fail(errNoPipes)
		return
	}
	p.fail(ended(err))
}

// ended is what the calls of a pipe get that has ended with err. What would meet a
// unary call as well comes through; everything else is a connection that broke.
func ended(err error) error {
	code := grpcstatus.Code(err)
	if code == codes.Unauthenticated || code == codes.PermissionDenied || code == codes.Unavailable {
		return err
	}
	return grpcstatus.Errorf(codes.Unavailable, "the pipe broke: %v", err)
}

// sampled returns the trace context of ctx when somebody records it.
func sampled(ctx context.Context) (traceparent, tracestate string) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return "", ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentKey], carrier[tracestateKey]
}

const (
	traceparentKey = "traceparent"
	tracestateKey  = "tracestate"
)

// result is how a call ended: with an answer, or with the end of the pipe.
type result struct {
	answer answer
	buffer mem.Buffer // holds the answer
	err    error
}

// decode reads the answer into the reply, and frees it.
func (r result) decode(reply proto.Message) error {
	defer r.buffer.Free()
	if len(r.answer.status) > 0 {
		var s status.Status
		if err := proto.Unmarshal(r.answer.status, &s); err != nil {
			return grpcstatus.Errorf(codes.Internal, "read the status of an answer: %v", err)
		}
		return grpcstatus.ErrorProto(&s)
	}
	if err := proto.Unmarshal(r.answer.payload, reply); err != nil {
		return grpcstatus.Errorf(codes.Internal, "read an answer: %v", err)
	}
	return nil
}
