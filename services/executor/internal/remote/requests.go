package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/step"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// The requests to the other Holdfast that change its session: start, resume, answers and stops. All may be repeated.

// repeat repeats a request until it succeeds or is refused. It gives up after the patience, and when the executor drains.
func (c *Copier) repeat(ctx context.Context, patience time.Duration, request func(ctx context.Context) error) error {
	deadline := c.Now().Add(patience)
	var wait retry.Backoff
	for {
		call, cancel := context.WithTimeout(ctx, c.CallTimeout)
		err := request(call)
		cancel()
		if err == nil || ctx.Err() != nil || isRefusal(err) || c.Now().After(deadline) || isClosed(c.Draining) {
			return err
		}
		if err := wait.Sleep(ctx); err != nil {
			return err
		}
	}
}

// begin starts or continues the remote session, and returns the run there to copy.
func (c *Copier) begin(ctx context.Context) (run string, err error) {
	err = c.repeat(ctx, c.Patience, func(ctx context.Context) (err error) {
		run, err = c.start(ctx)
		return err
	})
	return run, err
}

func (c *Copier) start(ctx context.Context) (run string, err error) {
	switch c.Entry { //nolint:exhaustive // the others start
	case statev1.RunEntry_RUN_ENTRY_CONTINUATION:
		return c.answer(ctx)
	case statev1.RunEntry_RUN_ENTRY_RESUME:
		resumed, err := c.client.Resume(ctx, &agentv1.ResumeRequest{SessionId: c.session, Message: c.Message, RequestKey: c.Run.RunID})
		switch fault.ReasonOf(err) {
		case "SESSION_NOT_FOUND": // the stop came before the start there
		case "SESSION_COMPLETED", "SESSION_BUSY", "SESSION_SUSPENDED": // the stop came too late there
			return c.answer(ctx)
		default:
			return resumed.GetRunId(), err
		}
	}
	request := &agentv1.StartRequest{
		SessionId: c.session, AgentType: c.Agent.Agent, Message: cmp.Or(c.Message, c.Question), RequestKey: c.Run.RunID,
	}
	if !c.Deadline.IsZero() {
		request.TimeoutMs = max(1, c.Deadline.Sub(c.Now()).Milliseconds())
	}
	started, err := c.client.Start(ctx, request)
	return started.GetRunId(), err
}

// answer sends the answers to calls there, and returns the run that goes on. Calls that do not wait any more have
// been answered there: by this run before, or by their deadline.
func (c *Copier) answer(ctx context.Context) (run string, err error) {
	found, err := c.client.Get(ctx, c.session)
	if err != nil {
		return "", err
	}
	c.consumed = nil
	c.results = nil
	for _, call := range c.Calls {
		id := call.GetToolCallId()
		if call.GetAnswer() == nil || call.GetConsumedAt() != 0 {
			continue
		}
		c.consumed = append(c.consumed, loop.Consumed{CallID: id, Revision: int(call.GetRevision())})
		if slices.Contains(c.progress.Below, id) {
			c.results = append(c.results, resultBelow(call))
		}
		for _, p := range found.GetPendingCalls() {
			if CallID(c.Run, p.GetToolCallId()) != id {
				continue
			}
			if err := c.submit(ctx, p, call.GetAnswer()); err != nil {
				return "", err
			}
		}
	}
	// The end of the newest copied run leads to the run after it.
	return cmp.Or(c.progress.Run, found.GetRunId()), nil
}

// resultBelow returns the result here of an answered call of a sub-agent there.
func resultBelow(call *statev1.Call) agent.ToolResult {
	answer := call.GetAnswer()
	result := agent.ToolResult{
		CallID: call.GetToolCallId(), Name: call.GetToolName(), Success: answer.GetError() == "", Error: answer.GetError(),
	}
	if answer.GetResult() != "" {
		result.Result = json.RawMessage(answer.GetResult())
	}
	if decision := answer.GetApproval(); decision != nil {
		result.Success = decision.GetApproved()
		result.Result = json.RawMessage(`null`)
		if !decision.GetApproved() {
			result.Error = "it was not approved"
		}
	}
	return result
}

// refusedApproval is why a call is denied whose approval the other Holdfast has refused.
const refusedApproval = "the call was approved, but the other Holdfast accepts no approval from the key that started the run"

func (c *Copier) submit(ctx context.Context, p *agentv1.PendingCall, a *statev1.CallAnswer) (err error) {
	call := client.Call{Session: c.session, ID: p.GetToolCallId(), Approval: p.GetApprovalId()}
	switch decision := a.GetApproval(); {
	case decision.GetApproved():
		_, err = c.client.Approve(ctx, call, decision.GetReason())
		if fault.ReasonOf(err) == "APPROVER_REFUSED" { // for the other Holdfast, our key is who started the run
			c.Log.WarnContext(ctx, "the remote agent takes no approval from the key that started its run; the call is denied",
				"tool", p.GetToolName(), "error", err)
			_, err = c.client.Deny(ctx, call, refusedApproval)
		}
	case decision != nil:
		_, err = c.client.Deny(ctx, call, decision.GetReason())
	case a.GetError() != "":
		_, err = c.client.SubmitError(ctx, call, a.GetError())
	default:
		_, err = c.client.SubmitResult(ctx, call, json.RawMessage(a.GetResult()))
	}
	switch fault.ReasonOf(err) {
	case "UNKNOWN_TOOL_CALL", "OWNER_NOT_CONTINUABLE": // answered or ended meanwhile, and the copy shows how
		return nil
	}
	return err
}

// suspend suspends the run here on the calls there.
func (c *Copier) suspend(ctx context.Context, pending []*agentv1.PendingCall) error {
	commit := loop.Commit{Answering: true, Outcome: &loop.Outcome{Status: loop.StatusSuspendedClientTool, FinishReason: model.FinishToolCalls}}
	below := agent.Message{ID: loop.MessageID(c.Run, c.Step+1, "below", 0), Role: agent.RoleAssistant}
	var chunks []*eventv1.Chunk
	for _, p := range pending {
		id := CallID(c.Run, p.GetToolCallId())
		if slices.ContainsFunc(c.Calls, func(call *statev1.Call) bool { return call.GetToolCallId() == id && call.GetAnswer() == nil }) {
			continue // open since before an interrupt
		}
		open := loop.OpenCall{
			ToolCall: agent.ToolCall{ID: id, Name: p.GetToolName(), Arguments: json.RawMessage(p.GetInput()), Dynamic: true},
			Approval: p.GetApprovalId() != "", ApprovalID: p.GetApprovalId(),
		}
		if p.GetApprovers() == string(agent.Others) {
			open.Approvers = agent.Others
		}
		if at := p.GetDeadlineAt(); at > 0 { // the other Holdfast decides about it, and a little later it is decided
			open.AnswerWithin = loop.Millis(max(1, at-c.Now().UnixMilli()) + pausedInterval.Milliseconds())
		}
		commit.Suspend = append(commit.Suspend, open)
		if open.Approval {
			chunks = append(chunks, step.ApprovalRequest(&eventv1.ToolApprovalRequest{
				ToolCallId: id, ToolName: p.GetToolName(), ApprovalId: p.GetApprovalId(), Input: p.GetInput(),
			}))
		}
		if p.GetSessionId() != c.session {
			c.progress.Below = append(c.progress.Below, open.ID)
			below.Parts = append(below.Parts, open.ToolCall)
			call := &eventv1.ToolCallPart{ToolCallId: id, ToolName: p.GetToolName(), Arguments: p.GetInput(), Dynamic: true}
			chunks = append(chunks, step.ToolStart(call, !open.Approval))
		}
	}
	if err := c.run.Show(ctx, c.Step+1, chunks...); err != nil {
		return local(err)
	}
	if len(below.Parts) > 0 {
		commit.Messages = []agent.Message{below}
	}
	return c.commit(ctx, commit)
}

// deliver sends a new stop to the remote session until it is confirmed. The run here does not end before, so a
// new owner of the run delivers it if this executor is lost. It returns an error when it gives up.
func (c *Copier) deliver(ctx context.Context, stop loop.Stop) error {
	c.stopped = &stop
	return c.sendStop(ctx, stop)
}

// finishUndelivered ends the run here after a stop that could not be delivered. An executor that stops leaves the
// delivery to the next owner of the run.
func (c *Copier) finishUndelivered(ctx context.Context) error {
	switch {
	case isClosed(c.Draining):
		return ErrDraining
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return c.run.Finish(ctx, c.stopped.Outcome())
}

// Abort aborts the run there, without a consequence for the run here. It logs a failure.
func (c *Copier) Abort(ctx context.Context, reason string) {
	_ = c.sendStop(ctx, loop.Stop{Kind: loop.StopAbort, Reason: reason})
}

// sendStop repeats the stop until it is confirmed, for StopPatience. It logs a failure, and returns it.
func (c *Copier) sendStop(ctx context.Context, stop loop.Stop) error {
	err := c.repeat(ctx, c.StopPatience, func(ctx context.Context) (err error) {
		if stop.Kind == loop.StopInterrupt {
			_, err = c.client.Interrupt(ctx, &agentv1.InterruptRequest{SessionId: c.session, Reason: stop.Reason})
		} else {
			_, err = c.client.Abort(ctx, &agentv1.AbortRequest{SessionId: c.session, Reason: stop.Reason})
		}
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err
	})
	if err != nil {
		c.Log.ErrorContext(ctx, "the remote agent could not be stopped; it may go on",
			"url", c.Agent.URL, "session", c.session, "error", err)
	}
	return err
}

// NewHTTP returns an HTTP client for the gateways of others. Requests have the trace context of the run.
func NewHTTP() *http.Client {
	c := model.HTTPClient(nil)
	c.Transport = traced{c.Transport}
	return c
}

// traced adds the trace context to requests.
type traced struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return t.next.RoundTrip(r)
}
