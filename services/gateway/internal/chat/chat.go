// Package chat serves the AI SDK: POST /chat begins a run, or goes on with one, and
// streams it; GET /chat/{id}/stream takes up a stream that was lost. Both speak the UI
// message stream (package uistream). Open and Reopen do the same for other transports.
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
//     same message id. When what the client has seen is void meanwhile, or lies inside a
//     step whose pieces the log has no more, it gets the message from its start as
//     well: a second start part means to begin the message anew.
//   - A message that waits for the live run is answered in its own stream, which
//     shows nothing before its run begins. The message of a run that continues
//     another is told whole, from the beginning of the first of its runs; but a
//     client that has sent the message back, with answers, is told the rest.
//   - Calls that wait for somebody outside are told to everybody who comes; those that
//     have been answered are told so that no client runs them again.
//   - Nobody is asked any more when the session was stopped while it waited: who reads, or
//     names a place in the message, is told the ends of its calls and an error, and
//     there is nothing to take up for others.
//   - The newest message is given to whoever asks for it until the replay window behind its
//     end is over, but not to a client that names the place of that end.
//   - Of an answer to a call that is told and that the run has not suspended on yet, the
//     stream is what says that it was taken: whose stream breaks before is asked again.
//   - A stream that began before its message was continued goes on with the run that
//     continues it, however many there are by then.
//   - A request that can change nothing is an error. With a good end, apps that send on
//     by themselves would send it again, for ever.
//   - The run that a request names as the one it has seen (runId) may be any that has
//     written the newest message; with another one nothing is written (RUN_STALE). A
//     message that names a run is about where the conversation stands, and never waits.
//
// # Paths
//
// What a POST wants is read from its body alone (intent); what becomes of it is decided
// by the state service, in the transaction of the one command that the intent is
// made into (path):
//
//	say     StartRun
//	answer  SubmitCalls, with go_on
//	edit    StartRun{edit}
//	again   StartRun{regenerate}
//	attach  nothing
package chat

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Config are the chat routes' own settings.
type Config struct {
	ReplayWindow time.Duration // for how long after its end a run is told again
	Padding      int           // of comments, in bytes, where a proxy stands between
	Major        uistream.Major
	Metadata     bool // messages say which run wrote them, and what it used
}

// Chat serves the routes. It may be used by many goroutines.
type Chat struct {
	config   Config
	limits   httpapi.Limits
	runs     statev1.RunServiceClient
	calls    statev1.CallServiceClient
	sessions *conversation.Reader
	follower *follow.Follower
	streams  *httpapi.Streams
	policy   retry.Policy // for how long the state service may be away
	newID    func() string
	log      *slog.Logger
}

// Parts is what a Chat is made of.
type Parts struct {
	Limits   httpapi.Limits
	Runs     statev1.RunServiceClient
	Calls    statev1.CallServiceClient
	Sessions *conversation.Reader
	Follower *follow.Follower
	Streams  *httpapi.Streams
	Policy   retry.Policy
	NewID    func() string
	Log      *slog.Logger
}

// New returns a Chat.
func New(c Config, p Parts) *Chat {
	return &Chat{
		config: c, limits: p.Limits, runs: p.Runs, calls: p.Calls, sessions: p.Sessions, follower: p.Follower, streams: p.Streams,
		policy: p.Policy, newID: p.NewID, log: p.Log,
	}
}

// Post is POST /chat.
func (c *Chat) Post(w http.ResponseWriter, r *http.Request, tenant string) error {
	major, err := MajorOf(r)
	if err != nil {
		return err
	}
	ctx, release, err := c.streams.Open(r.Context()) // before the body, which costs memory: what cannot be streamed is not read
	if err != nil {
		return err
	}
	defer release()
	e, err := c.read(ctx, w, r, Request{Tenant: tenant, Major: major, Header: r.Header})
	if err != nil {
		return err
	}
	return c.stream(ctx, w, r, e)
}

// read reads the body and opens the exchange; the body is not kept.
func (c *Chat) read(ctx context.Context, w http.ResponseWriter, r *http.Request, asked Request) (*Exchange, error) {
	var body request
	if err := httpapi.ReadJSON(w, r, c.limits, &body); err != nil {
		return nil, err
	}
	return c.open(ctx, asked, &body)
}

// Resume is GET /chat/{id}/stream. 204 says that there is nothing to resume.
func (c *Chat) Resume(w http.ResponseWriter, r *http.Request, tenant string) error {
	major, err := MajorOf(r)
	if err != nil {
		return err
	}
	again := ReopenRequest{Tenant: tenant, SessionID: r.PathValue("id"), RunID: r.URL.Query().Get("runId"), Major: major}
	var ok bool
	if again.After, again.HasAfter, ok = sse.Cursor(r); !ok {
		return fault.New(fault.Invalid, "CURSOR_INVALID", "Last-Event-ID and fromSequence take the id of an event")
	}
	ctx, release, err := c.streams.Open(r.Context())
	if err != nil {
		return err
	}
	defer release()
	e, err := c.Reopen(ctx, again)
	if err != nil {
		return err
	}
	if e == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return c.stream(ctx, w, r, e)
}

// MajorOf is the client's version of the package ai, as the parameter aiSdk of the request
// says it; 0 where it does not say. Invalid (AI_SDK_INVALID).
func MajorOf(r *http.Request) (uistream.Major, error) {
	text := r.URL.Query().Get("aiSdk")
	if text == "" {
		return 0, nil
	}
	major, err := strconv.Atoi(text)
	if err != nil || major < 5 {
		return 0, fault.New(fault.Invalid, "AI_SDK_INVALID", "aiSdk is %.20q: it has to be the major version of the package ai, 5 or higher", text)
	}
	return uistream.Major(major), nil
}

// stream tells the exchange to the client. From its first byte on an error is told in
// the stream or by ErrCut.
func (c *Chat) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, e *Exchange) error {
	h := w.Header()
	h.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	h.Set(httpapi.SessionHeader, headerText(e.SessionID()))
	h.Set(httpapi.RunHeader, headerText(e.RunID()))
	if e.Deliver(ctx, sseOutput{sse.NewWriter(w, r, c.config.Padding)}) != nil {
		return httpapi.ErrCut
	}
	return nil
}

// headerText makes an id of any script fit for a header.
func headerText(id string) string { return url.PathEscape(id) }
