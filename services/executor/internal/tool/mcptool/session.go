package mcptool

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// session is one connection to a server.
type session struct {
	client *mcp.ClientSession
	names  []string // of all tools of the server, when it was opened
	once   sync.Once
	stop   func()
}

// wait waits for the end of the session.
func (s *session) wait() { _ = s.client.Wait() } // how it ended was logged where it matters

// close ends the session. It may be called many times; all wait for the end.
func (s *session) close() { s.once.Do(s.stop) }

// open makes a session and lists the tools of the server.
func (s *Server) open(life context.Context) (*session, []agent.Tool, error) {
	life, end := context.WithCancel(life)
	limit := time.AfterFunc(s.connectTimeout(), end)
	defer limit.Stop()
	s.mu.Lock()
	s.calls++
	number := s.calls
	s.inFlight[number] = end // Close ends an attempt
	closed := s.closed
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, number)
	}()
	if closed {
		end()
		return nil, nil, s.unavailable(errors.New("it was closed"))
	}
	session, err := s.dial(life, end)
	if err != nil {
		end()
		if life.Err() != nil {
			err = errors.Join(errors.New("it did not answer in time"), err)
		}
		return nil, nil, s.unavailable(err)
	}
	tools, err := s.toolsOf(life, session, true)
	if err == nil && !limit.Stop() {
		err = s.unavailable(errors.New("it did not answer in time"))
	}
	if err != nil {
		session.close()
		return nil, nil, err
	}
	return session, tools, nil
}

// dial connects and greets. What it has begun it ends, where it fails.
func (s *Server) dial(life context.Context, end func()) (*session, error) {
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "holdfast", Version: "1"}, &mcp.ClientOptions{
		Logger:                 s.log,
		Capabilities:           &mcp.ClientCapabilities{}, // no roots; without handlers no sampling and no elicitation
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { s.relist() },
	})
	// A server that does not answer would not answer that it need not, either.
	stop := context.AfterFunc(life, transport.close)
	connected, err := client.Connect(life, transport, nil)
	if !stop() && err == nil {
		err = life.Err()
		_ = connected.Close() // the connection is closed already
	}
	if err != nil {
		end()
		transport.close()
		return nil, err
	}
	return &session{client: connected, stop: func() {
		// The order matters: a session waits for the calls in flight, which end with the
		// connection, and the connection says good-bye.
		transport.close()
		_ = connected.Close() // the connection is closed already
		end()
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

func (s *Server) transport() (*transport, error) {
	if len(s.config.Command) > 0 {
		child, err := startChild(s.config.Command, s.env, s.config.Dir, s.log)
		if err != nil {
			return nil, err
		}
		return &transport{Transport: &mcp.IOTransport{Reader: &lines{ReadCloser: child}, Writer: child}, child: child}, nil
	}
	client := s.peers.Allowed.Hosts.Client(nil)
	client.Transport = bounded{headers: s.headers, next: client.Transport}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("an MCP server must not redirect") // the headers would go along
	}
	return &transport{Transport: &mcp.StreamableClientTransport{Endpoint: s.config.URL, HTTPClient: client}}, nil
}
