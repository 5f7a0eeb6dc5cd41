package mcptool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// maxUnanswered is the number of consecutive unanswered calls before the server is pinged.
const maxUnanswered = 3

var (
	errLate      = errors.New("it did not answer in time")
	errClosed    = errors.New("it was closed")
	errDeaf      = errors.New("it accepts no more messages")
	errForgotten = errors.New("it no longer knows the session")
)

// session is one connection to a server.
type session struct {
	client *mcp.ClientSession
	names  []string                // of all tools of the server at the start
	life   context.Context         //nolint:containedctx // it ends with the session
	end    context.CancelCauseFunc // ends life and closes the connection
	lost   chan struct{}           // closed when the server drops the session
	stderr func() string           // the last lines of a child's standard error
	once   sync.Once
	stop   func()

	unanswered atomic.Int64 // consecutive calls
	probing    atomic.Bool
}

// denialGrace is how long a call may still wait for the response to its request after its session has ended. A server that
// does not know the session says so to each call, and these can be made again.
const denialGrace = 2 * time.Second

// callTool calls a tool. The call ends soon after the session, even if the server has not begun to answer it.
func (s *session) callTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, func() { time.AfterFunc(denialGrace, cancel) })()
	return s.client.CallTool(ctx, params)
}

// wait waits for the end of the session.
func (s *session) wait() { _ = s.client.Wait() } // the reason is logged elsewhere

// close ends the session. It may be called repeatedly; every caller waits for the end.
func (s *session) close() { s.once.Do(s.stop) }

// cause returns why this side has ended the session. It is nil for a live session, and for a session that ended
// by itself: close then cancels life without a reason, and the calls' own errors say why.
func (s *session) cause() error {
	if cause := context.Cause(s.life); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// probe ends a session whose server answers neither calls nor a ping. Call it for each unanswered call.
func (s *session) probe(limit time.Duration) {
	if s.unanswered.Add(1) < maxUnanswered || !s.probing.CompareAndSwap(false, true) {
		return
	}
	defer s.probing.Store(false)
	ctx, cancel := context.WithTimeout(s.life, limit)
	defer cancel()
	err := s.client.Ping(ctx, nil)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.end(fmt.Errorf("it answered neither %d calls in a row nor a ping", s.unanswered.Load()))
		return
	}
	s.unanswered.Store(0) // it may not support ping, but it is alive
}

// open creates a session and lists the tools of the server.
func (s *Server) open(life context.Context) (*session, []agent.Tool, error) {
	life, end := context.WithCancelCause(life)
	limit := time.AfterFunc(s.connectTimeout(), func() { end(errLate) })
	defer limit.Stop()
	s.mu.Lock()
	s.calls++
	number := s.calls
	s.inFlight[number] = func() { end(errClosed) } // Close ends an attempt
	closed := s.closed
	first := s.tools == nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, number)
	}()
	if closed {
		end(nil)
		return nil, nil, s.unavailable(errClosed)
	}
	session, err := s.dial(life, end)
	if err != nil {
		err = s.startFailure(cmp.Or(context.Cause(life), err), err)
		end(nil)
		return nil, nil, err
	}
	tools, err := s.toolsOf(life, session)
	if err == nil && first {
		err = s.checkNames(session.names)
	}
	if !limit.Stop() || err != nil && session.cause() != nil {
		err = s.unavailable(cmp.Or(session.cause(), errLate))
	}
	if err != nil {
		session.close()
		return nil, nil, err
	}
	return session, tools, nil
}

// startFailure returns the fault of a start that failed. Agents and users may see it. The end of the child's standard
// error may have secrets, and is kept apart.
func (s *Server) startFailure(cause, failed error) *fault.Fault {
	output := ""
	if died, ok := errors.AsType[*diedError](failed); ok {
		output = died.stderr
	}
	s.mu.Lock()
	s.output = output
	s.mu.Unlock()
	return s.unavailable(cause)
}

// dial connects and initializes. The end of life closes the connection.
func (s *Server) dial(life context.Context, end context.CancelCauseFunc) (*session, error) {
	transport, err := s.transport(end)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "holdfast", Version: "1"}, &mcp.ClientOptions{
		Logger:                 s.log,
		Capabilities:           &mcp.ClientCapabilities{}, // no roots; without handlers no sampling and no elicitation
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { s.relist() },
	})
	// A server without answers would not answer a cancellation either. Everyone who closes the connection waits
	// for its end, so nothing needs to wait here.
	stop := context.AfterFunc(life, transport.close)
	connected, err := client.Connect(life, transport, nil)
	if err == nil && life.Err() != nil {
		err = context.Cause(life)
		transport.close()
		_ = connected.Close() // the connection is closed already
	}
	if err != nil {
		stop()
		transport.close()
		return nil, withStderr(err, transport.stderr())
	}
	return &session{client: connected, life: life, end: end, lost: make(chan struct{}), stderr: transport.stderr, stop: func() {
		// The order matters: a session waits for the calls in flight, which end with the connection, and the
		// connection sends the farewell.
		transport.close()
		_ = connected.Close() // the connection is closed already
		stop()
		end(nil)
	}}, nil
}

// relist requests another listing of the tools.
func (s *Server) relist() {
	select {
	case s.listed <- struct{}{}:
	default: // already requested
	}
}

// transport keeps its connection, because a client that fails to initialize may leave it open.
type transport struct {
	mcp.Transport
	mu    sync.Mutex
	child *child
	conn  mcp.Connection
}

func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conn = conn
	if t.child != nil && err == nil {
		conn = deliveryConnection{conn}
	}
	return conn, err
}

// stderr returns the last lines of the child's standard error; all of them after close.
func (t *transport) stderr() string {
	if t.child == nil {
		return ""
	}
	return t.child.stderr.last()
}

// diedError is the failure of a child to start, with the last lines of its standard error.
type diedError struct {
	cause  error
	stderr string
}

func withStderr(err error, stderr string) error {
	if stderr == "" {
		return err
	}
	return &diedError{err, stderr}
}

func (e *diedError) Error() string { return e.cause.Error() }

func (e *diedError) Unwrap() error { return e.cause }

func (t *transport) close() {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nothing is lost with it
	}
	if t.child != nil {
		_ = t.child.Close() // always nil
	}
}

// transport returns the transport to the server. It fails a session that exceeds its limits.
func (s *Server) transport(fail context.CancelCauseFunc) (*transport, error) {
	if len(s.config.Command) > 0 {
		child, err := startChild(s.config.Command, s.env, s.config.Dir, s.log)
		if err != nil {
			return nil, err
		}
		input := &timedWriter{WriteCloser: child, limit: s.connectTimeout(), fail: fail}
		return &transport{Transport: &mcp.IOTransport{Reader: newFrames(child, fail), Writer: input}, child: child}, nil
	}
	client := s.peers.Allowed.Hosts.Client(nil)
	client.Transport = limitedTransport{headers: s.headers, fail: fail, next: client.Transport}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("an MCP server must not redirect") // the headers would be sent along
	}
	return &transport{Transport: &mcp.StreamableClientTransport{Endpoint: s.config.URL, HTTPClient: client}}, nil
}
