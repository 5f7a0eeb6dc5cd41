// Package client calls Holdfast from Go. It has every method of agent.v1.AgentService, and Upload for large files.
//
//	holdfast := client.New(client.Config{URL: "https://agents.example.com", Key: key})
//	answer, err := holdfast.Ask(ctx, &agentv1.StartRequest{AgentType: "demo", Message: "What is 6 times 7?"})
//	fmt.Println(answer.Text)
//
// Ask waits for an answer. Follow shows a run as it happens, through broken connections and restarts of the gateway.
// Lists are iterators over all pages.
package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

// DefaultPatience is the default of Config.Patience.
const DefaultPatience = time.Minute

// The pauses between two attempts at a broken stream, and how long a quiet connection must last to count as
// healthy.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	steady       = 10 * time.Second
)

// Config configures a client.
type Config struct {
	// URL is the gateway's address, for example https://agents.example.com.
	URL string
	// Key is an API key; empty for a gateway without keys.
	Key string
	// HTTP is the HTTP client; nil means http.DefaultClient. Its timeout would cut streams.
	HTTP *http.Client
	// Patience is how long Follow retries without new frames, and how long reads, Ask and Wait retry during an
	// outage; 0 means DefaultPatience.
	Patience time.Duration
}

// Client calls one gateway. It is safe for concurrent use.
type Client struct {
	agents   agentv1connect.AgentServiceClient
	http     *http.Client
	url      string // without a slash at its end
	auth     bearer
	patience time.Duration
}

// New returns a client. It does not connect yet.
func New(c Config) *Client {
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	auth, url := bearer{key: c.Key}, strings.TrimSuffix(c.URL, "/")
	return &Client{
		agents: agentv1connect.NewAgentServiceClient(c.HTTP, url, connect.WithInterceptors(auth)),
		http:   c.HTTP, url: url, auth: auth, patience: c.Patience,
	}
}

// call calls a method. Its failures are faults.
func call[Q, A any](ctx context.Context, method func(context.Context, *Q) (*A, error), request *Q) (*A, error) {
	answer, err := method(ctx, request)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// callWithRetry is call for a request safe to repeat. It retries during an outage, for the client's patience after
// the first failure.
func callWithRetry[Q, A any](ctx context.Context, c *Client, method func(context.Context, *Q) (*A, error), request *Q) (*A, error) {
	var failed time.Time
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		answer, err := call(ctx, method, request)
		if err == nil || !isTransient(err) {
			return answer, err
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		if time.Since(failed) > c.patience || !wait(ctx, pause) {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// isTransient reports whether a retry may soon succeed.
func isTransient(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Internal:
		return true
	case fault.Exhausted:
		return fault.ReasonOf(err) != "TOO_MANY_WAITING" // it lasts as long as the live run
	default:
		return false
	}
}

// Start begins the next run of a session; see agent.v1.AgentService.Start. Failures are faults. With a request
// key it may be repeated after any failure; without one a repeated call may start a second run. OnBusy decides
// about a message to a busy session: Waiting in the response means that the new run is queued behind the live
// one, and Follow waits with it.
func (c *Client) Start(ctx context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	return call(ctx, c.agents.Start, r)
}

// Get returns the status of a session. NotFound (SESSION_NOT_FOUND).
func (c *Client) Get(ctx context.Context, session string) (*agentv1.GetResponse, error) {
	return callWithRetry(ctx, c, c.agents.Get, &agentv1.GetRequest{SessionId: session})
}

// Follow yields the frames of a run after the cursor, up to and including its terminal frame. Without a run id
// it follows the newest run at the time of the call. For a queued run it yields CaughtUp and then waits. It
// reconnects from the last frame after a break, so every frame arrives once. A Rewound frame voids the frames
// after its `at`.
//
// The sequence ends with an error if the gateway refuses, or if no frame arrives for the client's patience. The
// error is a fault if the gateway sent one.
func (c *Client) Follow(ctx context.Context, r *agentv1.StreamRequest) iter.Seq2[*agentv1.StreamResponse, error] {
	return func(yield func(*agentv1.StreamResponse, error) bool) {
		f := follower{client: c, run: r.GetRunId(), cursor: r.GetFromSequence(), yield: yield}
		last := time.Now() // time of the last frame
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			if f.attempt(ctx, r.GetSessionId()) {
				last, pause = time.Now(), firstPause
			}
			if f.done {
				return
			}
			if time.Since(last) > c.patience || !wait(ctx, pause) {
				yield(nil, errors.Join(f.err, ctx.Err()))
				return
			}
		}
	}
}

// follower is one Follow over all its connections.
type follower struct {
	client   *Client
	run      string // empty until known
	cursor   int64
	yield    func(*agentv1.StreamResponse, error) bool
	caughtUp bool  // CaughtUp has been yielded
	err      error // of the last attempt
	done     bool  // the consumer has everything or has stopped
}

// attempt reads one connection to its end and reports whether it was healthy: it delivered frames, or lasted for
// a while.
func (f *follower) attempt(ctx context.Context, session string) bool {
	if f.run == "" && !f.newestRun(ctx, session) {
		return false
	}
	stream, err := f.client.agents.Stream(ctx, &agentv1.StreamRequest{
		SessionId: session, RunId: f.run, FromSequence: f.cursor,
	})
	if err != nil {
		f.fail(err)
		return false
	}
	defer func() { _ = stream.Close() }()
	begin, before, open := time.Now(), f.cursor, false
	for stream.Receive() {
		if f.yieldFrame(stream.Msg()); f.done {
			return true
		}
		open = true
	}
	if err = stream.Err(); err == nil {
		err = connect.NewError(connect.CodeUnavailable, errors.New("the stream ended without a terminal frame"))
	}
	f.fail(err)
	return f.cursor > before || open && time.Since(begin) > steady
}

// yieldFrame yields a frame, except a repeated CaughtUp.
func (f *follower) yieldFrame(frame *agentv1.StreamResponse) {
	f.cursor = max(f.cursor, sequence(frame))
	if frame.GetCaughtUp() != nil {
		if f.caughtUp {
			return
		}
		f.caughtUp = true
	}
	f.done = !f.yield(frame, nil) || terminal(frame)
}

// newestRun pins the run, so a reconnect does not switch to the next run.
func (f *follower) newestRun(ctx context.Context, session string) bool {
	answer, err := f.client.agents.Get(ctx, &agentv1.GetRequest{SessionId: session})
	if err != nil {
		f.fail(err)
		return false
	}
	f.run = answer.GetRunId()
	return true
}

// fail records the error of an attempt, and stops after a permanent one.
func (f *follower) fail(err error) {
	if f.err = rpc.FromConnect(err); !isTransient(f.err) {
		f.done = true
		f.yield(nil, f.err)
	}
}

func sequence(frame *agentv1.StreamResponse) int64 {
	switch f := frame.GetFrame().(type) {
	case *agentv1.StreamResponse_Chunk:
		return f.Chunk.GetSequence()
	case *agentv1.StreamResponse_Rewound:
		return f.Rewound.GetSequence()
	case *agentv1.StreamResponse_CaughtUp:
		return f.CaughtUp.GetSequence()
	}
	return 0
}

func terminal(frame *agentv1.StreamResponse) bool {
	switch frame.GetFrame().(type) {
	case *agentv1.StreamResponse_End, *agentv1.StreamResponse_Fail, *agentv1.StreamResponse_Truncated:
		return true
	}
	return false
}

// wait reports whether the pause ended before ctx.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// bearer adds the API key to every call.
type bearer struct{ key string }

func (b bearer) authorize(h http.Header) {
	if b.key != "" {
		h.Set("Authorization", "Bearer "+b.key)
	}
}

// WrapUnary implements connect.Interceptor.
func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		b.authorize(r.Header())
		return next(ctx, r)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		b.authorize(conn.RequestHeader())
		return conn
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
