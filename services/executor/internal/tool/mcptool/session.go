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
)

// maxUnanswered is how many calls in a row may have no answer in their time before the
// server is asked whether it is there.
const maxUnanswered = 3

var (
	errLate      = errors.New("it did not answer in time")
	errClosed    = errors.New("it was closed")
	errDeaf      = errors.New("it takes no more messages")
	errForgotten = errors.New("it does not know the session any more")
)

// session is one connection to a server.
type session struct {
	client *mcp.ClientSession
	names  []string                // of all tools of the server, when it was opened
	life   context.Context         //nolint:containedctx // it ends with the session
	end    context.CancelCauseFunc // of life; closes the connection
	lost   chan struct{}           // closed when it is not the server's any more
	once   sync.Once
	stop   func()

	unanswered atomic.Int64 // calls in a row
	probing    atomic.Bool
}

// wait waits for the end of the session.
func (s *session) wait() { _ = s.client.Wait() } // how it ended was logged where it matters

// close ends the session. It may be called many times; all wait for the end.
func (s *session) close() { s.once.Do(s.stop) }

// cause says why this side has ended the session. It is nil while the session goes on, and
// for a session that has ended by itself: close cancels life without a reason then. Calls
// fail before or after that, and their own errors say why.
func (s *session) cause() error {
	if cause := context.Cause(s.life); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// probe ends a session whose server answers neither calls nor a ping. It is to be called
// for each call that has had no answer in its time.
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
	s.unanswered.Store(0) // it does not know what a ping is, perhaps, but it is there
}

// open makes a session and lists the tools of the server.
func (s *Server) open(life context.Context) (*session, []agent.Tool, error) {
	life, end := context.WithCancelCause(life)
	limit := time.AfterFunc(s.connectTimeout(), func() { end(errLate) })
	defer limit.Stop()
	s.mu.Lock()
	s.calls++
	number := s.calls
	s.inFlight[number] = func() { end(errClosed) } // Close ends an attempt
	closed, first := s.closed, s.tools == nil
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
		err = s.unavailable(cmp.Or(context.Cause(life), err))
		end(nil)
		return nil, nil, err
	}
	// A tool that cannot be used is a mistake when agents are loaded. Later it must not
	// take the others with it.
	tools, err := s.toolsOf(life, session, first)
	if !limit.Stop() || err != nil && session.cause() != nil {
		err = s.unavailable(cmp.Or(session.cause(), errLate))
	}
	if err != nil {
		session.close()
		return nil, nil, err
	}
	return session, tools, nil
}

// dial connects and greets. The end of life closes the connection.
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
	// A server that does not answer would not answer that it need not, either. All who
	// close the connection wait for its end, so nothing has to wait for this.
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
		return nil, err
	}
	return &session{client: connected, life: life, end: end, lost: make(chan struct{}), stop: func() {
		// The order matters: a session waits for the calls in flight, which end with the
		// connection, and the connection says good-bye.
		transport.close()
		_ = connected.Close() // the connection is closed already
		stop()
		end(nil)
	}}, nil
}

// relist asks for the tools to be listed again.
func (s *Server) relist() {
	select {
	case s.listed <- struct{}{}:
	default: // it was asked for already
	}
}

// transport keeps the connection that it has made, since a client that fails to greet
// may leave it open.
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
		conn = noted{conn}
	}
	return conn, err
}

func (t *transport) close() {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nothing is lost with it
	}
	if t.child != nil {
		_ = t.child.Close() // gives nil
	}
}

// transport is how the server is reached. It fails a session that breaks its bounds.
func (s *Server) transport(fail context.CancelCauseFunc) (*transport, error) {
	if len(s.config.Command) > 0 {
		child, err := startChild(s.config.Command, s.env, s.config.Dir, s.log)
		if err != nil {
			return nil, err
		}
		input := &watched{WriteCloser: child, limit: s.connectTimeout(), fail: fail}
		return &transport{Transport: &mcp.IOTransport{Reader: newFrames(child, fail), Writer: input}, child: child}, nil
	}
	client := s.peers.Allowed.Hosts.Client(nil)
	client.Transport = bounded{headers: s.headers, fail: fail, next: client.Transport}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("an MCP server must not redirect") // the headers would go along
	}
	return &transport{Transport: &mcp.StreamableClientTransport{Endpoint: s.config.URL, HTTPClient: client}}, nil
}
