package chat

import (
	"cmp"
	"context"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// send sends the user message.
func (p *post) send(ctx context.Context) (*Exchange, error) {
	r, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	return p.begin(ctx, pathContinue, r)
}

// edit replaces the message with the same id.
func (p *post) edit(ctx context.Context) (*Exchange, error) {
	r, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	r.Intent = &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{MessageId: p.operation.target}}
	return p.begin(ctx, pathEdit, r)
}

// regenerate requests another answer to a user message. A message without an id is not sent,
// because the state service cannot match it with the stored one.
func (p *post) regenerate(ctx context.Context) (*Exchange, error) {
	if p.operation.message.GetId() == "" {
		p.operation.message = nil
	}
	r, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	r.Intent = &statev1.StartRunRequest_Regenerate{Regenerate: &statev1.Regenerate{MessageId: p.operation.target, AnswerId: p.operation.answerID}}
	return p.begin(ctx, pathRegenerate, r)
}

// start makes the request for a run, without its intent. The request key makes it safe to repeat.
// Invalid (AGENT_REQUIRED).
func (p *post) start(ctx context.Context) (*statev1.StartRunRequest, error) {
	r := &statev1.StartRunRequest{
		Tenant: p.request.Tenant, SessionId: p.body.ID, AgentType: p.body.AgentType, RequestKey: p.key,
		OnBusy: p.busy, DefaultOnBusy: cmp.Or(p.request.OnBusy, statev1.BusyPolicy_BUSY_POLICY_INTERRUPT), AbandonCalls: true, SeenRunId: p.body.RunID,
	}
	if r.GetRequestKey() == "" {
		r.RequestKey = p.chat.newID()
	}
	r.Traceparent, r.Tracestate = telemetry.Traceparent(ctx)
	if caller, _ := auth.From(ctx); caller.May(auth.Operate) { // as over the sockets of instances
		r.CustomState = p.body.State
	}
	if p.operation.message == nil {
		return r, nil
	}
	r.Messages = append(r.Messages, p.operation.message)
	r.Answers = toSubmitted(p.operation.reply.lastStepAnswers())
	if r.GetAgentType() != "" || r.GetSeenRunId() != "" { // a request with a run id never creates a session
		return r, nil
	}
	var err error
	r.AgentType, err = p.chat.sessions.AgentFor(ctx, p.request.Tenant, p.body.ID)
	return r, err
}

// begin starts r and returns the exchange of its run. path is the path of a new run in an existing
// session.
func (p *post) begin(ctx context.Context, path string, r *statev1.StartRunRequest) (*Exchange, error) {
	started, err := p.startTakingIn(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case started.GetRepeated():
		return p.repeated(ctx, started)
	case started.GetSessionCreated():
		path = pathFresh
	case len(started.GetAbandonedCalls()) > 0:
		path = pathAbandon
	}
	begun := p.exchange(path, started.GetSession(), started.GetRun())
	begun.beginsRun = true
	return begun, nil
}

func (p *post) startRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	var started *statev1.StartRunResponse
	err := retry.Do(ctx, p.chat.policy, func() (err error) {
		started, err = p.chat.runs.StartRun(ctx, r)
		return err
	})
	return started, err
}

// repeated returns an exchange for the run of an identical earlier request, or for the newest run
// of its message. Conflict (RUN_STALE): the run's message was rewound.
func (p *post) repeated(ctx context.Context, started *statev1.StartRunResponse) (*Exchange, error) {
	session, run := started.GetSession(), started.GetRun()
	if started.GetWaiting() || conversation.NeverStarted(run) || run.GetRunId() == session.GetCurrentRunId() {
		return p.existing(session, run), nil
	}
	session, newest, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if err != nil {
		return nil, err
	}
	if newest.GetMessageId() == run.GetMessageId() {
		return p.existing(session, newest), nil
	}
	stands, err := p.chat.sessions.StartMessageExists(ctx, p.request.Tenant, run)
	if err != nil {
		return nil, err
	}
	if !stands {
		return nil, p.errStale(session)
	}
	return p.existing(session, run), nil
}
