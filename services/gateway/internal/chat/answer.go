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

// submission is the outcome of submitted answers, with the session as of then.
type submission struct {
	session     *statev1.Session
	run         *statev1.Run // the newest
	openCalls   int32        // answers missing in the session's family
	askedBy     string       // the run with the last answered call; "" for none
	accepted    bool         // an answer was accepted
	below       bool         // an answer was for a call of a session below the root
	ownerEnded  bool         // an answer was for a call of an ended session
	unknownCall bool         // an answer was for an unknown call
}

// stopped reports whether the session was ended from outside while it was suspended.
func (t *submission) stopped() bool { return conversation.Stopped(t.session, t.run) }

func (p *post) errOwnerEnded(session *statev1.Session) error {
	return conflict(session, "OWNER_NOT_CONTINUABLE", "the conversation %q has ended; send a message instead", p.body.ID)
}

// answer submits the client's answers and returns the rest of the message.
func (p *post) answer(ctx context.Context) (*Exchange, error) {
	t, err := p.submit(ctx)
	if err != nil {
		return nil, err
	}
	if t.run == nil {
		return nil, p.errStale(t.session)
	}
	runs, err := p.chat.sessions.RunsOfMessage(ctx, p.request.Tenant, t.run)
	switch {
	case err != nil:
		return nil, err
	case p.body.RunID != "" && !containsRun(runs, p.body.RunID): // the state service checks it only if there are answers
		return nil, p.errStale(t.session)
	case p.operation.intent == answer && t.stopped():
		return nil, p.errOwnerEnded(t.session)
	case p.operation.intent == answer && t.below && t.askedBy == "" && (t.accepted || !conversation.Suspended(t.session)):
		// The root has waited for the sessions below. It may have continued meanwhile.
		e := p.rest(pathResume, t, runs, &clientCopy{untilEnd: true})
		e.resent.below = true
		return e, nil
	case t.askedBy == "":
		return p.attach(ctx, t, runs)
	case !containsRun(runs, t.askedBy):
		return nil, p.errStale(t.session)
	case t.askedBy == t.run.GetRunId() && !conversation.Executing(t.run):
		return p.afterEnd(ctx, t, runs)
	}
	return p.continueMessage(t, runs)
}

// submit submits the answers. The state service does not know a call of the live run before the run
// opens it. The exchange then submits the answers again when the run suspends, and the client reads
// the result on the stream. If the stream breaks first, the next stream asks the client again.
func (p *post) submit(ctx context.Context) (*submission, error) {
	answers := p.operation.reply.lastStepAnswers()
	if len(answers) == 0 {
		return p.loadSession(ctx)
	}
	r := &statev1.SubmitCallsRequest{
		Tenant: p.request.Tenant, SessionId: p.body.ID, Answers: toSubmitted(answers), SeenRunId: p.body.RunID,
		GoOn: statev1.GoOn_GO_ON_ASKED,
	}
	if p.chat.majorOr(p.request.Major) >= uistream.DefaultMajor { // older clients send by themselves after a stop
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
	t := &submission{session: got.GetSession(), run: got.GetRun(), openCalls: got.GetOpenCalls()}
	for _, c := range got.GetCalls() {
		t.accepted = t.accepted || c.GetOutcome() == statev1.SubmittedCall_OUTCOME_ACCEPTED
		t.unknownCall = t.unknownCall || c.GetOutcome() == statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL
		t.ownerEnded = t.ownerEnded || c.GetOutcome() == statev1.SubmittedCall_OUTCOME_OWNER_NOT_CONTINUABLE
		switch owner := c.GetOwnerSessionId(); {
		case owner != "" && owner != p.body.ID:
			t.below = true
		case owner != "" && c.GetRunId() != "":
			t.askedBy = c.GetRunId()
		}
	}
	return t, nil
}

// loadSession loads the session for a client without answers.
func (p *post) loadSession(ctx context.Context) (*submission, error) {
	whole, err := p.chat.sessions.SessionDetails(ctx, p.request.Tenant, p.body.ID)
	if errors.Is(err, fault.NotFound) && p.body.RunID != "" {
		return nil, p.errStale(nil)
	}
	return &submission{session: whole.GetSession(), run: whole.GetCurrentRun(), openCalls: int32(len(conversation.OpenCalls(whole)))}, err
}

// afterEnd handles answers to calls of the newest run, which has ended.
func (p *post) afterEnd(ctx context.Context, t *submission, runs []*statev1.Run) (*Exchange, error) {
	switch {
	case t.ownerEnded || conversation.Ended(t.session.GetStatus()):
		return nil, p.errOwnerEnded(t.session)
	case t.openCalls > 0:
		return p.partial(ctx, t, runs)
	default:
		return nil, conflict(t.session, "SESSION_SUSPENDED", "the conversation %q waits for other clients; resume its stream later", p.body.ID)
	}
}

// continueMessage returns an exchange for the runs after the one with the answered calls. The
// client has the message under the sent id.
func (p *post) continueMessage(t *submission, runs []*statev1.Run) (*Exchange, error) {
	first := 1 + slices.IndexFunc(runs, func(run *statev1.Run) bool { return run.GetRunId() == t.askedBy })
	path := pathResume
	if !t.accepted {
		path = pathOf(t.run)
	}
	if first == len(runs) { // that run is live: the client has a part of it
		return p.rest(path, t, runs, &clientCopy{steps: p.operation.reply.steps}), nil
	}
	return p.rest(path, t, runs, &clientCopy{runs: runIDs(runs[:first])}), nil
}

func runIDs(runs []*statev1.Run) map[string]bool {
	ids := map[string]bool{}
	for _, run := range runs {
		ids[run.GetRunId()] = true
	}
	return ids
}

// attach returns the rest of the newest message.
func (p *post) attach(ctx context.Context, t *submission, runs []*statev1.Run) (*Exchange, error) {
	reply := p.operation.reply
	if reply.id != "" && reply.id != t.run.GetMessageId() {
		return nil, p.errStale(t.session)
	}
	if p.operation.intent == answer && t.openCalls > 0 && conversation.Suspended(t.session) {
		if _, err := p.loadAwaited(ctx, t); err != nil {
			return nil, err
		}
	}
	return p.rest(pathOf(t.run), t, runs, &clientCopy{steps: reply.steps}), nil
}

// rest returns an exchange for the missing part of the message. Unknown calls of a live run may
// become known when it suspends, so their answers are kept for then.
func (p *post) rest(path string, t *submission, runs []*statev1.Run, h *clientCopy) *Exchange {
	e := p.exchange(path, t.session, t.run)
	live := conversation.Executing(t.run)
	h.reply = p.operation.reply
	e.resent = &resent{reply: p.operation.reply, runs: runs, copy: h, idle: len(h.reply.answers) > 0 && !t.accepted && !live}
	if t.unknownCall && live {
		h.noReset, e.resent.submit = true, p.submit
	}
	return e
}

// partial tells the client to send more answers. If another client has given them meanwhile, the
// message continues after the run with the calls.
func (p *post) partial(ctx context.Context, t *submission, runs []*statev1.Run) (*Exchange, error) {
	now, err := p.loadAwaited(ctx, t)
	if err != nil {
		return nil, err
	}
	if now.GetCurrentRun().GetRunId() != t.run.GetRunId() {
		return p.rest(pathResume, t, runs, &clientCopy{runs: runIDs(runs)}), nil
	}
	e := p.exchange(pathResume, now.GetSession(), t.run)
	e.resent = &resent{reply: p.operation.reply, partial: now}
	return e, nil
}

// loadAwaited loads the session. It has a newer run, or a call for the client to answer. Otherwise
// the client would resend the message endlessly: TooLarge (RESULT_TOO_LARGE), Conflict
// (SESSION_SUSPENDED).
func (p *post) loadAwaited(ctx context.Context, t *submission) (*statev1.GetSessionResponse, error) {
	now, err := p.chat.sessions.SessionDetails(ctx, p.request.Tenant, p.body.ID)
	if err != nil || now.GetCurrentRun().GetRunId() != t.run.GetRunId() {
		return now, err
	}
	for _, call := range conversation.OpenCalls(now) {
		if p.operation.reply.calls[call.GetToolCallId()] <= callWaiting {
			return now, nil
		}
	}
	if p.operation.reply.tooLarge {
		return nil, fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "a result may have %d bytes, and an error or a reason %d; send a smaller one, or a reference to it", maxResult, maxError).
			WithSizes(0, maxResult)
	}
	return nil, conflict(now.GetSession(), "SESSION_SUSPENDED", "the conversation %q waits for an answer that the message does not have; load its messages", p.body.ID)
}
