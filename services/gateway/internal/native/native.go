// Package native serves the native stream of a session: its frames are chunk, end, fail, rewound
// and caught-up. A response without end or fail is a drop, even if closed cleanly: over HTTP/1.0 a
// broken connection looks like the end of the body.
package native

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
)

// Events serves the native stream as server-sent events. Their id is the sequence.
type Events struct {
	Follower *follow.Follower
	Streams  *httpapi.Streams
	Padding  int           // of comments, in bytes, behind a proxy
	Timeout  time.Duration // of one write
	Log      *slog.Logger
}

// Serve is GET /sse?sessionId=…&fromSequence=…&runId=…. Over HTTP/1 it returns when the response
// has begun, unless the run has ended. The stream then continues without the server: see sse.Hijacked.
func (n *Events) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	request, err := ParseRequest(r, tenant)
	if err != nil {
		return err
	}
	// The stream outlives the request. It continues its trace, on behalf of its caller.
	caller, _ := auth.From(r.Context())
	own := auth.With(trace.ContextWithSpanContext(context.Background(), trace.SpanContextFromContext(r.Context())), caller)
	ctx, release, err := n.Streams.Open(own, httpapi.ProtocolSSE)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	end := sync.OnceFunc(func() {
		cancel()
		release()
	})
	taken := false
	defer func() {
		if !taken { // also after a panic
			end()
		}
	}()
	leaves := context.AfterFunc(r.Context(), cancel)
	followed, err := n.Follower.Begin(ctx, request) //nolint:contextcheck // see above
	if err != nil {
		return httpapi.CauseOf(ctx, err) //nolint:contextcheck // see above
	}
	switch {
	case followed.Ends(): // an answer like any other, and the connection serves the next request
		out := sse.NewCompleteWriter(w, r, n.Padding)
		out.Begin()
		return n.cutError(ctx, request, followed.To(ctx, sink{out})) //nolint:contextcheck // it ends with the request's as well
	case !sse.CanHijack(r):
		out := sse.NewWriter(w, r, n.Padding)
		if err := n.begin(out); err != nil {
			return err
		}
		return n.cutError(ctx, request, followed.To(ctx, sink{out})) //nolint:contextcheck // it ends with the request's as well
	}
	out, err := sse.Hijack(w, r, n.Padding, n.Timeout)
	if err != nil {
		return err
	}
	leaves()
	taken = true
	s := &stream{Events: n, ctx: ctx, request: request, out: out, followed: followed, end: end}
	s.watching.Go(func() {
		s.out.Watch()
		cancel() // the client has disconnected
	})
	go s.run() // Streams waits for it
	return nil
}

// stream is a response on its own connection. Its fields are here and not on the stack of its
// goroutine, which mostly waits: stacks grow by powers of two.
type stream struct {
	*Events
	ctx      context.Context //nolint:containedctx // the stream's life
	request  follow.Request
	out      *sse.Hijacked
	followed *follow.Follow
	watching sync.WaitGroup
	end      func()
}

func (s *stream) run() {
	defer s.close()
	stop := context.AfterFunc(s.ctx, s.out.Close) // also during a blocked write
	if s.begin(s.out.Writer) == nil && s.cutError(s.ctx, s.request, s.followed.To(s.ctx, sink{s.out.Writer})) == nil && stop() {
		s.out.End(s.ctx)
	}
}

// close ends the stream, also after a panic: the server recovers only from panics of its handlers.
func (s *stream) close() {
	if p := recover(); p != nil {
		s.Log.ErrorContext(s.ctx, "stream panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
	s.out.Close()
	s.watching.Wait()
	s.end()
}

func (n *Events) begin(out *sse.Writer) error {
	out.Begin()
	if err := out.Flush(); err != nil {
		return httpapi.ErrCut
	}
	return nil
}

// cutError converts the error of a follow for the server. ErrCut: the stream did not end.
func (n *Events) cutError(ctx context.Context, r follow.Request, err error) error {
	if err == nil {
		return nil
	}
	n.Log.DebugContext(ctx, "native stream cut", "session", r.SessionID, "run", r.RunID, "error", err)
	return httpapi.ErrCut
}

// ParseRequest parses a request for the native stream. Invalid (ID_INVALID, CURSOR_INVALID,
// PARAMETER_INVALID).
func ParseRequest(r *http.Request, tenant string) (follow.Request, error) {
	query := r.URL.Query()
	request := follow.Request{Tenant: tenant, SessionID: query.Get("sessionId"), RunID: query.Get("runId")}
	if err := httpapi.CheckID("sessionId", request.SessionID); err != nil {
		return request, err
	}
	if request.RunID != "" {
		if err := httpapi.CheckID("runId", request.RunID); err != nil {
			return request, err
		}
	}
	after, _, ok := sse.Cursor(r)
	if !ok {
		return request, fault.New(fault.Invalid, "CURSOR_INVALID", "Last-Event-ID and fromSequence take a sequence")
	}
	family, err := familyParameter.Bool(r)
	request.After, request.OnlyRun, request.Family = after, request.RunID != "", request.RunID == "" && family
	return request, err
}

type sink struct{ out *sse.Writer }

func (s sink) Flush() error     { return s.out.Flush() }
func (s sink) Heartbeat() error { return s.out.Beat() }

func (s sink) Frame(f *frame.Frame) error {
	s.out.Add(f.Event())
	return nil
}
