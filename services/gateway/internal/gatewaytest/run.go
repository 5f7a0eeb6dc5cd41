package gatewaytest

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Run is a claimed run. The test is its executor.
type Run struct {
	*statev1.Run

	t      testing.TB
	world  *World
	tenant string
	claim  *statev1.Claim

	now       *attempt           // at the step in flight
	committed int64              // the session's position when the step in flight began
	claims    int32              // of the session, since its last step
	after     int64              // the last appended frame
	ending    *eventv1.Chunk     // says how the run ends
	messages  []*eventv1.Message // of the step in flight
	calls     []*statev1.Call    // answered, not consumed by a step yet
	lost      string             // reason of the next attempt
	silent    bool               // appends no boundary
	partial   bool               // boundaries say that the log lacks a part of the step
	stored    bool               // a shown step of the run is stored

	beforeBoundary func()   // called between a commit and its boundary; may be nil
	checkpoints    []string // of the steps of the run
}

// attempt is an attempt at a step.
type attempt struct {
	step   int32
	number int32 // 0 before it has begun
	next   int32 // number of the next attempt
	chunks []*eventv1.Chunk
}

// shown reports whether the log has chunks of the attempt.
func (a *attempt) shown() bool { return a.number > 0 && len(a.chunks) > 0 }

// last returns the sequence of the last appended chunk.
func (a *attempt) last() int64 {
	return position.Position{Step: a.step, Attempt: a.number, N: int32(len(a.chunks))}.Sequence()
}

func newRun(w *World, t testing.TB, tenant string, claim *statev1.Claim) *Run {
	s := claim.GetSession()
	r := &Run{Run: claim.GetRun(), t: t, world: w, tenant: tenant, claim: claim, committed: s.GetPosition(), claims: s.GetClaims()}
	for _, c := range claim.GetCalls() {
		if c.GetAnswer() != nil && c.GetConsumedAt() == 0 {
			r.calls = append(r.calls, c)
		}
	}
	r.begin(s.GetStepCount() + 1)
	return r
}

// begin makes the step the one in flight.
func (r *Run) begin(step int32) {
	first, _ := position.Attempts(r.claims)
	r.now = &attempt{step: step, next: first}
}

func (r *Run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *Run) ref() *statev1.RunRef {
	return &statev1.RunRef{Tenant: r.tenant, SessionId: r.GetSessionId(), RunId: r.GetRunId(), Epoch: r.claim.GetEpoch()}
}

// append appends a record with the last frame last.
func (r *Run) append(record *streamv2.Record, last int64) {
	r.t.Helper()
	_, err := r.world.executor.stream.Append(context.Background(), &streamv2.AppendRequest{
		Stream: &streamv2.StreamRef{
			Tenant: r.tenant, RootSessionId: r.claim.GetSession().GetRootSessionId(), SessionId: r.GetSessionId(),
		},
		Epoch: r.claim.GetEpoch(), After: r.after, Records: []*streamv2.Record{record},
	})
	r.must(err)
	r.after = last
	r.world.Stream.note(r.tenant, r.GetSessionId(), record)
}

// Show appends chunks of a step and returns the sequence of the last one. step_committed commits the
// step. The chunk that ends a run waits for Complete, Suspend, Interrupt or Fail, and so does a
// step_committed before it.
func (r *Run) Show(step int32, events ...*eventv1.Chunk) int64 {
	r.t.Helper()
	for i, c := range events {
		r.stamp(step, c)
		if s := c.GetRunStarted(); s != nil {
			s.Turn, s.MessageId = r.GetTurn(), r.GetMessageId()
		}
		if c.GetStepStarted() != nil && slices.ContainsFunc(r.now.chunks, func(c *eventv1.Chunk) bool { return c.GetToolEnd() != nil }) {
			r.commitStep(nil, nil) // the step with the results of answered calls
		}
		switch {
		case c.GetStepCommitted() != nil && i+1 < len(events) && endsRun(events[i+1]): // it is committed with the end
		case c.GetStepCommitted() != nil:
			r.commitStep(nil, nil)
		case endsRun(c):
			r.ending = c
		case !r.now.shown():
			r.beginAttempt(r.lost, c)
			r.lost = ""
		default:
			r.write(nil, []*eventv1.Chunk{c})
		}
	}
	if !r.now.shown() {
		return r.committed
	}
	return r.now.last()
}

func (r *Run) stamp(step int32, c *eventv1.Chunk) *eventv1.Chunk {
	c.AgentId, c.AgentType, c.Step = r.GetRunId(), r.GetAgentType(), step
	return c
}

func endsRun(c *eventv1.Chunk) bool {
	return c.GetRunCompleted() != nil || c.GetRunInterrupted() != nil || c.GetRunSuspended() != nil
}

// beginAttempt begins the next attempt at the step in flight.
func (r *Run) beginAttempt(reason string, chunks ...*eventv1.Chunk) {
	r.t.Helper()
	r.now.number, r.now.chunks = r.now.next, nil
	r.now.next++
	r.write(&streamv2.Attempt{Stands: r.committed, RunId: r.GetRunId(), Reason: reason}, chunks)
}

// write appends chunks of the attempt.
func (r *Run) write(a *streamv2.Attempt, chunks []*eventv1.Chunk) {
	r.t.Helper()
	at := position.Position{Step: r.now.step, Attempt: r.now.number, N: int32(len(r.now.chunks) + 1)}.Sequence()
	r.now.chunks = append(r.now.chunks, chunks...)
	r.append(&streamv2.Record{Sequence: at, Chunks: chunks, Attempt: a}, r.now.last())
}

// Rewind begins a new attempt, like an executor that takes over. It repeats the chunks of the last
// attempt up to the sequence.
func (r *Run) Rewind(at int64) {
	r.t.Helper()
	keep := int(position.Of(at).N)
	if position.Of(at).Step != r.now.step || at <= r.committed {
		keep = 0
	}
	chunks := r.now.chunks[:min(keep, len(r.now.chunks))]
	if len(chunks) == 0 {
		r.lost, r.now.chunks = "executor_lost", nil // the attempt begins with its first chunk
		return
	}
	r.beginAttempt("executor_lost", chunks...)
}

// Retry begins a new attempt, like an executor that repeats its model call. The chunks before the step stay valid.
func (r *Run) Retry() {
	r.t.Helper()
	begun := slices.IndexFunc(r.now.chunks, func(c *eventv1.Chunk) bool { return c.GetStepStarted() != nil })
	switch {
	case begun < 0:
	case begun == 0:
		r.lost, r.now.chunks = "step_retried", nil // the attempt begins with its first chunk
	default:
		r.beginAttempt("step_retried", r.now.chunks[:begun]...)
	}
}

// Step returns the number of the step in flight.
func (r *Run) Step() int32 { return r.now.step }

// RecordPlan records the plan of the step in flight, with the calls.
func (r *Run) RecordPlan(calls ...string) {
	r.t.Helper()
	plan := AssistantMessage(r.now.step, "", calls...)
	plan.Id = r.messageID(0)
	_, err := r.world.executor.work.RecordPlan(context.Background(), &statev1.RecordPlanRequest{Run: r.ref(), Step: r.now.step, Plan: plan})
	r.must(err)
}

// Commit adds messages to the step in flight if it was shown. Otherwise it commits the steps of the
// messages.
func (r *Run) Commit(messages ...*eventv1.Message) {
	r.t.Helper()
	if len(r.now.chunks) > 0 {
		r.messages = append(r.messages, messages...)
		return
	}
	for _, step := range stepsOf(messages) {
		if step[0].GetStep() >= r.now.step || !r.stored {
			r.store(&statev1.CommitStepRequest{Messages: step}, 0, nil)
		}
	}
}

// WithoutBoundaries lets f commit without boundaries in the log.
func (r *Run) WithoutBoundaries(f func()) {
	r.silent = true
	f()
	r.silent = false
}

// WithLateBoundaries calls wait after each commit of f, before the log has its boundary.
func (r *Run) WithLateBoundaries(wait, f func()) {
	r.beforeBoundary = wait
	f()
	r.beforeBoundary = nil
}

// WithPartialSteps lets f commit steps that the log does not have completely.
func (r *Run) WithPartialSteps(f func()) {
	r.partial = true
	f()
	r.partial = false
}

// Child starts a run in a session of a sub-agent below the run's.
func (r *Run) Child(session string) *Run {
	r.t.Helper()
	_, err := r.world.State.StartRun(context.Background(), &statev1.StartRunRequest{
		Tenant: r.tenant, SessionId: session, AgentType: "other", Parent: &statev1.Parent{SessionId: r.GetSessionId(), ToolCallId: "of-" + session},
	})
	r.must(err)
	return r.world.AwaitRun(r.t, r.tenant, session, nil)
}

// Continue answers the open calls of a suspended run, and returns its continuation.
func (r *Run) Continue() *Run {
	r.t.Helper()
	request := &statev1.SubmitCallsRequest{Tenant: r.tenant, SessionId: r.GetSessionId()}
	for _, c := range r.world.State.PendingCalls(r.tenant, r.GetSessionId()) {
		answer := &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: "1"}}
		if c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL {
			answer.Answer = &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: c.GetApprovalId(), Approved: true}}
		}
		request.Answers = append(request.Answers, &statev1.SubmittedAnswer{ToolCallId: c.GetToolCallId(), Answer: answer})
	}
	_, err := r.world.State.calls.SubmitCalls(context.Background(), request)
	r.must(err)
	return r.world.AwaitRun(r.t, r.tenant, r.GetSessionId(), r)
}

// Reclaim gives the claim back, because the database has lost the steps up to this one, which a claim of the epoch has
// shown. It returns the run as claimed again.
func (r *Run) Reclaim(step int32, epoch int64) *Run {
	r.t.Helper()
	_, err := r.world.executor.work.ReleaseRun(
		context.Background(),
		&statev1.ReleaseRunRequest{Run: r.ref(), Seen: &statev1.LostWork{Epoch: epoch, Step: step}},
	)
	r.must(err)
	return newRun(r.world, r.t, r.tenant, r.world.executor.awaitClaim(r.t, r.tenant, r.GetSessionId(), func(claim *statev1.Claim) bool {
		return claim.GetEpoch() != r.claim.GetEpoch()
	}))
}

// stepsOf splits messages by their steps.
func stepsOf(messages []*eventv1.Message) [][]*eventv1.Message {
	var steps [][]*eventv1.Message
	for i, m := range messages {
		if i == 0 || m.GetStep() != messages[i-1].GetStep() {
			steps = append(steps, nil)
		}
		steps[len(steps)-1] = append(steps[len(steps)-1], proto.CloneOf(m))
	}
	return steps
}

// Checkpoint returns the checkpoint of the newest step of the run.
func (r *Run) Checkpoint() string { return r.checkpoints[len(r.checkpoints)-1] }
