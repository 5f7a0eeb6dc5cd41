package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
	"github.com/holdfast-run/holdfast/services/executor/internal/sessionstore"
)

// releaseTimeout bounds the release of a run, whose context may have ended.
const releaseTimeout = 2 * time.Second

// The state service's reasons to refuse a result or writes to the custom state.
const (
	reasonResultTooLarge    = "RESULT_TOO_LARGE"
	reasonStateSizeExceeded = "STATE_SIZE_EXCEEDED"
	reasonStateInvalid      = "STATE_INVALID"
	reasonsOfStore          = "STORE_" // of all refused writes to the private store
)

// recorder writes a run's progress to the state service, under the epoch of its claim. It repeats each write
// until the result is known. Writes carry the pending usage. Many goroutines may call result at once, but no
// other method.
type recorder struct {
	worker  *Worker
	claimed claimedRun
	log     *slog.Logger
	usage   *account
	journal stepJournal
	// openStep is the id of the step of the claim's open calls; empty for none.
	openStep  string
	subAgents subAgentCalls
}

// isLost reports whether the run belongs to another executor, has ended or was deleted.
func isLost(err error) bool {
	switch fault.ReasonOf(err) {
	case "EPOCH_STALE", "RUN_FINISHED", "SESSION_NOT_FOUND", "RUN_NOT_FOUND":
		return true
	}
	return false
}

// isBehind reports whether the database lacks a write of this claim that it has acknowledged: a failover has lost it. The
// next claim goes on from what is stored.
func isBehind(err error) bool {
	switch fault.ReasonOf(err) {
	case "STEP_STALE", "CALL_UNKNOWN":
		return true
	}
	return false
}

// isAnswerChanged reports whether a step has used a replaced answer.
func isAnswerChanged(err error) bool { return fault.ReasonOf(err) == "ANSWER_CHANGED" }

// openStep returns the id of the step of the claim's open calls; empty for none.
func openStep(claim *statev1.Claim) string {
	for _, c := range claim.GetCalls() {
		if c.GetAnswer() == nil && c.GetStepId() != "" {
			return c.GetStepId()
		}
	}
	return ""
}

func (r *recorder) call(ctx context.Context, f func(ctx context.Context) error) error {
	return retry.Call(ctx, r.worker.config.CallTimeout, f)
}

// callWithUsage makes a call with the pending usage. The usage stays pending if the call was refused.
func (r *recorder) callWithUsage(ctx context.Context, f func(ctx context.Context) error) error {
	err := r.call(ctx, f)
	if err == nil || ctx.Err() != nil {
		r.usage.sent()
	}
	return err
}

// plan makes the plan of the step durable, with the hook writes before it. If the state service refuses the
// writes, it receives the plan without them: dropped.
func (r *recorder) plan(ctx context.Context, step int, plan agent.Message, ops []agent.Op) (dropped bool, err error) {
	request := &statev1.RecordPlanRequest{
		Run: r.claimed.ref, Step: int32(step), Plan: fromMessage(plan, r.claimed.ref.GetRunId(), step, nil),
		Usage: r.usage.forRequest(ctx), Ops: fromOps(ops),
	}
	record := func(ctx context.Context) error {
		_, err := r.worker.peers.Work.RecordPlan(ctx, request)
		return err
	}
	err = r.callWithUsage(ctx, record)
	if reason := fault.ReasonOf(err); len(ops) > 0 && (reason == reasonStateSizeExceeded || reason == reasonStateInvalid) {
		r.log.WarnContext(ctx, "the writes of hooks before the reply are dropped: the state service refuses them", "step", step, "error", err)
		dropped, request.Ops = true, nil
		err = r.callWithUsage(ctx, record)
	}
	if err != nil {
		return dropped, fmt.Errorf("record the plan of step %d: %w", step, err)
	}
	r.journal.begin(plan)
	return dropped, nil
}

// result makes the result of a call durable. If the state service refuses the result or its writes, the call
// becomes a failed one.
func (r *recorder) result(ctx context.Context, step int, o *outcome, decided *loop.Decision) error {
	record := func() error {
		result := fromResult(o.Result)
		result.Approval = fromDecision(decided)
		if o.Awaits != nil {
			result.LaterUntil = o.Awaits.Until
		}
		return r.call(ctx, func(ctx context.Context) error {
			_, err := r.worker.peers.Work.RecordResult(ctx, &statev1.RecordResultRequest{
				Run: r.claimed.ref, Step: int32(step),
				Result: &statev1.CallResult{
					Result: result, Ops: fromOps(o.Ops), Usage: o.usage, Store: sessionstore.Writes(o.Store), Context: fromRows(o.Context),
				},
			})
			return err
		})
	}
	err := record()
	if problem := refusal(err, len(o.Result.Result)); problem != "" {
		o.fail(problem)
		err = record()
	}
	if err != nil {
		return fmt.Errorf("record the result of call %s: %w", o.Result.CallID, err)
	}
	r.journal.add(o.asRecorded())
	return nil
}

// storeReader returns the reader of the session's private store.
func (r *recorder) storeReader() agent.StoreReader {
	return sessionstore.Reader{
		Sessions: r.worker.peers.Sessions, Tenant: r.claimed.ref.GetTenant(), SessionID: r.claimed.ref.GetSessionId(),
		Granted: r.claimed.granted(), Timeout: r.worker.config.CallTimeout,
	}
}

// refusal returns why the state service has refused a result of this size, for the model. It is empty for an
// error with another cause.
func refusal(err error, bytes int) string {
	f, ok := fault.From(err)
	if !ok {
		return ""
	}
	switch {
	case f.Reason == reasonStateSizeExceeded:
		return "state_size_exceeded: the tool's writes to the state are more than can be stored (" + f.Detail + "); none was stored"
	case f.Reason == reasonStateInvalid:
		return "the tool's writes to the state cannot be stored (" + f.Detail + "); none was stored"
	case strings.HasPrefix(f.Reason, reasonsOfStore) && (f.Kind == fault.Invalid || f.Kind == fault.TooLarge):
		return "the tool's writes to the store cannot be stored (" + f.Detail + "); none was stored"
	case f.Reason == reasonResultTooLarge || f.Kind == fault.TooLarge:
		return fmt.Sprintf("result_too_large: the tool's result has %d bytes, more than can be stored; ask for less", bytes)
	}
	return ""
}

// commitRequest returns the request that commits a step, without its state writes and its record for readers. A suspension
// has the trace of the run from ctx.
func (r *recorder) commitRequest(ctx context.Context, e loop.Commit) *statev1.CommitStepRequest {
	usage := slices.Concat(r.usage.forRequest(ctx), r.subAgents.usage(e.Consumed))
	request := &statev1.CommitStepRequest{
		Run: r.claimed.ref, Step: int32(e.Step), ToldCalls: e.Reported, Usage: usage[:min(len(usage), maxReported)],
	}
	for _, c := range e.Consumed {
		request.ConsumedCalls = append(request.ConsumedCalls, &statev1.ConsumedCall{ToolCallId: c.CallID, Revision: int32(c.Revision)})
	}
	if e.Outcome != nil && isSuspended(*e.Outcome) {
		stepID := r.stepID(e)
		request.Suspension = &statev1.Suspension{StepId: stepID}
		if span := trace.SpanContextFromContext(ctx); span.IsValid() {
			request.Suspension.TraceId = span.TraceID().String()
			request.Suspension.RootSpanId = span.SpanID().String()
		}
		r.addCalls(ctx, request, e.Suspend)
	}
	for _, m := range e.Messages {
		request.Messages = append(request.Messages, fromMessage(m, r.claimed.ref.GetRunId(), e.Step, e.Decisions))
	}
	if e.Outcome != nil {
		request.Outcome = fromOutcome(*e.Outcome, r.usage.total)
	}
	return request
}

// addCalls adds the open calls of a suspension, and the sessions of those for sub-agents.
func (r *recorder) addCalls(ctx context.Context, request *statev1.CommitStepRequest, calls []loop.OpenCall) {
	now := r.claimed.stateTime(r.worker.peers.Now())
	for _, c := range calls {
		open := &statev1.Call{
			ToolCallId: c.ID, ToolName: clean(c.Name), StepId: request.GetSuspension().GetStepId(), Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
			Input: clean(string(c.Arguments)),
		}
		if c.AnswerWithin > 0 {
			open.DeadlineAt = now.UnixMilli() + int64(c.AnswerWithin)
		}
		switch {
		case c.SubAgent != "" && c.Begun: // the record of a companion, with the call that it answers next
			open.Kind = statev1.CallKind_CALL_KIND_SUB_AGENT
			request.SubSessions = append(request.SubSessions, &statev1.SubSession{
				SessionId: c.SessionID, AgentType: c.SubAgent, ParentToolCallId: c.ID, Status: statev1.SessionStatus_SESSION_STATUS_ACTIVE,
				Mode: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT, Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL,
			})
		case c.SubAgent != "":
			open.Kind = statev1.CallKind_CALL_KIND_SUB_AGENT
			request.NewSubSessions = append(request.NewSubSessions, &statev1.NewSubSession{
				SessionId: c.SessionID, AgentType: c.SubAgent, ToolCallId: c.ID, TimeoutMs: r.claimed.remaining(now), Messages: userMessage(c.Message),
				Traceparent: r.traceOfCall(ctx, c.ToolCall),
			})
		case c.Until != 0:
			open.Kind = statev1.CallKind_CALL_KIND_CALLBACK
			open.DeadlineAt = c.Until
		case c.Approval:
			open.Kind = statev1.CallKind_CALL_KIND_APPROVAL
			open.ApprovalId = c.ApprovalID
			if c.Approvers == agent.Others {
				open.Approvers = statev1.Approvers_APPROVERS_OTHERS
			}
		}
		request.Calls = append(request.Calls, open)
	}
}

// traceOfCall returns the trace of the session that answers a call: its spans are below that of the call, which ends with the
// step.
func (r *recorder) traceOfCall(ctx context.Context, c agent.ToolCall) string {
	ctx, span := startToolSpan(ctx, r.worker.peers.Tracer, r.claimed.ref.GetSessionId(), c, r.worker.config.TraceContent)
	defer span.End()
	traceparent, _ := telemetry.Traceparent(ctx)
	return traceparent
}

// commit makes the step of the request durable. With an outcome it ends the run.
func (r *recorder) commit(ctx context.Context, request *statev1.CommitStepRequest) (answer *statev1.CommitStepResponse, err error) {
	err = r.callWithUsage(ctx, func(ctx context.Context) (err error) {
		answer, err = r.worker.peers.Work.CommitStep(ctx, request)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("commit step %d: %w", request.GetStep(), err)
	}
	for _, warning := range answer.GetWarnings() {
		r.log.WarnContext(ctx, "the state writes were merged with a warning", "step", request.GetStep(), "warning", warning)
	}
	r.journal.end()
	return answer, nil
}

// stepID returns an id for the step of the open calls: the id of their message. Calls of an earlier
// step keep their step's id.
func (r *recorder) stepID(e loop.Commit) string {
	if (len(e.Suspend) == 0 || e.Answering) && r.openStep != "" {
		return r.openStep
	}
	for _, m := range e.Messages {
		if m.Role == agent.RoleAssistant {
			return m.ID
		}
	}
	return fmt.Sprintf("step-%d", e.Step)
}

// finish ends the run outside of a step. It returns when the run ended, by the clock of the state service; 0 if unknown.
func (r *recorder) finish(ctx context.Context, o loop.Outcome) (at int64, err error) {
	request := &statev1.FinishRunRequest{Run: r.claimed.ref, Outcome: fromOutcome(o, r.usage.total)}
	var answer *statev1.FinishRunResponse
	err = r.withUsage(ctx, r.usage.forRequest(ctx), func(usage []*eventv1.UsageEntry) error {
		request.Usage = usage
		return r.callWithUsage(ctx, func(ctx context.Context) (err error) {
			answer, err = r.worker.peers.Work.FinishRun(ctx, request)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("finish the run: %w", err)
	}
	return answer.GetFinishedAt(), nil
}

// release returns the run to the queue for a claim after the delay, also when ctx has ended. It logs a failure. seen is
// what the database has lost; nil for nothing.
func (r *recorder) release(ctx context.Context, delay time.Duration, seen *statev1.LostWork) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := r.withUsage(ctx, r.usage.forRelease(ctx), func(usage []*eventv1.UsageEntry) error {
		return r.call(ctx, func(ctx context.Context) error {
			_, err := r.worker.peers.Work.ReleaseRun(ctx, &statev1.ReleaseRunRequest{
				Run: r.claimed.ref, DelayMs: delay.Milliseconds(), Usage: usage, Seen: seen,
			})
			return err
		})
	})
	switch {
	case isLost(err):
		r.log.InfoContext(ctx, "the run belongs to another executor now")
	case err != nil:
		r.log.WarnContext(ctx, "the run could not be released; it will be claimed again when the executor is missed", "error", err)
	case seen != nil:
		r.log.WarnContext(ctx, "the database has lost commits; the run goes on from what is stored",
			"epoch", seen.GetEpoch(), "step", seen.GetStep())
	}
}

// withUsage sends the end of the claim. If it is refused, it is sent again without its usage.
func (r *recorder) withUsage(ctx context.Context, usage []*eventv1.UsageEntry, send func([]*eventv1.UsageEntry) error) error {
	err := send(usage)
	if kind := fault.KindOf(err); err != nil && len(usage) > 0 && (kind == fault.Invalid || kind == fault.TooLarge) {
		r.log.ErrorContext(ctx, "the end of the claim was refused and is sent again without its usage", "entries", len(usage), "error", err)
		return send(nil)
	}
	return err
}

// stepJournal has the recorded plan of the step in flight and the results of its calls, for giving up the run.
// Unrecorded results have no writes. The zero value has no plan. Safe for concurrent use.
type stepJournal struct {
	mu      sync.Mutex
	planned bool
	plan    agent.Message
	results []loop.Recorded
}

// begin sets a recorded plan, with the results recorded so far.
func (j *stepJournal) begin(plan agent.Message, results ...loop.Recorded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.planned, j.plan, j.results = true, plan, slices.Clone(results)
}

// hasPlan reports whether the plan is recorded.
func (j *stepJournal) hasPlan() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.planned
}

// add adds a recorded result, or one for the commit.
func (j *stepJournal) add(result loop.Recorded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.planned {
		j.results = append(j.results, result)
	}
}

// end clears the journal after the commit.
func (j *stepJournal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.planned, j.plan, j.results = false, agent.Message{}, nil
}

// current returns the journal; nil without a plan.
func (j *stepJournal) current() *loop.Journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.planned {
		return nil
	}
	return &loop.Journal{Plan: j.plan, Results: slices.Clone(j.results)}
}
