package loop

import (
	"cmp"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// trial counts the model calls of a step. Each step begins with the agent's own model; which model answered
// before is not stored.
type trial struct {
	attempt int // calls so far over all models
	model   int // 0 is the agent's own, followed by its fallbacks
	retries int // of this model
}

// defaultRetries is the number of retries after transient failures of a model.
const defaultRetries = 3

// Failed answers CallModel with its error and the partial reply; nil for none. A retryable error is retried
// after a delay, as often as the agent permits. Afterwards, and after other errors, the agent's next model is
// called. After the last model the run fails, and its partial reply stays in the conversation. After a refusal the model
// is called with another request: see refused.
func (p *Planner) Failed(reply *Reply, err error) {
	asked := expect[CallModel](p)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Refusal != nil {
		p.next = p.refused(asked, reply, modelFailure(err), *e.Refusal)
		return
	}
	p.failed(reply, err)
}

func (p *Planner) failed(reply *Reply, err error) {
	failure := modelFailure(err)
	switch {
	case failure.Retryable && p.trial.retries < p.maxRetries():
		p.trial.retries++
		jitter := 0.0
		if p.start.Jitter != nil {
			jitter = p.start.Jitter()
		}
		p.next = Wait{Step: p.step, For: backoff(p.trial.retries, err, jitter), Cause: failure}
	case p.trial.model < len(p.start.Agent.Fallbacks) && failure.Code != model.CodeInvalidRequest:
		p.trial.model++
		p.trial.retries = 0
		p.next = p.callModel()
	case failure.Code == model.CodeUnsupported && p.outputOwed():
		p.next = p.failReply(reply, unsupportedFailure(failure))
	default:
		p.next = p.failReply(reply, failure)
	}
}

// failReply fails the run with the visible part of its last reply.
func (p *Planner) failReply(reply *Reply, f Failure) Effect {
	return p.cutReply(reply, agent.MetadataFailed, cmp.Or(f.Code, failedWithoutCode), errRunFailed, failed(f).Outcome)
}

// failedWithoutCode is the value of agent.MetadataFailed for a failure without a code.
const failedWithoutCode = "error"

// Waited answers Wait.
func (p *Planner) Waited() {
	expect[Wait](p)
	p.next = p.callModel()
}

func (p *Planner) maxRetries() int {
	if p.start.Agent.MaxRetries != nil {
		return *p.start.Agent.MaxRetries
	}
	return defaultRetries
}

func (p *Planner) modelName() string {
	return append([]string{p.start.Agent.Model}, p.start.Agent.Fallbacks...)[p.trial.model]
}

func failed(f Failure) Finish {
	return Finish{Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: &f}}
}
