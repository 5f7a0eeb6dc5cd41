package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast-run/holdfast/pkg/rpc/internal/inproc"
	"github.com/holdfast-run/holdfast/pkg/rpc/internal/pipe"
)

// DefaultMaxMessageBytes is the default limit on messages of servers and clients. A session with a long
// transcript travels in one message.
const DefaultMaxMessageBytes = 16 << 20

// Keepalive detects a silently lost connection within about half a minute, which bounds how long a dead stream
// looks alive. Servers permit pings twice as often as our clients send them, also without an open call.
const (
	clientPing   = 20 * time.Second
	serverPing   = 30 * time.Second
	pingTimeout  = 10 * time.Second
	minPingPause = 10 * time.Second
)

// ServerConfig configures a server. The zero value is an unauthenticated server on a plain connection, for
// loopback and memory.
type ServerConfig struct {
	Security        Security
	MaxMessageBytes int          // 0 is DefaultMaxMessageBytes
	Log             *slog.Logger // nil is slog.Default
	Untraced        []string     // as in ClientConfig
	Meter           metric.Meter // counts errors; nil is that of the process
}

// Server is a gRPC server. It also accepts calls over pipes (ClientConfig.Piped) and within its process
// (Process).
type Server struct {
	*grpc.Server
	pipes   *pipe.Server
	process *inproc.Server
	allowed permissions
}

// RegisterService adds a service. Its contract names the roles that may call its methods: see MethodRoles. Call it before
// Serve.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, service any) {
	s.allowed.add(desc.ServiceName)
	s.pipes.Add(desc, service)
	s.process.Add(desc, service)
	s.Server.RegisterService(desc, service)
}

// NewServer returns a server whose handlers return faults and plain errors; the package comment says which of
// them travel. It recovers panics, checks the caller and its role on every call except the health service's and those
// of the same process, creates spans for traced calls, and registers the gRPC health service as SERVING. It
// starts nothing.
//
// Invalid (TLS_INVALID, TOKEN_INVALID, TOKENS_INVALID): the files or the token of c.Security are unusable.
func NewServer(c ServerConfig) (*Server, error) {
	if err := c.Security.check(); err != nil {
		return nil, err
	}
	transport, err := c.Security.serverCredentials(orDefault(c.Log))
	if err != nil {
		return nil, err
	}
	who, err := newCallers(c.Security, orDefault(c.Log))
	if err != nil {
		return nil, err
	}
	guard := guard{boundary: newBoundary(c.Log, c.Meter), callers: who, allowed: permissions{}, takeTrace: !recordsSpans()}
	limit := messageLimit(c.MaxMessageBytes)
	server := &Server{
		pipes: pipe.NewServer(limit, guard.admit, guard.close), process: inproc.NewServer(guard.close), allowed: guard.allowed,
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(pipe.Codec()),
		grpc.Creds(transport),
		grpc.MaxRecvMsgSize(limit),
		grpc.MaxSendMsgSize(limit),
		grpc.ChainUnaryInterceptor(guard.unary),
		grpc.ChainStreamInterceptor(guard.stream),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPing, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingPause, PermitWithoutStream: true}),
	}
	if !guard.takeTrace {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithFilter(filters.All(filters.Not(filters.HealthCheck()), traced(c.Untraced))))))
	}
	server.Server = grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	server.pipes.Register(server.Server)
	return server, nil
}

// The windows limit unacknowledged bytes per stream and per connection. gRPC raises a stream's window while its
// receiver waits for a larger message. The windows are fixed, because dynamic ones buffer megabytes for a
// stalled reader.
const (
	streamWindow = 128 << 10
	connWindow   = 16 << 20
)

func messageLimit(bytes int) int {
	if bytes == 0 {
		return DefaultMaxMessageBytes
	}
	return bytes
}

func orDefault(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.Default()
	}
	return log
}

// guard runs before every handler. It checks the caller, and converts errors into statuses.
type guard struct {
	boundary boundary
	callers  callers
	allowed  permissions
	// takeTrace makes the guard adopt the caller's trace; otherwise the call's span does.
	takeTrace bool
}

func (g guard) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	if g.takeTrace {
		ctx = receiveTrace(ctx)
	}
	defer g.close(ctx, info.FullMethod, &err)
	ctx, err = g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, r)
}

func (g guard) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx := s.Context()
	if g.takeTrace {
		ctx = receiveTrace(ctx)
	}
	defer g.close(ctx, info.FullMethod, &err)
	ctx, err = g.admit(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	return next(server, &admittedStream{s, ctx, g, info.FullMethod})
}

// admittedStream is a stream with the context of its caller's role. It ends when the caller's token is revoked.
type admittedStream struct {
	grpc.ServerStream
	ctx    context.Context //nolint:containedctx // a stream is one call
	guard  guard
	method string
}

func (s *admittedStream) Context() context.Context { return s.ctx }

func (s *admittedStream) SendMsg(m any) error {
	if err := s.guard.readmit(s.ctx, s.method); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *admittedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.guard.readmit(s.ctx, s.method)
}

// close is deferred around a handler and determines the returned error.
func (g guard) close(ctx context.Context, method string, err *error) {
	if p := recover(); p != nil {
		g.boundary.panicked(ctx, method, p)
		*err = panicError{}
	}
	if *err == nil {
		return
	}
	g.boundary.report(ctx, method, *err)
	*err = StatusError(*err)
}

// admit checks the caller of a method, and returns the context with its role. Unauthenticated (BAD_TOKEN,
// ROLE_UNKNOWN), Denied (ROLE_REFUSED).
func (g guard) admit(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/") {
		return ctx, nil
	}
	role, err := g.callers.role(ctx)
	if err != nil {
		return nil, err
	}
	if method != pipe.FullName { // the calls of a pipe are checked one by one
		err = g.allowed.check(role, method)
	}
	return context.WithValue(ctx, roleKey{}, role), err
}

// readmit repeats admit for an open stream, if tokens can change.
func (g guard) readmit(ctx context.Context, method string) error {
	if g.callers.tokens == nil {
		return nil
	}
	_, err := g.admit(ctx, method)
	return err
}

// boundary counts errors, and logs those other than faults once.
type boundary struct {
	log    *slog.Logger
	errors metric.Int64Counter
}

// newBoundary returns a boundary. A nil meter stands for the meter of the process: see otel.SetMeterProvider.
func newBoundary(log *slog.Logger, meter metric.Meter) boundary {
	if meter == nil {
		meter = otel.Meter("holdfast.rpc")
	}
	counter, err := meter.Int64Counter("holdfast.rpc.errors", metric.WithUnit("{call}"),
		metric.WithDescription("calls that failed at a server, by rpc.method and reason: that of the fault, or the code"))
	if err != nil { // the name is valid
		counter = noop.Int64Counter{}
	}
	return boundary{log: orDefault(log), errors: counter}
}

// count counts an error by its reason.
func (b boundary) count(ctx context.Context, method string, a answer) {
	if a.code == codes.Canceled || !b.errors.Enabled(ctx) { // a caller that leaves is no error
		return
	}
	reason := a.code.String()
	if a.info != nil {
		reason = a.info.GetReason()
	}
	b.errors.Add(ctx, 1, metric.WithAttributes(
		attribute.String("rpc.method", strings.TrimPrefix(method, "/")), attribute.String("reason", reason)))
}

// report counts err, and logs it if the caller receives only INTERNAL.
func (b boundary) report(ctx context.Context, method string, err error) {
	visible := visibleError(err)
	b.count(ctx, method, visible)
	if _, logged := err.(panicError); logged || !visible.internal() { //nolint:errorlint // made by panicked, never wrapped
		return
	}
	b.log.ErrorContext(ctx, "call failed", "method", method, "error", err)
}

func (b boundary) panicked(ctx context.Context, method string, p any) {
	b.log.ErrorContext(ctx, "call panicked", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// panicError replaces a logged panic.
type panicError struct{}

func (panicError) Error() string { return "panic" }
