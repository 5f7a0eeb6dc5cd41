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

// reconnect restores a lost connection quickly, since restarted services are back within a second, and at least
// about once per second.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// ClientConfig configures a client. The zero value matches the zero ServerConfig.
type ClientConfig struct {
	Security        Security
	MaxMessageBytes int // 0 is DefaultMaxMessageBytes
	// Untraced are the full names of methods without spans and metrics, because their frequent calls would hide
	// everything else in a trace. Their calls still carry the caller's trace.
	Untraced []string
	// Piped are the full names of unary methods whose calls share one long-lived stream if the connection and
	// the server support it. They should be frequent and must be idempotent: a broken pipe fails calls that may
	// have been executed with Unavailable (UNAVAILABLE). Such calls have no span, carry a sampled trace, and
	// have neither metadata nor call options.
	Piped []string
}

// Dial returns a connection to the service at the address. It connects at the first call and reconnects after a
// loss. A call without a listener fails at once with Unavailable (UNAVAILABLE). Failed calls and streams return
// faults as described in the package comment.
//
// Invalid (TLS_INVALID, TOKEN_INVALID, ADDRESS_INVALID): the configuration is unusable. Over TLS the server's
// certificate must name the address's host.
func Dial(network Network, address string, c ClientConfig) (*grpc.ClientConn, error) {
	if err := c.Security.check(); err != nil {
		return nil, err
	}
	if address == "" {
		return nil, fault.New(fault.Invalid, "ADDRESS_INVALID", "the address to connect to is empty")
	}
	if process, ok := network.(*Process); ok && !outside(address) {
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

// dialProcess returns a connection that calls the handlers directly.
func dialProcess(network *Process, address string) (*grpc.ClientConn, error) {
	caller := processCaller{network, address}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(caller.unary), grpc.WithStreamInterceptor(caller.stream))
	if err != nil {
		return nil, fault.New(fault.Invalid, "ADDRESS_INVALID", "%q: %v", address, err)
	}
	return conn, nil
}

// caller adds the token to calls and converts errors into faults.
type caller struct {
	token string
	pipes *pipe.Client
	// passTrace makes the caller propagate the trace; otherwise the call's span does.
	passTrace bool
}

func (c caller) unary(
	ctx context.Context, method string, r, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if done, err := c.pipes.Call(ctx, conn, method, r, reply); done {
		return callError(ctx, err)
	}
	return callError(ctx, next(c.identify(ctx), method, r, reply, conn, options...))
}

func (c caller) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := next(c.identify(ctx), desc, conn, method, options...)
	if method == pipe.FullName {
		return s, err // the pipe's calls convert their own errors
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

// clientStream converts the end of a stream into a fault. It stores the call's ctx, because the stream's own
// Context must not be used before the first response.
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

// deadlineSlack is how much earlier than ours the server's deadline may expire: it starts from our remaining
// time, rounded, and may be read first.
const deadlineSlack = 10 * time.Millisecond

// callError is FaultError for a call with ctx: if ctx has ended and the status reflects that, the error is
// ctx's.
func callError(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	deadline, hasDeadline := ctx.Deadline()
	switch code := status.Code(err); {
	case ctx.Err() != nil && (code == codes.Canceled || code == codes.DeadlineExceeded):
		return ctx.Err()
	case code == codes.DeadlineExceeded && hasDeadline && time.Until(deadline) < deadlineSlack:
		return context.DeadlineExceeded
	}
	return FaultError(err)
}
