// Package chat serves the AI SDK. POST /chat starts or continues a run and streams it. GET
// /chat/{id}/stream resumes a lost stream. Both speak the UI message stream (package uistream).
// Open and Reopen do the same for other transports.
//
// # What a client may rely on
//
//   - The run continues when the connection breaks.
//   - A body with a clean end is whole: it ends with [DONE], after a finish or an error part. If a
//     stream cannot be finished, the connection breaks, and clients resume.
//   - Every event has an id, the cursor behind it: the sequence of its chunk, or SEQUENCE.N behind
//     the Nth part of a chunk with more parts. With it (Last-Event-ID or fromSequence) a client
//     receives the rest. Parts outside of chunks repeat the id before them, and may come again;
//     clients replace them. Without an id, the client receives
//     the message from its start, under the same message id. A second start part in a stream means:
//     begin the message again. It comes if the client's parts are void, or if the log no longer has
//     the pieces of its step.
//   - A message that waits for the live run is answered in its own stream, which shows nothing
//     before its run begins. If a run continues another, the message is sent whole, from the start
//     of the first run. A client that has sent the message back, with answers, receives the rest.
//   - Every reader receives the pending calls. Answered calls are marked so that no client runs
//     them again.
//   - If a session was stopped while it waited, its calls end for readers and for clients that name
//     a position in the message. They receive the ends of the calls and an error. Other clients
//     have nothing to resume.
//   - The newest message can be read until the replay window after its end has passed, but not by a
//     client that names the position of that end.
//   - A client may answer a call before the run suspends on it. The answer is confirmed on the
//     stream. If the stream breaks first, the client must send the answer again.
//   - If a run continues a message, streams that began before go on with it, however many runs
//     follow.
//   - A request that can change nothing is an error. After a clean end, apps that send by
//     themselves would repeat it endlessly.
//   - A request may name the run that the client has seen last (runId). It must be a run of the
//     newest message. For another one nothing is written (RUN_STALE). Such a request never waits.
//
// # Paths
//
// The body of a POST alone says what the client wants (intent). The state service decides, in the
// transaction of one command, what becomes of it (path):
//
//	send        StartRun
//	answer      SubmitCalls, with go_on
//	edit        StartRun{edit}
//	regenerate  StartRun{regenerate}
//	attach      GetSession, which writes nothing
//
// Its response has all that the exchange needs: the session, the runs of the message and the open calls. A second command
// follows in two cases. If the state service does not know the session, the client's conversation is sent with it. If a
// message would wait and answers calls that the state service does not know, the live log is read first: a call of the
// step in flight cannot be answered yet.
package chat

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Config holds the settings of the chat routes.
type Config struct {
	ReplayWindow time.Duration // after the end of the newest run
	Padding      int           // of comments, in bytes, for requests through a proxy
	Major        uistream.Major
	Metadata     bool // whether messages name their run and its usage
	MaxParts     int  // of the decoded messages of a body
	History      bool // whether new sessions take in the client's conversation
	Missing      statev1.MissingPolicy
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
	files    *files.Files
	policy   retry.Policy // for retries of calls to the state service
	newID    func() string
	log      *slog.Logger
}

// Parts are the dependencies of a Chat.
type Parts struct {
	Limits   httpapi.Limits
	Runs     statev1.RunServiceClient
	Calls    statev1.CallServiceClient
	Sessions *conversation.Reader
	Follower *follow.Follower
	Streams  *httpapi.Streams
	Files    *files.Files
	Policy   retry.Policy
	NewID    func() string
	Log      *slog.Logger
}

// New returns a Chat.
func New(c Config, p Parts) *Chat {
	return &Chat{
		config: c, limits: p.Limits, runs: p.Runs, calls: p.Calls, sessions: p.Sessions, follower: p.Follower, streams: p.Streams, files: p.Files,
		policy: p.Policy, newID: p.NewID, log: p.Log,
	}
}

// Post is POST /chat.
func (c *Chat) Post(w http.ResponseWriter, r *http.Request, tenant string) error {
	major, err := MajorOf(r)
	if err != nil {
		return err
	}
	ctx, release, err := c.streams.Open(r.Context(), httpapi.ProtocolChat) // before the body is read into memory
	if err != nil {
		return err
	}
	defer release()
	e, err := c.read(ctx, w, r, Request{Tenant: tenant, Major: major, Header: r.Header})
	if err != nil {
		return httpapi.CauseOf(ctx, err)
	}
	return c.stream(ctx, w, r, e)
}

// read decodes the body and opens the exchange. It does not keep the body.
func (c *Chat) read(ctx context.Context, w http.ResponseWriter, r *http.Request, asked Request) (*Exchange, error) {
	body := c.newRequest()
	if err := c.files.ReadBody(ctx, w, r, asked.Tenant, &body); err != nil {
		return nil, err
	}
	return c.open(ctx, asked, &body)
}

// newRequest returns a request to decode into.
func (c *Chat) newRequest() request {
	return request{budget: partBudget{max: c.config.MaxParts}}
}

// Resume is GET /chat/{id}/stream. It answers 204 if there is nothing to resume.
func (c *Chat) Resume(w http.ResponseWriter, r *http.Request, tenant string) error {
	major, err := MajorOf(r)
	if err != nil {
		return err
	}
	request := ReopenRequest{Tenant: tenant, SessionID: r.PathValue("id"), RunID: r.URL.Query().Get("runId"), Major: major}
	var ok bool
	if request.After, request.HasAfter, ok = cursorOf(r); !ok {
		return fault.New(fault.Invalid, "CURSOR_INVALID", "Last-Event-ID and fromSequence take the id of an event")
	}
	ctx, release, err := c.streams.Open(r.Context(), httpapi.ProtocolChat)
	if err != nil {
		return err
	}
	defer release()
	e, err := c.Reopen(ctx, request)
	if err != nil {
		return httpapi.CauseOf(ctx, err)
	}
	if e == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return c.stream(ctx, w, r, e)
}

// ResumeBehindQuery serves the path of Resume behind a query. The versions 5.0.0 and 6.0.0 of the
// package ai append it to the whole address of POST /chat: /chat?aiSdk=6/ID/stream.
func ResumeBehindQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, id, ok := cutResumePath(r.URL.RawQuery)
		if ok && r.Method == http.MethodGet && r.URL.Path == "/chat" {
			r.URL = r.URL.JoinPath(url.PathEscape(id), "stream")
			r.URL.RawQuery = query
		}
		next.ServeHTTP(w, r)
	})
}

// cutResumePath cuts the path /ID/stream from the end of a query.
func cutResumePath(raw string) (query, id string, ok bool) {
	raw, ok = strings.CutSuffix(raw, "/stream")
	at := strings.LastIndexByte(raw, '/')
	if !ok || at < 0 {
		return "", "", false
	}
	id, err := url.PathUnescape(raw[at+1:])
	return raw[:at], id, err == nil
}

// userAgent finds the version of the package ai. Few of its versions send it, and browsers drop it.
var userAgent = regexp.MustCompile(`(?:^|\s)ai-sdk/([0-9]{1,3})\.`)

// MajorOf returns the client's major version of the package ai: from the user agent, or else from
// the parameter aiSdk; 0 if neither tells it. The user agent comes first, because the package itself
// sends it. Invalid (AI_SDK_INVALID).
func MajorOf(r *http.Request) (uistream.Major, error) {
	text := r.URL.Query().Get("aiSdk")
	if sent := userAgent.FindStringSubmatch(r.UserAgent()); sent != nil {
		text = sent[1]
	}
	if text == "" {
		return uistream.UnknownMajor, nil
	}
	major, err := strconv.Atoi(text)
	if err != nil || major < 5 {
		return 0, fault.New(fault.Invalid, "AI_SDK_INVALID", "aiSdk is %.20q: it must be the major version of the package ai, 5 or higher", text)
	}
	return uistream.Major(major), nil
}

// stream writes the exchange to the client. After the first byte, an error is written to the stream
// or becomes ErrCut.
func (c *Chat) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, e *Exchange) error {
	h := w.Header()
	h.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	h.Set(httpapi.SessionHeader, headerText(e.SessionID()))
	h.Set(httpapi.RunHeader, headerText(e.RunID()))
	for name, messages := range map[string]int{
		httpapi.IgnoredHeader: e.effects.IgnoredMessages,
		httpapi.RemovedHeader: e.effects.RemovedMessages,
		httpapi.MissingHeader: e.effects.MissingMessages,
	} {
		if messages > 0 {
			h.Set(name, strconv.Itoa(messages))
		}
	}
	if ignored := e.effects.IgnoredFields; len(ignored) > 0 {
		names := make([]string, len(ignored))
		for i, name := range ignored {
			names[i] = headerText(name)
		}
		h.Set(httpapi.IgnoredFieldsHeader, strings.Join(names, ", "))
	}
	if e.Deliver(ctx, sseOutput{sse.NewWriter(w, r, c.config.Padding)}) != nil {
		return httpapi.ErrCut
	}
	return nil
}

// headerText escapes an id for use in a header.
func headerText(id string) string { return url.PathEscape(id) }
