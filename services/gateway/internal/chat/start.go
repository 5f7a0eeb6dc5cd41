package chat

import (
	"cmp"
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// start sends, edits or regenerates: one StartRun, whose answer has all that the exchange needs. Two requests are
// repeated. A new session takes in the client's conversation, which is decoded and sent only if the state service does
// not know the session. And a message that would wait may answer calls that only the live log knows: see startRun.
func (p *post) start(ctx context.Context) (*Exchange, error) {
	list := &p.body.list
	defer func() { list.raw = nil }() // a stream may last long
	earlier := list.earlier(p.operation.intent)
	r := p.startRequest(ctx, earlier)
	started, err := p.startRun(ctx, r)
	takesIn := r.GetMustExist() && fault.ReasonOf(err) == sessionNotFound
	if takesIn {
		r.MustExist = false
		if r.History, err = p.history(earlier, list.count-len(list.raw)+len(earlier)); err != nil {
			return nil, err
		}
		started, err = p.startRun(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	created, repeated := started.GetSessionCreated(), started.GetRepeated()
	switch {
	case !created: // another request may have created it meanwhile
		p.counts.IgnoredMessages = int(started.GetUnknownMessages())
	case !takesIn:
		p.counts.IgnoredMessages = len(earlier)
	}
	p.counts.RemovedMessages = int(started.GetRemovedMessages())
	p.counts.MissingMessages = int(started.GetMissingMessages())
	if r.GetCustomState() == "" || !created && !repeated {
		p.body.ignoreState()
	}
	if repeated {
		runs := started.GetMessageRuns()
		if len(runs) == 0 { // the message was removed
			return nil, p.errStale(started.GetSession())
		}
		return p.exchange("", started.GetSession(), runs), nil
	}
	path := startPaths[p.operation.intent]
	switch {
	case created:
		path = pathFresh
	case len(started.GetAbandonedCalls()) > 0:
		path = pathAbandon
	}
	e := p.exchange(path, started.GetSession(), []*statev1.Run{started.GetRun()})
	e.beginsRun = true
	return e, nil
}

// startPaths are the paths of new runs in existing sessions.
var startPaths = map[intent]string{send: pathContinue, edit: pathEdit, regenerate: pathRegenerate}

// startRequest returns the request for a run. earlier are the client's messages before the one of the operation. The
// request key makes it safe to repeat.
func (p *post) startRequest(ctx context.Context, earlier []rawValue) *statev1.StartRunRequest {
	o := p.operation
	r := &statev1.StartRunRequest{
		Tenant: p.request.Tenant, SessionId: p.body.ID, RequestKey: p.key, SeenRunId: p.body.RunID,
		AgentType: p.body.AgentType, DefaultAgentType: p.chat.sessions.DefaultAgent,
		OnBusy: p.busy, DefaultOnBusy: cmp.Or(p.request.OnBusy, statev1.BusyPolicy_BUSY_POLICY_INTERRUPT),
		AbandonCalls: true, EarlierMessageIds: userIDs(earlier),
	}
	if r.GetRequestKey() == "" {
		r.RequestKey = p.chat.newID()
	}
	r.Traceparent, r.Tracestate = telemetry.Traceparent(ctx)
	if caller, _ := auth.From(ctx); caller.May(auth.Operate) { // as over the sockets of instances
		r.CustomState = p.body.State
	}
	switch o.intent {
	case edit:
		r.Intent = &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{MessageId: o.target}}
	case regenerate:
		r.Intent = &statev1.StartRunRequest_Regenerate{Regenerate: &statev1.Regenerate{MessageId: o.target, AnswerId: o.answerID}}
	}
	if o.intent != regenerate && !p.request.KeepMissing {
		r.Missing = p.chat.config.Missing
	}
	// The state service cannot match a message without an id with the stored one.
	if o.message == nil || o.intent == regenerate && o.message.GetId() == "" {
		return r
	}
	o.message.Caller = p.body.callerInput()
	r.Messages = append(r.Messages, o.message)
	r.Answers = toSubmitted(o.reply.lastStepAnswers())
	r.RefuseUnknownAnswers = len(r.GetAnswers()) > 0
	r.MustExist = p.chat.config.History && len(earlier) > 0 && r.GetSeenRunId() == "" // with a run id, it never creates a session
	return r
}

// startRun starts the run. A message that waits for the live run must not answer a call of its step in flight: no run
// would take the answer, and the session would wait for it. startRun waits for the call to open, then refuses the whole
// message: Unavailable (CALL_NOT_OPEN). The state service knows such a call only once the plan is recorded; the live
// log has it earlier.
func (p *post) startRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	var started *statev1.StartRunResponse
	err := retry.Do(ctx, p.chat.policy, func() (err error) {
		started, err = p.chat.runs.StartRun(ctx, r)
		if fault.ReasonOf(err) != answersUnknown {
			return err
		}
		if err := p.refuseEarlyAnswers(ctx, r.GetAnswers()); err != nil {
			return err
		}
		r.RefuseUnknownAnswers = false // the step in flight does not have them either
		started, err = p.chat.runs.StartRun(ctx, r)
		return err
	})
	return started, err
}

// refuseEarlyAnswers gives Unavailable (CALL_NOT_OPEN) if an answer is for a call of the step in flight. If the log does
// not answer within answeredTimeout, its calls are ignored.
func (p *post) refuseEarlyAnswers(ctx context.Context, answers []*statev1.SubmittedAnswer) error {
	session, _, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, answeredTimeout)
	defer cancel()
	awaited := awaitedCalls(p.chat.follower.StepInFlight(limited, session))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, a := range answers {
		if id := a.GetToolCallId(); awaited[id] {
			return fault.New(fault.Unavailable, "CALL_NOT_OPEN", "the run of call %q has not suspended yet; send the same message again", id)
		}
	}
	return nil
}

// awaitedCalls returns the calls of the step in flight for a client or a human to answer.
func awaitedCalls(inFlight []*frame.Frame) map[string]bool {
	awaited := map[string]bool{}
	for _, f := range inFlight {
		if start := f.Chunk.GetToolStart(); start.GetAwaitsClient() {
			awaited[start.GetToolCallId()] = true
		}
		if request := f.Chunk.GetToolApprovalRequest(); request != nil {
			awaited[request.GetToolCallId()] = true
		}
	}
	return awaited
}
