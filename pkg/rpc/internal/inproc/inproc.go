// Package inproc carries gRPC calls between services in one process. It calls the handlers of a gRPC server
// without bytes, frames or connections.
//
// Both sides have their own messages: each message is copied once, and neither side sees changes of the other. A
// handler's context has its caller's deadline, cancellation and trace, but none of its values. Errors pass
// through the server's boundary.
//
// A unary handler runs on its caller's goroutine. A handler that ignores its ended context therefore blocks the
// caller, unlike over a connection. A stream's handler runs on its own goroutine, and a sender waits while
// streamBuffer messages are pending.
//
// There are no spans, metadata, call options and limits on messages.
package inproc

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Boundary is deferred around every handler. It converts the handler's error or panic into a gRPC status.
type Boundary func(ctx context.Context, fullMethod string, err *error)

// Server calls the handlers of its services.
type Server struct {
	boundary Boundary
	unary    map[string]unary
	streams  map[string]stream

	mu      sync.Mutex
	open    int           // calls in progress
	stopped bool          // no new calls
	ended   chan struct{} // closed when stopped and open is 0

	lifetime context.Context //nolint:containedctx // ended by Cut; streams end with it
	cut      context.CancelFunc
}

type unary struct {
	handler grpc.MethodHandler
	service any
}

type stream struct {
	handler grpc.StreamHandler
	service any
}

// NewServer returns a server without services.
func NewServer(boundary Boundary) *Server {
	s := &Server{boundary: boundary, unary: map[string]unary{}, streams: map[string]stream{}, ended: make(chan struct{})}
	s.lifetime, s.cut = context.WithCancel(context.Background())
	return s
}

// Add registers a service. It must not be called after the first call.
func (s *Server) Add(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		s.unary["/"+desc.ServiceName+"/"+m.MethodName] = unary{m.Handler, service}
	}
	for _, m := range desc.Streams {
		s.streams["/"+desc.ServiceName+"/"+m.StreamName] = stream{m.Handler, service}
	}
}

// Stop makes new calls fail with UNAVAILABLE. The channel is closed when the open calls have ended.
func (s *Server) Stop() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		s.checkEnded()
	}
	return s.ended
}

// Cut ends the contexts of the open calls.
func (s *Server) Cut() { s.cut() }

// begin reports whether a call may begin. Each true needs an end.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.open++
	return true
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.checkEnded()
}

// checkEnded closes ended once the server is stopped and idle.
func (s *Server) checkEnded() {
	if s.stopped && s.open == 0 {
		close(s.ended)
	}
}

// Invoke makes a unary call. The error is a gRPC status.
func (s *Server) Invoke(ctx context.Context, method string, request, reply any) error {
	m, ok := s.unary[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if !s.begin() {
		return errStopped()
	}
	defer s.end()
	ctx, cancel := s.handlerContext(ctx)
	defer cancel()
	answer, err := s.call(ctx, m, method, request.(proto.Message))
	if err != nil {
		return err
	}
	to := reply.(proto.Message)
	proto.Reset(to)
	proto.Merge(to, answer.(proto.Message))
	return nil
}

func (s *Server) call(ctx context.Context, m unary, method string, request proto.Message) (answer any, err error) {
	defer s.boundary(ctx, method, &err)
	return m.handler(m.service, ctx, func(to any) error {
		proto.Merge(to.(proto.Message), request)
		return nil
	}, nil)
}

func errStopped() error { return status.Error(codes.Unavailable, "the server has stopped") }

// handlerContext returns a handler's context: the caller's without its values. It also ends with the server and
// with the call.
func (s *Server) handlerContext(ctx context.Context) (context.Context, context.CancelFunc) {
	span := trace.SpanContextFromContext(ctx)
	ctx = valueless{ctx}
	if span.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, span)
	}
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(s.lifetime, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// valueless hides the values of a context.
type valueless struct {
	parent context.Context //nolint:containedctx // it is one
}

func (v valueless) Deadline() (time.Time, bool) { return v.parent.Deadline() }
func (v valueless) Done() <-chan struct{}       { return v.parent.Done() }
func (v valueless) Err() error                  { return v.parent.Err() }
func (v valueless) Value(any) any               { return nil }

// AfterFunc saves contexts derived from v a goroutine each: package context looks for this method.
func (v valueless) AfterFunc(f func()) func() bool { return context.AfterFunc(v.parent, f) }

// move moves the content of from to to. From must not be used afterwards, because both share it.
func move(to, from proto.Message) {
	proto.Reset(to)
	target := to.ProtoReflect()
	from.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		target.Set(field, value)
		return true
	})
	target.SetUnknown(from.ProtoReflect().GetUnknown())
}
