package chat

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Request is a POST /chat, over any transport.
type Request struct {
	Tenant      string
	Major       uistream.Major // of the client's package ai; 0 for the configured one
	Header      http.Header    // with the request key, on-busy and run id, if any
	Body        []byte         // JSON
	KeepMissing bool           // removes no messages that the client's conversation lacks, whatever the configured policy is
	// OnBusy applies if neither the request nor the agent has a policy; unspecified interrupts.
	OnBusy statev1.BusyPolicy
}

// Effects are the effects of a request on the conversation beside its message, and the parts of it without an effect.
type Effects struct {
	IgnoredFields   []string `json:"ignoredFields,omitempty"`   // names of keys, and kinds of parts, without an effect
	IgnoredMessages int      `json:"ignoredMessages,omitempty"` // of the client, which the session does not have
	RemovedMessages int      `json:"removedMessages,omitempty"` // of the session
	MissingMessages int      `json:"missingMessages,omitempty"` // of users, which the client lacks and the session keeps
}

// ReopenRequest resumes a lost stream.
type ReopenRequest struct {
	Tenant    string
	SessionID string
	RunID     string         // whose message is read, up to its newest run; "" for the newest message
	Major     uistream.Major // as in Request
	After     Cursor         // of the client in the stream; zero for its start
	HasAfter  bool           // the client has sent After, even if it is zero
}

// Output writes an exchange. One goroutine uses it.
type Output interface {
	// Begin is called once, first.
	Begin()
	// Part adds a part: one line of JSON, valid until the call returns. A client that resumes at the
	// cursor behind the part receives what follows it.
	Part(behind Cursor, json []byte)
	// Done adds the end, which has the cursor of the last part. Nothing follows it.
	Done(behind Cursor)
	// Flush sends the added parts. It is called whenever no more are ready.
	Flush() error
	// Beat is called after a quiet period.
	Beat() error
}

// Exchange is an answer to a request. It is delivered once.
type Exchange struct {
	chat    *Chat
	path    string // for logs and traces
	session *statev1.Session
	run     *statev1.Run
	runs    []*statev1.Run // of the message, the newest last
	major   uistream.Major
	after   Cursor
	effects Effects
	// beginsRun: this request has begun the run.
	beginsRun bool

	resent *resent // nil if the client has not sent the message
}

// resent is the client's copy of the message, compared with the stored one.
type resent struct {
	reply *reply
	copy  *clientCopy // before the delivery; nil if awaited is all that is delivered

	// below: the client's last step has answered calls of sessions below the root. The stored message does not
	// have them.
	below   bool
	awaited []*statev1.Call // the open calls if the client has answered only some of them, and only that is delivered; else nil
	// idle: the client has sent answers and all were known. The end of the stream must not make it
	// send again.
	idle bool
	// submit submits the answers again, for calls that were unknown while the run was live. nil if
	// there were none.
	submit func(context.Context) (*submission, error)
}

// SessionID returns the id of the session.
func (e *Exchange) SessionID() string { return e.session.GetSessionId() }

// RunID returns the id of the run.
func (e *Exchange) RunID() string { return e.run.GetRunId() }

// Effects returns the effects of the request.
func (e *Exchange) Effects() Effects { return e.effects }

// MessageID returns the id of the assistant message.
func (e *Exchange) MessageID() string { return e.run.GetMessageId() }

// Deliver writes the run to its end. After an error the message is incomplete: break the
// connection, so that the client resumes.
func (e *Exchange) Deliver(ctx context.Context, out Output) error {
	d := &delivery{Exchange: e, ctx: retry.Stream(ctx), out: out}
	err := d.deliver()
	if err != nil {
		e.chat.log.DebugContext(ctx, "chat stream cut", "run", e.RunID(), "error", err)
	}
	return err
}

// Open handles a POST /chat. It returns the faults of httpapi.DecodeJSON, of the intents (Invalid:
// ID_INVALID, MESSAGE_INVALID, FILE_INVALID, ON_BUSY_INVALID, TRIGGER_UNSUPPORTED), of the state
// service, and
//
//   - Conflict (RUN_STALE): the conversation has a newer message than the request. Its answers are
//     stored, except if it names the run that it has seen: then nothing is stored.
//   - Conflict (MESSAGE_EXISTS): another message has this id.
//   - Conflict (SESSION_SUSPENDED): the session waits for something that the client does not
//     answer. After a clean end the client would repeat the request endlessly.
//   - Conflict (OWNER_NOT_CONTINUABLE): the session of the calls has ended.
//   - Unavailable (CALL_NOT_OPEN): a message that would wait answers a call that the live run has
//     not opened. Send the same request again.
//   - TooLarge (RESULT_TOO_LARGE): an awaited answer is too large.
func (c *Chat) Open(ctx context.Context, r Request) (*Exchange, error) {
	text, err := c.files.Extract(ctx, r.Tenant, bytes.NewReader(r.Body), func() error { return nil })
	if err != nil {
		return nil, err
	}
	body := c.newRequest()
	if err := httpapi.DecodeJSON(text, &body); err != nil {
		return nil, err
	}
	return c.open(ctx, r, &body)
}

// Reopen resumes a lost stream. It returns nil if there is nothing to resume.
func (c *Chat) Reopen(ctx context.Context, r ReopenRequest) (*Exchange, error) {
	if err := httpapi.CheckID("the session's id", r.SessionID); err != nil {
		return nil, err
	}
	if r.RunID != "" {
		if err := httpapi.CheckID("runId", r.RunID); err != nil {
			return nil, err
		}
	}
	details, err := c.sessions.SessionOfMessage(ctx, r.Tenant, r.SessionID, r.RunID)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return nil, err
	}
	runs := details.GetMessageRuns()
	if len(runs) == 0 || !c.resumable(details, runs[len(runs)-1], r) {
		return nil, nil //nolint:nilnil // neither an error nor an exchange
	}
	return &Exchange{
		chat: c, path: pathAttach, session: details.GetSession(), run: runs[len(runs)-1], runs: runs, major: c.majorOr(r.Major), after: r.After,
	}, nil
}

// resumable reports whether there is something to send. There is not for a run without a start, for
// a client at the position of the end, and after the replay window. Pending calls are sent at any
// time, since any reader may answer them. If the session was stopped while it waited, only clients
// with a part of the message receive the ends of its calls.
func (c *Chat) resumable(details *statev1.GetSessionResponse, run *statev1.Run, r ReopenRequest) bool {
	session, ended := details.GetSession(), run.GetCompletedAt()
	newest := run.GetRunId() == details.GetCurrentRun().GetRunId()
	switch {
	case conversation.Executing(run) || conversation.Waiting(run) || newest && conversation.AwaitsOthers(details):
		return true
	case conversation.NeverStarted(run):
		return false
	case conversation.Stopped(session, run):
		return r.HasAfter && c.inReplayWindow(max(ended, session.GetUpdatedAt()))
	case run.GetEndPosition() > 0 && r.After.Parts == 0 && r.After.Sequence >= run.GetEndPosition():
		return false
	case newest && !conversation.Ended(session.GetStatus()) && len(conversation.OpenCalls(details)) > 0:
		return true
	default:
		return c.inReplayWindow(ended)
	}
}

// inReplayWindow reports whether a run that ended then is still sent. ended is in milliseconds.
func (c *Chat) inReplayWindow(ended int64) bool {
	return c.limits.Now().Sub(time.UnixMilli(ended)) < c.config.ReplayWindow
}

func (c *Chat) majorOr(m uistream.Major) uistream.Major {
	if m == 0 {
		return c.config.Major
	}
	return m
}
