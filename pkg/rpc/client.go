package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc/internal/pipe"
)

const (
	tokenHeader = "authorization"
	tokenScheme = "Bearer "
)

// reconnect is how a lost connection is tried again: soon, since services that
// restart are back within a second, and never less than about once a second.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// ClientConfig configures a client. The zero value fits the zero ServerConfig.
type ClientConfig struct {
	Security        Security
	MaxMessageBytes int // 0 is DefaultMaxMessageBytes
	// Untraced are the full names of methods whose calls get no span, and are not
	// measured: those that come so often, or so regularly, that a trace would show
	// nothing else. They are in their caller's trace nevertheless.
	Untraced []string
	// Piped are the full names of unary methods whose calls share one long-lived stream
	// while the connection and the server allow it: those that come often, and that
	// are idempotent, since a pipe that breaks says Unavailable (UNAVAILABLE) for calls
	// that may have been done. Such calls get no span, are in their caller's trace where it is sampled,
	// and carry neither metadata nor call options.
	Piped []string
}

// Dial returns a connection to the service at the address. It connects at the
// first call, and again whenever the connection is lost; a call while nobody
// listens fails at once with Unavailable (UNAVAILABLE). Failed calls and streams
// return faults, as the package comment says.
//
// Invalid (TLS_INVALID, TOKEN_INVALID, ADDRESS_INVALID): the configuration cannot
// be used. Over TLS the server's certificate has to name the address's host.
func Dial(network Network, address string, c ClientConfig) (*grpc.ClientConn, error) {
	if err := c.Security.check(); err != nil {
		return nil, err
	}
	if address == "" {
		return nil, fault.New(fault.Invalid, "ADDRESS_INVALID", "the address to connect to is empty")
	}
	if process, ok := network.(*Process); ok {
		return dialProcess(process, address)
	}
	transport, err := c.Security.clientCredentials()
	if err != nil {
		return nil, err
	}
	limit := messageLimit(c.MaxMessageBytes)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx, address) }
	caller := caller{token: c.Security.Token, pipes: pipe.NewClient(c.Piped), passTrace: !recordsSpans()}
	options := []grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit)),
		grpc.WithChainUnaryInterceptor(caller.unary),
		grpc.WithChainStreamInterceptor(caller.stream),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithConnectParams(reconnect),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: clientPing, Timeout: pingTimeout, PermitWithoutStream: true}),
	}
	if !caller.passTrace {
		options = append(options, grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithFilter(traced(c.Untraced)))))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "ADDRESS_INVALID", "%q: %v", address, err)
	}
	return conn, nil
}

// dialProcess returns a connection that never connects: its calls go to the handlers.
func dialProcess(network *Process, address string) (*grpc.ClientConn, error) {
	caller := processCaller{network, address}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(caller.unary), grpc.WithStreamInterceptor(caller.stream))
	if err != nil {
		return nil, fault.New(fault.Invalid, "ADDRESS_INVALID", "%q: %v", address, err)
	}
	return conn, nil
}

// caller adds the token to calls and turns what comes back into faults.
type caller struct {
	token string
	pipes *pipe.Client
	// passTrace is whether the caller passes the trace on, which otherwise the span of
	// the call does.
	passTrace bool
}

func (c caller) unary(ctx context.Context, method string, r, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if done, err := c.pipes.Call(ctx, conn, method, r, reply); done {
		return callError(ctx, err)
	}
	return callError(ctx, next(c.identify(ctx), method, r, reply, conn, options...))
}

func (c caller) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := next(c.identify(ctx), desc, conn, method, options...)
	if method == pipe.FullName {
		return s, err // the calls of the pipe make faults of their own errors
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	return &clientStream{ClientStream: s, ctx: ctx}, nil
}

func (c caller) identify(ctx context.Context) context.Context {
	if c.passTrace {
		ctx = sendTrace(ctx)
	}
	if c.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, tokenHeader, tokenScheme+c.token)
}

// clientStream makes faults of what ends a stream. It keeps the ctx of the
// call, since the stream's own Context may not be asked before the first answer.
type clientStream struct {
	grpc.ClientStream
	ctx context.Context //nolint:containedctx // a stream is one call
}

func (s *clientStream) SendMsg(m any) error { return callError(s.ctx, s.ClientStream.SendMsg(m)) }
func (s *clientStream) RecvMsg(m any) error { return callError(s.ctx, s.ClientStream.RecvMsg(m)) }
func (s *clientStream) CloseSend() error    { return callError(s.ctx, s.ClientStream.CloseSend()) }

func (s *clientStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	return header, callError(s.ctx, err)
}

// deadlineSlack is how much earlier than ours the server's clock may run out: it
// starts with the time that we had left, rounded, and may be read first.
const deadlineSlack = 10 * time.Millisecond

// callError is FaultError for a call with ctx: when ctx has ended and that is
// what the status says, the error is ctx's.
func callError(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	switch code := status.Code(err); {
	case ctx.Err() != nil && (code == codes.Canceled || code == codes.DeadlineExceeded):
		return ctx.Err()
	case code == codes.DeadlineExceeded && deadlineNear(ctx):
		return context.DeadlineExceeded
	}
	return FaultError(err)
}

func deadlineNear(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < deadlineSlack
}
