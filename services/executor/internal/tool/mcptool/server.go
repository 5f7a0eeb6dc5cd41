package mcptool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The pauses between attempts to connect.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

const defaultConnectTimeout = 30 * time.Second

// maxCalls limits the calls of one server in flight.
const maxCalls = 512

// listPause is the shortest interval between two listings of the tools.
const listPause = time.Second

// Peers are the dependencies of servers.
type Peers struct {
	Allowed Allowed
	// Lookup resolves secrets and environment variables by name. Its errors say what to change. Nil resolves none.
	Lookup func(name string) (string, error)
	// Own returns PATH and HOME of the process, which every child receives regardless of Lookup. Nil returns
	// none.
	Own func(name string) (string, bool)
	Log *slog.Logger
	Now func() time.Time
}

// Server is an MCP server with its tools. Safe for concurrent use. Close must be called.
type Server struct {
	config  Config
	peers   Peers
	log     *slog.Logger
	env     []string
	headers map[string]string

	work    sync.WaitGroup
	running atomic.Int64 // calls of tools
	closing chan struct{}
	listed  chan struct{} // holds a token while a listing is due
	failed  chan struct{} // holds a token after a failed attempt

	mu       sync.Mutex
	session  *session      // nil without one
	attempt  chan struct{} // closed when the attempt to connect ends; nil without one
	failure  error         // of the last attempt
	output   string        // of the child of the last attempt, if it failed
	pause    time.Duration // after the last attempt; 0 after a success
	retryAt  time.Time
	tools    []agent.Tool
	unusable map[string]string // reasons by tool, from the last listing
	changed  chan struct{}
	inFlight map[int]context.CancelFunc
	calls    int
	closed   bool
}

// Open connects to a server and lists its tools. Invalid (MCP_INVALID) for a configuration that Check refuses or
// that names an unset variable. A server that cannot be reached has Problems, and is tried again until it answers.
func Open(ctx context.Context, c Config, p Peers) (*Server, error) {
	if err := c.Check(p.Allowed); err != nil {
		return nil, err
	}
	env, err := expand(c.Env, p.Lookup)
	if err != nil {
		return nil, fault.New(fault.Invalid, "MCP_INVALID", "env: the MCP server %q: %v", c.Name, err)
	}
	headers, err := expand(c.Headers, p.Lookup)
	if err != nil {
		return nil, fault.New(fault.Invalid, "MCP_INVALID", "headers: the MCP server %q: %v", c.Name, err)
	}
	s := &Server{
		config: c, peers: p, log: p.Log.With("mcp_server", c.Name), env: environment(env, p.Own), headers: headers,
		closing:  make(chan struct{}),
		listed:   make(chan struct{}, 1), // one token is enough
		failed:   make(chan struct{}, 1), // likewise
		changed:  make(chan struct{}),
		inFlight: map[int]context.CancelFunc{},
	}
	if _, err := s.ensureSession(ctx); ctx.Err() != nil {
		_ = s.Close() // always nil
		return nil, s.unavailable(err)
	}
	s.work.Go(s.relistLoop)
	s.work.Go(s.reconnectLoop)
	return s, nil
}

// Problem is a defect of a server or of a tool.
type Problem struct {
	Tool string // the server's own name; empty for the server
	Text string
	// Output is the end of the standard error of a child that failed to start. It may have secrets.
	Output string
}

// Problems returns the defects of the server: the failure of the last attempt to connect, and the unusable tools, by
// name.
func (s *Server) Problems() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var problems []Problem
	if s.pause > 0 && s.failure != nil {
		problems = append(problems, Problem{Text: detail(s.failure), Output: s.output})
	}
	for _, name := range slices.Sorted(maps.Keys(s.unusable)) {
		problems = append(problems, Problem{Tool: name, Text: s.unusable[name]})
	}
	return problems
}

// reconnectLoop connects again after each failed attempt, at the end of its pause.
func (s *Server) reconnectLoop() {
	for {
		select {
		case <-s.closing:
			return
		case <-s.failed:
		}
		s.mu.Lock()
		pause := s.retryAt.Sub(s.peers.Now())
		s.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-s.closing:
			timer.Stop()
			return
		case <-timer.C:
		}
		ctx, done, err := s.begin(context.Background())
		if err != nil {
			return
		}
		_, _ = s.ensureSession(ctx) // a failure brings the next token
		done()
	}
}

// Name returns the name in the configuration.
func (s *Server) Name() string { return s.config.Name }

// Tools returns the current tools; nil until the server has been reached. A tool removed by the server fails when called.
func (s *Server) Tools() []agent.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools)
}

// Changed is closed when Tools returns something else than before this call.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Close cuts the calls in flight, ends the session and the child, and waits for everything: some seconds at
// most. It returns nil.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	session := s.session
	s.session = nil
	for _, cancel := range s.inFlight {
		cancel()
	}
	s.mu.Unlock()
	if session != nil {
		session.close()
	}
	s.work.Wait()
	return nil
}

// ensureSession returns the session, or creates one. Calls share the attempt to create it, and wait for the end of
// the previous session and for the pause after it. It fails at once while the pause after a failed attempt
// lasts.
func (s *Server) ensureSession(ctx context.Context) (*session, error) {
	for {
		session, wait, err := s.current(ctx)
		if session != nil || err != nil {
			return session, err
		}
		pause := time.NewTimer(wait.pause)
		select {
		case <-wait.until:
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// wait is an event to wait for: closed, or the end of the pause.
type wait struct {
	until <-chan struct{}
	pause time.Duration
}

// current returns the session, or the event to wait for.
func (s *Server) current(ctx context.Context) (*session, wait, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.peers.Now()
	switch {
	case s.closed:
		return nil, wait{}, s.unavailable(errClosed)
	case s.session != nil && s.session.cause() != nil:
		return nil, wait{s.session.lost, lastPause}, nil
	case s.session != nil:
		return s.session, wait{}, nil
	case s.attempt != nil:
		return nil, wait{s.attempt, lastPause}, nil
	case now.Before(s.retryAt) && s.pause == 0: // the session died soon after its start
		return nil, wait{nil, min(s.retryAt.Sub(now), firstPause)}, nil
	case now.Before(s.retryAt):
		if f, ok := fault.From(s.failure); ok {
			return nil, wait{}, f
		}
		return nil, wait{}, s.unavailable(s.failure)
	}
	done := make(chan struct{})
	s.attempt = done
	life := context.WithoutCancel(ctx) // other callers share the attempt
	s.work.Go(func() {
		session, tools, err := s.open(life)
		s.finishAttempt(session, tools, err)
		close(done)
	})
	return nil, wait{done, lastPause}, nil
}

// finishAttempt records the result of an attempt to connect.
func (s *Server) finishAttempt(session *session, tools []agent.Tool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = nil
	if err == nil && s.closed {
		err = errClosed
		s.work.Go(session.close)
	}
	if err != nil {
		if s.pause == 0 { // the first failure of an outage
			s.log.Warn("MCP server cannot be reached, and is tried again", "error", err, "stderr", s.output)
		}
		s.failure = err
		s.pause = min(cmp.Or(s.pause*2, firstPause), lastPause)
		s.retryAt = s.peers.Now().Add(s.pause)
		select {
		case s.failed <- struct{}{}:
		default: // there is a token already
		}
		return
	}
	if s.pause > 0 {
		s.log.Info("MCP server is reached again")
	}
	s.failure, s.pause, s.output = nil, 0, ""
	s.retryAt = s.peers.Now().Add(firstPause) // delays the restart of a session that dies at once
	s.session = session
	s.set(tools)
	s.work.Go(func() {
		session.wait()
		s.dropSession(session)
	})
}

// dropSession removes an ended session.
func (s *Server) dropSession(session *session) {
	s.mu.Lock()
	ended := s.session == session
	if ended {
		s.session = nil
		s.failure = errors.New("its session has ended")
		if cause := session.cause(); cause != nil {
			s.failure = fmt.Errorf("its session has ended: %w", cause)
		}
	}
	s.mu.Unlock()
	close(session.lost)
	cause := session.cause()
	session.close() // then the standard error is complete
	if ended {
		s.log.Warn("MCP session has ended", "cause", cause, "stderr", session.stderr())
	}
}

// set replaces the tools. The caller holds mu.
func (s *Server) set(tools []agent.Tool) {
	if s.tools != nil && sameTools(s.tools, tools) {
		return
	}
	if s.tools != nil {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.tools = tools
}

// sameTools compares the comparable fields of tools.
func sameTools(a, b []agent.Tool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		x.Execute, y.Execute = nil, nil
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// relistLoop lists the tools again when the server reports a change. Reports during the pause are remembered.
func (s *Server) relistLoop() {
	for {
		select {
		case <-s.closing:
			return
		case <-s.listed:
		}
		if err := s.list(); err != nil {
			s.log.Warn("MCP tools cannot be listed; the former ones stay", "error", err)
		}
		pause := time.NewTimer(listPause)
		select {
		case <-s.closing:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

func (s *Server) list() error {
	ctx, done, err := s.begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, s.connectTimeout())
	defer cancel()
	session, err := s.ensureSession(ctx)
	if err != nil {
		return err
	}
	tools, err := s.toolsOf(ctx, session)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(tools)
	return nil
}

// begin returns a context that also ends with the server. Close waits for done.
func (s *Server) begin(ctx context.Context) (inner context.Context, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ctx, nil, s.unavailable(errClosed)
	}
	inner, cancel := context.WithCancel(ctx)
	s.calls++
	number := s.calls
	s.inFlight[number] = cancel
	s.work.Add(1)
	return inner, func() {
		defer s.work.Done()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, number)
	}, nil
}

func (s *Server) connectTimeout() time.Duration {
	return cmp.Or(s.config.ConnectTimeout, defaultConnectTimeout)
}

func (s *Server) unavailable(err error) *fault.Fault {
	return fault.New(fault.Unavailable, "MCP_UNAVAILABLE", "the MCP server %q is not available: %v", s.config.Name, err)
}

func (s *Server) invalid(format string, args ...any) *fault.Fault {
	return fault.New(fault.Invalid, "MCP_INVALID", "the MCP server %q: %s", s.config.Name, fmt.Sprintf(format, args...))
}
