package chat

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// taken is what has become of the answers, and how the session stands since.
type taken struct {
	session  *statev1.Session
	run      *statev1.Run // the newest
	open     int32        // calls without an answer
	asked    string       // the run that asked for the last of the answers; "" when they are for none
	accepted bool         // one of them was news
	over     bool         // one came for what is over
	unknown  bool         // one was for a call that the session does not have
}

// stopped reports whether the session was ended from outside while it was suspended.
func (t *taken) stopped() bool { return conversation.Stopped(t.session, t.run) }

func (p *post) over() error {
	return fault.New(fault.Conflict, "OWNER_NOT_CONTINUABLE", "the conversation %q does not go on; send a message instead", p.body.ID)
}

// answer gives the client's answers and tells it what it lacks of the message.
func (p *post) answer(ctx context.Context) (*Exchange, error) {
	t, err := p.submit(ctx)
	if err != nil {
		return nil, err
	}
	if t.run == nil {
		return nil, p.stale()
	}
	runs, err := p.chat.sessions.Message(ctx, p.request.Tenant, t.run)
	switch {
	case err != nil:
		return nil, err
	case p.body.RunID != "" && !among(runs, p.body.RunID): // the state service checks it only with answers
		return nil, p.stale()
	case p.wish.intent == answer && t.stopped():
		return nil, p.over()
	case t.asked == "":
		return p.attach(ctx, t, runs)
	case !among(runs, t.asked):
		return nil, p.stale()
	case t.asked == t.run.GetRunId() && !conversation.Executing(t.run):
		return p.stopped(ctx, t, runs)
	}
	return p.goOn(t, runs)
}

// submit gives the answers to the state service, which knows the calls. An answer to a
// call that the live run has told and not opened is for none yet: the exchange keeps it,
// and gives it when the run suspends. So its stream is what says that it was taken; a
// client whose stream breaks before that is asked again by the next one.
func (p *post) submit(ctx context.Context) (*taken, error) {
	answers := p.wish.reply.inLastStep()
	if len(answers) == 0 {
		return p.look(ctx)
	}
	r := &statev1.SubmitCallsRequest{
		Tenant: p.request.Tenant, SessionId: p.body.ID, Answers: submitted(answers), SeenRunId: p.body.RunID,
		GoOn: statev1.GoOn_GO_ON_ASKED,
	}
	if p.chat.majorOr(p.request.Major) >= uistream.Newest { // before, a stop made the client send by itself
		r.GoOn = statev1.GoOn_GO_ON_ANSWERED
	}
	r.Traceparent, r.Tracestate = telemetry.Traceparent(ctx)
	var got *statev1.SubmitCallsResponse
	err := retry.Do(ctx, p.chat.policy, func() (err error) {
		got, err = p.chat.calls.SubmitCalls(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	t := &taken{session: got.GetSession(), run: got.GetRun(), open: got.GetOpenCalls()}
	for _, c := range got.GetCalls() {
		t.accepted = t.accepted || c.GetOutcome() == statev1.SubmittedCall_OUTCOME_ACCEPTED
		t.unknown = t.unknown || c.GetOutcome() == statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL
		t.over = t.over || c.GetOutcome() == statev1.SubmittedCall_OUTCOME_OWNER_NOT_CONTINUABLE
		if c.GetRunId() != "" && c.GetOwnerSessionId() == p.body.ID {
			t.asked = c.GetRunId()
		}
	}
	return t, nil
}

// look gives the session to a client that brings no answers.
func (p *post) look(ctx context.Context) (*taken, error) {
	whole, err := p.chat.sessions.Whole(ctx, p.request.Tenant, p.body.ID)
	if errors.Is(err, fault.NotFound) && p.body.RunID != "" {
		return nil, p.stale()
	}
	return &taken{session: whole.GetSession(), run: whole.GetCurrentRun(), open: int32(len(conversation.OpenCalls(whole)))}, err
}

// stopped tells of a run that asked, is the newest and has ended.
func (p *post) stopped(ctx context.Context, t *taken, runs []*statev1.Run) (*Exchange, error) {
	switch {
	case t.over || conversation.Ended(t.session.GetStatus()):
		return nil, p.over()
	case t.open > 0:
		return p.partial(ctx, t, runs)
	default:
		return nil, fault.New(fault.Conflict, "SESSION_SUSPENDED", "the conversation %q waits for others than the caller; resume its stream later", p.body.ID)
	}
}

// goOn tells what the runs behind the one that asked have told and will tell. The client
// knows the message by the id under which it has sent it.
func (p *post) goOn(t *taken, runs []*statev1.Run) (*Exchange, error) {
	first := 1 + slices.IndexFunc(runs, func(run *statev1.Run) bool { return run.GetRunId() == t.asked })
	path := pathResume
	if !t.accepted {
		path = pathOf(t.run)
	}
	if first == len(runs) { // the run that asked is live: the client has a part of it
		return p.lacking(path, t, runs, &has{steps: p.wish.reply.steps}), nil
	}
	return p.lacking(path, t, runs, &has{runs: ids(runs[:first])}), nil
}

func ids(runs []*statev1.Run) map[string]bool {
	ids := map[string]bool{}
	for _, run := range runs {
		ids[run.GetRunId()] = true
	}
	return ids
}

// attach tells the rest of the newest message.
func (p *post) attach(ctx context.Context, t *taken, runs []*statev1.Run) (*Exchange, error) {
	reply := p.wish.reply
	if reply.id != "" && reply.id != t.run.GetMessageId() {
		return nil, p.stale()
	}
	if p.wish.intent == answer && t.open > 0 && conversation.Suspended(t.session) {
		if _, err := p.awaiting(ctx, t); err != nil {
			return nil, err
		}
	}
	return p.lacking(pathOf(t.run), t, runs, &has{steps: reply.steps}), nil
}

// lacking tells the client what it lacks of the runs' message. Where the run is live,
// calls that nobody knows may become known when it suspends, and its end is news.
func (p *post) lacking(path string, t *taken, runs []*statev1.Run, h *has) *Exchange {
	e := p.tell(path, t.session, t.run)
	live := conversation.Executing(t.run)
	h.reply = p.wish.reply
	e.back = &back{reply: p.wish.reply, runs: runs, has: h, idle: len(h.reply.answers) > 0 && !t.accepted && !live}
	if t.unknown && live {
		h.keeps, e.back.submit = true, p.submit
	}
	return e
}

// partial tells a client that more answers are awaited. Where somebody else has given
// them meanwhile, the message goes on behind the run that asked.
func (p *post) partial(ctx context.Context, t *taken, runs []*statev1.Run) (*Exchange, error) {
	now, err := p.awaiting(ctx, t)
	if err != nil {
		return nil, err
	}
	if now.GetCurrentRun().GetRunId() != t.run.GetRunId() {
		return p.lacking(pathResume, t, runs, &has{runs: ids(runs)}), nil
	}
	e := p.tell(pathResume, now.GetSession(), t.run)
	e.back = &back{reply: p.wish.reply, partial: now}
	return e, nil
}

// awaiting gives the session as it is now: it has moved on, or waits for something that
// the client can still answer. A client that takes all for answered would ask for ever:
// TooLarge (RESULT_TOO_LARGE), Conflict (SESSION_SUSPENDED).
func (p *post) awaiting(ctx context.Context, t *taken) (*statev1.GetSessionResponse, error) {
	now, err := p.chat.sessions.Whole(ctx, p.request.Tenant, p.body.ID)
	if err != nil || now.GetCurrentRun().GetRunId() != t.run.GetRunId() {
		return now, err
	}
	for _, call := range conversation.OpenCalls(now) {
		if p.wish.reply.calls[call.GetToolCallId()] <= waits {
			return now, nil
		}
	}
	if p.wish.reply.large {
		return nil, fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "a result may have %d bytes, and an error or a reason %d; give a smaller one, or a reference to it", maxResult, maxError)
	}
	return nil, fault.New(fault.Conflict, "SESSION_SUSPENDED", "the conversation %q waits for something that the message does not answer; load its messages", p.body.ID)
}
