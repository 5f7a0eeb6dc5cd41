package chat

import (
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

// Request is what a client sends with POST /chat, by whatever way it came.
type Request struct {
	Tenant string
	Major  uistream.Major // of the client's package ai; 0: what the gateway is configured for
	Header http.Header    // of these the request key, on-busy and the run id are read
	Body   []byte         // JSON
}

// ReopenRequest asks for a stream that was lost.
type ReopenRequest struct {
	Tenant    string
	SessionID string
	RunID     string         // "" for the newest
	Major     uistream.Major // as in Request
	After     int64          // the client has everything up to this sequence; 0: nothing
	HasAfter  bool           // the client has named a sequence, be it 0
}

// Output takes the telling of an exchange, from one goroutine.
type Output interface {
	// Begin is called once, before all else.
	Begin()
	// Part adds a part, one line of JSON that is good until the call returns. The last
	// part of a record has its sequence; others have 0.
	Part(sequence int64, json []byte)
	// Done adds the end: nothing comes behind it.
	Done()
	// Flush sends what was added. It is called whenever nothing more waits.
	Flush() error
	// Beat is called when nothing has come for a while.
	Beat() error
}

// Exchange is an answer that is ready to be told, once.
type Exchange struct {
	chat    *Chat
	path    string // how it came to be, for those who watch the service
	session *statev1.Session
	run     *statev1.Run
	major   uistream.Major
	after   int64
	resent  *resent // of a client that has sent the message back; nil: it has nothing
}

// resent is what there is of a client that has sent the message back.
type resent struct {
	reply *reply
	runs  []*statev1.Run // those of the message, the newest last
	copy  *clientCopy    // before anything is told

	partial *statev1.GetSessionResponse // where more answers are awaited, and only that is told; nil otherwise
	// idle says that the client has answered and none of that was news. An end that says
	// no more than it has seen must not look like one to go on from.
	idle bool
	// submit gives the answers again, which were for calls that nobody knew while the run
	// was live; nil when there were none.
	submit func(context.Context) (*submission, error)
}

// SessionID names the session.
func (e *Exchange) SessionID() string { return e.session.GetSessionId() }

// RunID names the run that is told.
func (e *Exchange) RunID() string { return e.run.GetRunId() }

// Deliver tells the run to its end. After an error the message is not whole: the
// connection has to be broken, which a client takes for a drop, and resumes.
func (e *Exchange) Deliver(ctx context.Context, out Output) error {
	d := &delivery{Exchange: e, ctx: retry.Stream(ctx), out: out}
	err := d.deliver()
	if err != nil {
		e.chat.log.DebugContext(ctx, "chat stream cut", "run", e.RunID(), "error", err)
	}
	return err
}

// Open does what the client asks for with POST /chat. It returns the faults of
// httpapi.DecodeJSON, of the intents (Invalid: ID_INVALID, MESSAGE_INVALID, FILE_INVALID,
// ON_BUSY_INVALID, TRIGGER_UNSUPPORTED), of the state service, and
//
//   - Conflict (RUN_STALE): the conversation has moved on, and the request is about
//     what is no longer its end. Answers that it brought stand, but where it names the
//     run that it has seen: then nothing of it was looked at;
//   - Conflict (MESSAGE_EXISTS): the id of the message is that of another one;
//   - Conflict (SESSION_SUSPENDED): the session waits for something else than what the
//     client answers. A good end would make it ask the same for ever;
//   - Conflict (OWNER_NOT_CONTINUABLE): the calls belong to what is over;
//   - Unavailable (CALL_NOT_OPEN): a message that would wait brings the answer to a call
//     that the live run has not opened yet. The same request may be sent again;
//   - TooLarge (RESULT_TOO_LARGE): an answer that is awaited is too large.
func (c *Chat) Open(ctx context.Context, r Request) (*Exchange, error) {
	var body request
	if err := httpapi.DecodeJSON(r.Body, &body); err != nil {
		return nil, err
	}
	return c.open(ctx, r, &body)
}

// Reopen takes up a stream that was lost. nil says that there is nothing to resume.
func (c *Chat) Reopen(ctx context.Context, r ReopenRequest) (*Exchange, error) {
	if err := httpapi.CheckID("the session's id", r.SessionID); err != nil {
		return nil, err
	}
	whole, run, err := c.requestedRun(ctx, r)
	if errors.Is(err, fault.NotFound) || err == nil && !c.resumable(whole, run, r) {
		return nil, nil //nolint:nilnil // it is no error, and no exchange
	}
	if err != nil {
		return nil, err
	}
	return &Exchange{chat: c, path: pathAttach, session: whole.GetSession(), run: run, major: c.majorOr(r.Major), after: r.After}, nil
}

// requestedRun gives the session and the run that is asked for, the newest where none is named or
// the one that is named has written of the same message.
func (c *Chat) requestedRun(ctx context.Context, r ReopenRequest) (*statev1.GetSessionResponse, *statev1.Run, error) {
	whole, err := c.sessions.Whole(ctx, r.Tenant, r.SessionID)
	run := whole.GetCurrentRun()
	if err != nil || r.RunID == "" || r.RunID == run.GetRunId() {
		return whole, run, err
	}
	if err := httpapi.CheckID("runId", r.RunID); err != nil {
		return nil, nil, err
	}
	named, err := c.sessions.Run(ctx, r.Tenant, &statev1.Run{SessionId: r.SessionID, RunId: r.RunID})
	if named.GetMessageId() == run.GetMessageId() { // it was continued
		named = run
	}
	return whole, named, err
}

// resumable reports whether there is something to tell: not of a run that has never begun, not
// to who has named the position of its end, and not for longer than the replay window. Calls
// that wait for an answer are told whenever somebody comes, who may be the one to give it. Of
// a session that was stopped while it waited, only those are told who have a part of the
// message: its calls may still wait for them there.
func (c *Chat) resumable(whole *statev1.GetSessionResponse, run *statev1.Run, r ReopenRequest) bool {
	over := run.GetCompletedAt()
	switch {
	case run == nil:
		return false
	case conversation.Executing(run) || conversation.Waiting(run):
		return true
	case conversation.GivenUp(run):
		return false
	case conversation.Stopped(whole.GetSession(), run):
		return r.HasAfter && c.inReplayWindow(max(over, whole.GetSession().GetUpdatedAt()))
	case run.GetEndPosition() > 0 && r.After >= run.GetEndPosition():
		return false
	case run.GetRunId() == whole.GetCurrentRun().GetRunId() && !conversation.Ended(whole.GetSession().GetStatus()) && len(conversation.OpenCalls(whole)) > 0:
		return true
	default:
		return c.inReplayWindow(over)
	}
}

// inReplayWindow reports whether what ended then is told again.
func (c *Chat) inReplayWindow(over int64) bool {
	return c.limits.Now().Sub(time.UnixMilli(over)) < c.config.ReplayWindow
}

func (c *Chat) majorOr(m uistream.Major) uistream.Major {
	if m == 0 {
		return c.config.Major
	}
	return m
}
