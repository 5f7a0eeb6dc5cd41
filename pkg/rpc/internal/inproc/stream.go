package inproc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// streamBuffer is the number of pending messages per direction before a sender waits. It saves a goroutine
// switch per message.
const streamBuffer = 8

// NewStream begins a streaming call and its handler. Errors are gRPC statuses. The call has ended when RecvMsg
// has returned an error, or when ctx has ended.
func (s *Server) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string) (grpc.ClientStream, error) {
	m, ok := s.streams[method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if !s.begin() {
		return nil, errStopped()
	}
	p := &path{
		requests: make(chan proto.Message, streamBuffer), answers: make(chan proto.Message, streamBuffer),
		closed: make(chan struct{}), done: make(chan struct{}),
	}
	handlerCtx, cancel := s.handlerContext(ctx)
	go func() { // Stop waits for it
		defer s.end()
		defer cancel()
		p.err = s.handle(handlerCtx, m, method, p)
		close(p.done)
	}()
	return &clientStream{path: p, ctx: ctx, unary: !desc.ServerStreams}, nil
}

func (s *Server) handle(ctx context.Context, m stream, method string, p *path) (err error) {
	defer s.boundary(ctx, method, &err)
	return m.handler(m.service, &serverStream{path: p, ctx: ctx})
}

// path is the state shared by both sides of a stream.
type path struct {
	requests  chan proto.Message
	answers   chan proto.Message
	closeOnce sync.Once
	closed    chan struct{} // the client has closed its side
	done      chan struct{} // the handler has returned
	err       error         // the handler's result, once done
}

// clientStream is the caller's side.
type clientStream struct {
	*path
	ctx   context.Context //nolint:containedctx // a stream is one call
	unary bool            // the handler answers once
}

func (c *clientStream) Context() context.Context     { return c.ctx }
func (c *clientStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (c *clientStream) Trailer() metadata.MD         { return nil }

func (c *clientStream) CloseSend() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

// SendMsg returns io.EOF after the handler has returned. RecvMsg returns the reason.
func (c *clientStream) SendMsg(m any) error {
	select {
	case <-c.done:
		return io.EOF
	default:
	}
	select {
	case c.requests <- proto.Clone(m.(proto.Message)):
		return nil
	case <-c.done:
		return io.EOF
	case <-c.ctx.Done():
		return status.FromContextError(c.ctx.Err()).Err()
	}
}

// RecvMsg returns all answers and then the end.
func (c *clientStream) RecvMsg(m any) error {
	if err := c.receive(m); err != nil || !c.unary {
		return err
	}
	// A single answer counts only if the handler ended without an error.
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
		return status.FromContextError(c.ctx.Err()).Err()
	}
}

func (c *clientStream) receive(m any) error {
	select {
	case answer := <-c.answers:
		move(m.(proto.Message), answer)
		return nil
	case <-c.ctx.Done():
		return status.FromContextError(c.ctx.Err()).Err()
	case <-c.done:
	}
	select {
	case answer := <-c.answers: // sent before the end
		move(m.(proto.Message), answer)
		return nil
	default:
	}
	if c.err != nil {
		return c.err
	}
	return io.EOF
}

// serverStream is the handler's side.
type serverStream struct {
	*path
	ctx context.Context //nolint:containedctx // a stream is one call
}

var errNoMetadata = errors.New("there is no metadata within a process")

func (s *serverStream) Context() context.Context     { return s.ctx }
func (s *serverStream) SetHeader(metadata.MD) error  { return errNoMetadata }
func (s *serverStream) SendHeader(metadata.MD) error { return nil } // callers that wait for headers already have the stream
func (s *serverStream) SetTrailer(metadata.MD)       {}

func (s *serverStream) SendMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	select {
	case s.answers <- proto.Clone(m.(proto.Message)):
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// RecvMsg returns the client's messages and then io.EOF.
func (s *serverStream) RecvMsg(m any) error {
	select {
	case request := <-s.requests:
		move(m.(proto.Message), request)
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	case <-s.closed:
	}
	select {
	case request := <-s.requests:
		move(m.(proto.Message), request)
		return nil
	default:
		return io.EOF
	}
}
