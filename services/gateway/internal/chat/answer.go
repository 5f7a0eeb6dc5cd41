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
	session *statev1.Session
	runs    []*statev1.Run // of the newest message, the newest last; none before the first run
	status  conversation.Status
	awaited []*statev1.Call // calls of the session's family that wait for an answer

	askedBy     string // the run with the last answered call; "" for none
	accepted    bool   // an answer was accepted
	below       bool   // an answer was for a call of a session below the root
	ownerEnded  bool   // an answer was for a call of an ended session
	unknownCall bool   // an answer was for an unknown call
}

// answer submits the client's answers and returns the rest of the message. Without answers, it returns the rest of the
// newest message.
func (p *post) answer(ctx context.Context) (*Exchange, error) {
	t, err := p.submit(ctx)
	if err != nil {
		return nil, err
	}
	if len(t.runs) == 0 || p.body.RunID != "" && !containsRun(t.runs, p.body.RunID) {
		return nil, p.errStale(t.session)
	}
	answers := p.operation.intent == answer
	reply := p.operation.reply
	newest := t.runs[len(t.runs)-1]
	switch {
	case answers && t.status.Stopped:
		return nil, p.errOwnerEnded(t.session)
	case answers && t.below && t.askedBy == "" && (t.accepted || !t.status.Suspended):
		// The root has waited for the sessions below. It may have continued meanwhile.
		e := p.rest(pathResume, t, &clientCopy{untilEnd: true})
		e.resent.below = true
		return e, nil
	case t.askedBy == "" && reply.id != "" && reply.id != newest.GetMessageId():
		return nil, p.errStale(t.session)
	case t.askedBy == "":
		if answers && t.status.Suspended && len(t.awaited) > 0 {
			if err := p.checkAwaited(t); err != nil {
				return nil, err
			}
		}
		return p.rest("", t, &clientCopy{steps: reply.steps}), nil
	case !containsRun(t.runs, t.askedBy):
		return nil, p.errStale(t.session)
	case t.askedBy != newest.GetRunId() || t.status.Executing:
		// The client has the message up to the run with the answered calls.
		path := pathResume
		if !t.accepted {
			path = ""
		}
		next := 1 + slices.IndexFunc(t.runs, func(run *statev1.Run) bool { return run.GetRunId() == t.askedBy })
		if next == len(t.runs) { // that run is live: the client has a part of it
			return p.rest(path, t, &clientCopy{steps: reply.steps}), nil
		}
		return p.rest(path, t, &clientCopy{runs: runIDs(t.runs[:next])}), nil
	case t.ownerEnded || t.status.Ended:
		return nil, p.errOwnerEnded(t.session)
	case len(t.awaited) == 0:
		return nil, conflict(t.session, "SESSION_SUSPENDED",
			"the conversation %q waits for other clients; resume its stream later", p.body.ID)
	}
	if err := p.checkAwaited(t); err != nil {
		return nil, err
	}
	e := p.exchange(pathResume, t.session, t.runs)
	e.resent = &resent{reply: reply, awaited: t.awaited}
	return e, nil
}

// submit submits the answers. The state service does not know a call of the live run before the run
// opens it. The exchange then submits the answers again when the run suspends, and the client reads
// the result on the stream. If the stream breaks first, the next stream asks the client again.
func (p *post) submit(ctx context.Context) (*submission, error) {
	answers := p.operation.reply.lastStepAnswers()
	if len(answers) == 0 {
		details, err := p.chat.sessions.SessionOfMessage(ctx, p.request.Tenant, p.body.ID, "")
		if errors.Is(err, fault.NotFound) && p.body.RunID != "" {
			return nil, p.errStale(nil)
		}
		status := conversation.StatusOf(details.GetSession(), details.GetCurrentRun())
		open := conversation.OpenCalls(details)
		return &submission{session: details.GetSession(), runs: details.GetMessageRuns(), status: status, awaited: open}, err
	}
	r := p.submitted
	if r == nil {
		r = &statev1.SubmitCallsRequest{
			Tenant: p.request.Tenant, SessionId: p.body.ID, Answers: toSubmitted(answers), SeenRunId: p.body.RunID,
			GoOn: statev1.GoOn_GO_ON_ASKED,
		}
		p.submitted = r
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
	status := conversation.StatusOf(got.GetSession(), got.GetRun())
	t := &submission{session: got.GetSession(), runs: got.GetMessageRuns(), status: status, awaited: got.GetAwaitedCalls()}
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

// rest returns an exchange for the missing part of the message. An empty path is that of the newest run. Unknown calls
// of a live run may become known when it suspends, so their answers are kept for then.
func (p *post) rest(path string, t *submission, h *clientCopy) *Exchange {
	e := p.exchange(path, t.session, t.runs)
	h.reply = p.operation.reply
	e.resent = &resent{reply: h.reply, copy: h, idle: len(h.reply.answers) > 0 && !t.accepted && !t.status.Executing}
	if t.unknownCall && t.status.Executing {
		h.noReset = true
		e.resent.submit = p.submit
	}
	return e
}

// checkAwaited checks that the client has to answer a call. Otherwise it would resend the message endlessly: TooLarge
// (RESULT_TOO_LARGE), Conflict (SESSION_SUSPENDED).
func (p *post) checkAwaited(t *submission) error {
	reply := p.operation.reply
	switch {
	case slices.ContainsFunc(t.awaited, func(c *statev1.Call) bool { return reply.calls[c.GetToolCallId()] <= callWaiting }):
		return nil
	case reply.tooLarge:
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE",
			"a result may have at most %d bytes, and an error or a reason %d; send a smaller one, or a reference to it", maxResult, maxError).
			WithSizes(0, maxResult)
	default:
		return conflict(t.session, "SESSION_SUSPENDED",
			"the conversation %q waits for an answer that the message does not have; load its messages", p.body.ID)
	}
}

// conflict returns a fault with the status and the newest run of the session. The session is nil if it does not exist.
func conflict(session *statev1.Session, reason, format string, args ...any) error {
	f := fault.New(fault.Conflict, reason, format, args...)
	if session == nil {
		return f
	}
	return f.With("currentStatus", conversation.SessionStatus(session.GetStatus())).With("currentRunId", session.GetCurrentRunId())
}

func (p *post) errStale(session *statev1.Session) error {
	return conflict(session, runStale,
		"the conversation %q has newer messages; load them, and repeat the request if it is still wanted", p.body.ID)
}

func (p *post) errOwnerEnded(session *statev1.Session) error {
	return conflict(session, "OWNER_NOT_CONTINUABLE", "the conversation %q has ended; send a message instead", p.body.ID)
}

func runIDs(runs []*statev1.Run) map[string]bool {
	ids := map[string]bool{}
	for _, run := range runs {
		ids[run.GetRunId()] = true
	}
	return ids
}

func containsRun(runs []*statev1.Run, id string) bool {
	return slices.ContainsFunc(runs, func(run *statev1.Run) bool { return run.GetRunId() == id })
}
