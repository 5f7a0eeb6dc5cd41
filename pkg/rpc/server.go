package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-run/holdfast/pkg/fault"
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
}

// Server is a gRPC server. It also accepts calls over pipes (ClientConfig.Piped) and within its process
// (Process).
type Server struct {
	*grpc.Server
	pipes   *pipe.Server
	process *inproc.Server
}

// RegisterService adds a service. Call it before Serve.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, service any) {
	s.pipes.Add(desc, service)
	s.process.Add(desc, service)
	s.Server.RegisterService(desc, service)
}

// NewServer returns a server whose handlers return faults and plain errors; the package comment says which of
// them travel. It recovers panics, checks the token on every call except the health service's, creates spans for
// traced calls, and registers the gRPC health service as SERVING. It starts nothing.
//
// Invalid (TLS_INVALID, TOKEN_INVALID): the files or the token of c.Security are unusable.
func NewServer(c ServerConfig) (*Server, error) {
	if err := c.Security.check(); err != nil {
		return nil, err
	}
	transport, err := c.Security.serverCredentials()
	if err != nil {
		return nil, err
	}
	guard := newGuard(c)
	limit := messageLimit(c.MaxMessageBytes)
	server := &Server{pipes: pipe.NewServer(limit, guard.close), process: inproc.NewServer(guard.close)}
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

// guard runs before every handler. It checks the token, and converts errors into statuses.
type guard struct {
	boundary boundary
	token    [sha256.Size]byte
	open     bool // no token is required
	// takeTrace makes the guard adopt the caller's trace; otherwise the call's span does.
	takeTrace bool
}

func newGuard(c ServerConfig) guard {
	return guard{
		boundary:  boundary{orDefault(c.Log)},
		token:     sha256.Sum256([]byte(c.Security.Token)),
		open:      c.Security.Token == "",
		takeTrace: !recordsSpans(),
	}
}

func (g guard) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	if g.takeTrace {
		ctx = receiveTrace(ctx)
	}
	defer g.close(ctx, info.FullMethod, &err)
	if err := g.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, r)
}

func (g guard) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	if g.takeTrace {
		s = tracedStream{s, receiveTrace(s.Context())}
	}
	defer g.close(s.Context(), info.FullMethod, &err)
	if err := g.admit(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(server, s)
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

// admit compares digests, so its duration reveals nothing about the token or its length.
func (g guard) admit(ctx context.Context, method string) error {
	if g.open || strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/") {
		return nil
	}
	for _, header := range metadata.ValueFromIncomingContext(ctx, tokenHeader) {
		token, bearer := strings.CutPrefix(header, tokenScheme)
		digest := sha256.Sum256([]byte(token))
		if bearer && subtle.ConstantTimeCompare(digest[:], g.token[:]) == 1 {
			return nil
		}
	}
	return fault.New(fault.Unauthenticated, "BAD_TOKEN", "the service token is missing or wrong")
}

// boundary logs errors that are not faults, once.
type boundary struct{ log *slog.Logger }

// report logs err if the caller receives only INTERNAL.
func (b boundary) report(ctx context.Context, method string, err error) {
	if _, logged := err.(panicError); logged || !visibleError(err).internal() { //nolint:errorlint // made by panicked, never wrapped
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
