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

// MaxCalls is the limit on calls in flight per pipe. It exceeds the calls of an executor with all slots in use,
// and bounds the load on a slow server.
const MaxCalls = 1024

// unaryPause is how long calls stay unary after a server has refused a pipe. It bounds the delay after an
// upgrade of the server.
const unaryPause = 30 * time.Second

// Client sends the calls of some methods over pipes, one pipe at a time. Safe for concurrent use.
type Client struct {
	methods []string
	index   map[string]uint64
	scratch *scratch

	mu      sync.Mutex
	current *clientPipe // nil before the first call
	unary   time.Time   // the server is assumed to lack pipes until then
}

// NewClient returns a client for the methods, full names. It does not open a pipe.
func NewClient(methods []string) *Client {
	c := &Client{methods: methods, index: make(map[string]uint64, len(methods)), scratch: newScratch()}
	for i, method := range methods {
		c.index[method] = uint64(i)
	}
	return c
}

// Call makes a call over the pipe of conn, which must always be the same one. It reports false, without having
// made the call, if the call must be unary: the client does not have the method, the request is large, or the
// server lacks pipes.
//
// The error is a gRPC status, or ctx's. UNAVAILABLE: the pipe broke, and the call may have been executed.
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
			continue // nothing was sent; try the next pipe
		case err == errNoPipes: //nolint:errorlint // never wrapped
			return false, nil
		case err != nil:
			return true, err
		}
		return true, result.decode(out)
	}
}

// pipe returns the pipe for a call, or nil if the call must be unary.
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

// ended returns the error for the calls of a pipe that ended with err. Errors that a unary call would also
// receive pass; everything else is a broken connection.
func ended(err error) error {
	code := grpcstatus.Code(err)
	if code == codes.Unauthenticated || code == codes.PermissionDenied || code == codes.Unavailable {
		return err
	}
	return grpcstatus.Errorf(codes.Unavailable, "the pipe broke: %v", err)
}

// sampled returns the trace context of ctx if it is sampled.
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

// result is a call's answer, or the end of its pipe.
type result struct {
	answer answer
	buffer mem.Buffer // holds the answer
	err    error
}

// decode decodes the answer into reply and frees it.
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
