// Package chat serves the AI SDK: POST /chat begins a run and streams it, GET
// /chat/{id}/stream takes up a stream that was lost. Both speak the UI message
// stream (package uistream).
//
// # What a client may rely on
//
//   - The run goes on whatever happens to the connection.
//   - A body that ends well is whole: it ends with [DONE], after a finish or an
//     error part. A stream that cannot be finished ends with a broken
//     connection, which clients take for a drop, and resume.
//   - The id of an event is the sequence of its chunk, on the last part of the
//     chunk. Who comes back with it (Last-Event-ID or fromSequence) gets what
//     follows; who comes without gets the message from its start, under the
//     same message id. When what the client has seen is void meanwhile, it gets
//     the message from its start as well: a second start part means to begin
//     the message anew.
//   - A message that waits for the live run is answered in its own stream, which
//     shows nothing before its run begins. The message of a run that continues
//     another is told whole, from the beginning of the first of its runs.
package chat

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
	"github.com/holdfast-run/holdfast/services/gateway/internal/turn"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Config are the chat routes' own settings.
type Config struct {
	ReplayWindow  time.Duration // for how long after its end a run that nobody saw end is told again
	DeliveredRuns int           // how many runs are remembered as seen to their end
	Padding       int           // of comments, in bytes, where a proxy stands between
	Major         uistream.Major
}

// Chat serves the routes. It may be used by many goroutines.
type Chat struct {
	config    Config
	limits    httpapi.Limits
	runs      statev1.RunServiceClient
	sessions  *conversation.Reader
	feed      *feed.Feed
	turns     *turn.Waiter
	streams   *httpapi.Streams
	policy    retry.Policy // for how long the state service may be away
	newID     func() string
	log       *slog.Logger
	delivered *delivered
}

// Parts is what a Chat is made of.
type Parts struct {
	Limits   httpapi.Limits
	Runs     statev1.RunServiceClient
	Sessions *conversation.Reader
	Feed     *feed.Feed
	Turns    *turn.Waiter
	Streams  *httpapi.Streams
	Policy   retry.Policy
	NewID    func() string
	Log      *slog.Logger
}

// New returns a Chat.
func New(c Config, p Parts) *Chat {
	return &Chat{
		config: c, limits: p.Limits, runs: p.Runs, sessions: p.Sessions, feed: p.Feed, turns: p.Turns, streams: p.Streams,
		policy: p.Policy, newID: p.NewID, log: p.Log, delivered: newDelivered(c.DeliveredRuns),
	}
}

// busyHeader says what the body says with onBusy, for clients that cannot add to that.
const busyHeader = "X-Holdfast-On-Busy"

// The names of the header that makes a repetition of a POST safe.
const (
	requestKeyHeader  = "X-Holdfast-Request-Key"
	requestKeyHeader2 = "X-Helix-Request-Key"
)

// Post is POST /chat.
func (c *Chat) Post(w http.ResponseWriter, r *http.Request, tenant string) error {
	major, err := c.major(r)
	if err != nil {
		return err
	}
	ctx, release, err := c.streams.Open(r.Context()) // before the body, which costs memory: what cannot be streamed is not read
	if err != nil {
		return err
	}
	defer release()
	var body request
	if err := httpapi.ReadJSON(w, r, c.limits, &body); err != nil {
		return err
	}
	start, err := c.startRequest(r, tenant, &body)
	if err != nil {
		return err
	}
	if start.AgentType == "" {
		if start.AgentType, err = c.sessions.AgentFor(ctx, tenant, body.ID); err != nil {
			return err
		}
	}
	started, err := c.start(ctx, start)
	if err != nil {
		return err
	}
	return c.stream(ctx, w, r, &delivery{run: started.GetRun(), session: started.GetSession(), major: major})
}

func (c *Chat) startRequest(r *http.Request, tenant string, body *request) (*statev1.StartRunRequest, error) {
	if err := httpapi.CheckID("id, the session's", body.ID); err != nil {
		return nil, err
	}
	if body.AgentType != "" {
		if err := httpapi.CheckID("agentType", body.AgentType); err != nil {
			return nil, err
		}
	}
	message, err := body.userMessage()
	if err != nil {
		return nil, err
	}
	key, err := c.requestKey(r)
	if err != nil {
		return nil, err
	}
	busy, err := onBusy(r, body)
	if err != nil {
		return nil, err
	}
	start := &statev1.StartRunRequest{Tenant: tenant, SessionId: body.ID, AgentType: body.AgentType, RequestKey: key, OnBusy: busy}
	start.Messages = append(start.Messages, message)
	start.Traceparent, start.Tracestate = telemetry.Traceparent(r.Context())
	return start, nil
}

// requestKey is the client's, or one of our own: with a key the start is safe to
// repeat when the state service was away at the wrong moment.
func (c *Chat) requestKey(r *http.Request) (string, error) {
	for _, name := range []string{requestKeyHeader, requestKeyHeader2} {
		if key := r.Header.Get(name); key != "" {
			return key, httpapi.CheckID(name, key)
		}
	}
	return c.newID(), nil
}

func (c *Chat) start(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	var started *statev1.StartRunResponse
	err := retry.Do(ctx, c.policy, func() (err error) {
		started, err = c.runs.StartRun(ctx, r)
		return err
	})
	return started, err
}

// Resume is GET /chat/{id}/stream. 204 says that there is nothing to resume.
func (c *Chat) Resume(w http.ResponseWriter, r *http.Request, tenant string) error {
	major, err := c.major(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if err := httpapi.CheckID("the session's id", id); err != nil {
		return err
	}
	after, named, ok := sse.Cursor(r)
	if !ok {
		return fault.New(fault.Invalid, "CURSOR_INVALID", "Last-Event-ID and fromSequence take the id of an event")
	}
	ctx, release, err := c.streams.Open(r.Context())
	if err != nil {
		return err
	}
	defer release()
	session, run, err := c.asked(ctx, tenant, id, r.URL.Query().Get("runId"))
	if errors.Is(err, fault.NotFound) || err == nil && !c.resumable(run, named) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	return c.stream(ctx, w, r, &delivery{run: run, session: session, major: major, after: after})
}

// asked gives the session and the run that is asked for, the newest where none is named.
func (c *Chat) asked(ctx context.Context, tenant, id, runID string) (*statev1.Session, *statev1.Run, error) {
	session, run, err := c.sessions.Session(ctx, tenant, id)
	if err != nil || runID == "" || runID == run.GetRunId() {
		return session, run, err
	}
	if err := httpapi.CheckID("runId", runID); err != nil {
		return nil, nil, err
	}
	run, err = c.sessions.Run(ctx, tenant, &statev1.Run{SessionId: id, RunId: runID})
	return session, run, err
}

// resumable reports whether there is something to tell. Who names a cursor has
// seen no end, whoever else has: delivered does not speak for them.
func (c *Chat) resumable(run *statev1.Run, named bool) bool {
	switch {
	case run == nil:
		return false
	case conversation.Live(run):
		return true
	case conversation.GivenUp(run):
		return false
	default:
		age := c.limits.Now().Sub(time.UnixMilli(run.GetCompletedAt()))
		return age < c.config.ReplayWindow && (named || !c.delivered.has(run.GetRunId()))
	}
}

// major is the client's version of the package ai, as far as it is known.
func (c *Chat) major(r *http.Request) (uistream.Major, error) {
	text := r.URL.Query().Get("aiSdk")
	if text == "" {
		return c.config.Major, nil
	}
	major, err := strconv.Atoi(text)
	if err != nil || major < 5 {
		return 0, fault.New(fault.Invalid, "AI_SDK_INVALID", "aiSdk is %.20q: it has to be the major version of the package ai, 5 or higher", text)
	}
	return uistream.Major(major), nil
}

// stream tells the run to the client. From its first byte on an error is told in
// the stream or by ErrCut.
func (c *Chat) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, d *delivery) error {
	h := w.Header()
	h.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	h.Set(httpapi.SessionHeader, headerText(d.session.GetSessionId()))
	h.Set(httpapi.RunHeader, headerText(d.run.GetRunId()))
	d.chat, d.ctx = c, ctx
	d.out = sse.NewWriter(w, r, c.config.Padding)
	if err := c.tell(d); err != nil {
		c.log.DebugContext(ctx, "chat stream cut", "run", d.run.GetRunId(), "error", err)
		return httpapi.ErrCut
	}
	if !d.lost {
		c.delivered.add(d.run.GetRunId())
	}
	return nil
}

// tell tells the run to its end. An error after d.out has begun has to cut the stream.
func (c *Chat) tell(d *delivery) error {
	if err := d.await(c.turns); err != nil {
		return err
	}
	d.reset()
	if conversation.GivenUp(d.run) {
		return d.giveUp()
	}
	if err := d.trace(); err != nil {
		return err
	}
	if err := d.begin(); err != nil {
		return err
	}
	return c.follow(d.ctx, d)
}

// follow reads the run until its end has been written. A run is taken for lost
// when the log itself was asked for its history and had no end.
func (c *Chat) follow(ctx context.Context, d *delivery) error {
	r := &streamv1.ReadRequest{
		Stream: conversation.Stream(d.session), RunId: d.run.GetRunId(), RecordedSequence: d.session.GetStreamSequence(),
	}
	d.cursor = d.start
	for {
		r.FromSequence, r.HistoryOnly = d.cursor, d.history
		err := c.feed.Follow(ctx, r, d)
		switch {
		case errors.Is(err, errAgain):
			d.cursor = d.again
		case errors.Is(err, errQuiet):
			d.history = true
		case errors.Is(err, errLost), err == nil && !d.ended:
			return d.fromStore(ctx)
		default:
			return err
		}
	}
}
