package history_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// executor claims runs and executes their steps, one run at a time. Sometimes it stops its heartbeats and
// returns with another id. It drops its run, or a zombie keeps working on it.
func (w *world) executor(done <-chan struct{}) {
	for !ended(done) {
		id := w.id("executor")
		ctx, cancel := context.WithCancel(w.ctx)
		var beating sync.WaitGroup
		beating.Go(func() { w.beat(ctx, id) })
		for !ended(done) && ctx.Err() == nil {
			if dies := w.claimOn(ctx, id, done); dies {
				break
			}
		}
		cancel()
		beating.Wait()
	}
}

// zombieSleep is the longest pause of a zombie, usually longer than the detection of dead executors.
const zombieSleep = 4 * time.Second

func (w *world) beat(ctx context.Context, id string) {
	for ctx.Err() == nil {
		_, _ = once(ctx, w.client(), func(ctx context.Context, c client) (*statev1.HeartbeatResponse, error) {
			return c.Heartbeat(ctx, &statev1.HeartbeatRequest{ExecutorId: id})
		})
		pause(100 * time.Millisecond)
	}
}

// claimOn serves one claim stream until it breaks.
func (w *world) claimOn(ctx context.Context, id string, done <-chan struct{}) (dies bool) {
	const streamLife = 4 * time.Second // bounds the stream of an unregistered executor
	ctx, cancel := context.WithTimeout(ctx, streamLife)
	defer cancel()
	stream, err := w.client().ClaimRuns(ctx)
	if err != nil {
		pause(retry)
		return false
	}
	hello := &statev1.ClaimRunsRequest{ExecutorId: id, Agents: []*statev1.Agent{{AgentType: agent}}, Credits: 1}
	for err = stream.Send(hello); err == nil && !ended(done); err = stream.Send(&statev1.ClaimRunsRequest{Credits: 1}) {
		var work *statev1.ClaimRunsResponse
		if work, err = stream.Recv(); err != nil {
			break
		}
		if work.GetStop() != nil {
			continue // the run learns it at its next step; this costs an extra credit
		}
		c := work.GetExecute()
		w.claimed(c)
		if chance(2) {
			return true
		}
		if chance(4) {
			w.zombies.Go(func() {
				pause(zombieSleep)
				w.run(c)
			})
			return true
		}
		if w.run(c); w.ctx.Err() != nil {
			return true
		}
	}
	pause(retry)
	return false
}

func (w *world) claimed(c *statev1.Claim) {
	w.observe(func(h *history) {
		got := claim{c.GetSession().GetSessionId(), c.GetRun().GetRunId(), c.GetEpoch(), w.ticks.Add(1)}
		h.claims = append(h.claims, got)
	})
}

func refOf(c *statev1.Claim) *statev1.RunRef {
	return &statev1.RunRef{Tenant: tenant, SessionId: c.GetSession().GetSessionId(), RunId: c.GetRun().GetRunId(), Epoch: c.GetEpoch()}
}

// stale are the refusals after which an executor abandons a run.
var stale = []string{"EPOCH_STALE", "RUN_FINISHED", "STEP_STALE"}

// run executes some steps of a claimed run.
func (w *world) run(c *statev1.Claim) {
	ref, step := refOf(c), c.GetSession().GetStepCount()
	stopped := c.GetRun().GetStop()
	for left := 1 + len(c.GetCalls()) + pick([]int{0, 1, 2}); ; left-- {
		step++
		if chance(4) {
			w.release(ref)
			return
		}
		s := &stepper{world: w, ref: ref, step: step, calls: c.GetCalls(), stopped: stopped}
		if c.GetJournal().GetStep() == step {
			s.journal = c.GetJournal()
		}
		c.Calls = nil // the first step consumes them
		answer, err := s.do(left <= 1)
		if err != nil {
			w.noteFault(err)
			w.refused("step", err, stale...)
			return
		}
		if s.over {
			return
		}
		stopped = answer.GetStop()
	}
}

func (w *world) release(ref *statev1.RunRef) {
	_, _, err := attempt(w, func(ctx context.Context, c client) (*statev1.ReleaseRunResponse, error) {
		return c.ReleaseRun(ctx, &statev1.ReleaseRunRequest{Run: ref, DelayMs: int64(pick([]int{0, 50}))})
	})
	w.noteFault(err)
	w.refused("release", err, stale...)
}

// stepper executes one step.
type stepper struct {
	*world
	ref     *statev1.RunRef
	step    int32
	journal *statev1.Journal // of a former owner, or nil
	calls   []*statev1.Call  // their answers are consumed by the step
	stopped *statev1.Stop
	log     []string
	over    bool
}

func (s *stepper) do(last bool) (*statev1.CommitStepResponse, error) {
	plan, err := s.plan()
	if err != nil {
		return nil, err
	}
	if err := s.results(plan); err != nil {
		return nil, err
	}
	r := &statev1.CommitStepRequest{Run: s.ref, Step: s.step, Messages: []*eventv1.Message{plan}}
	item := s.id("commit")
	s.log = append(s.log, item)
	r.Ops = []*statev1.StateOp{appendTo("log", item)}
	if last || s.stopped != nil {
		s.finish(r)
	}
	s.consume(r)
	return s.commit(r)
}

// plan records the step's plan, or adopts the recorded one.
func (s *stepper) plan() (*eventv1.Message, error) {
	if s.journal != nil {
		return s.journal.GetPlan(), nil
	}
	m := text(s.id("reply"), eventv1.Role_ROLE_ASSISTANT)
	for range pick([]int{0, 1, 2}) {
		m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: s.id("call"), ToolName: "t", Arguments: "{}"}}})
	}
	_, _, err := attempt(s.world, func(ctx context.Context, c client) (*statev1.RecordPlanResponse, error) {
		return c.RecordPlan(ctx, &statev1.RecordPlanRequest{Run: s.ref, Step: s.step, Plan: m})
	})
	return m, err
}

// results records the results of the plan's calls. A log item names its call, so every owner records the same
// item.
func (s *stepper) results(plan *eventv1.Message) error {
	for _, part := range plan.GetParts() {
		id := part.GetToolCall().GetToolCallId()
		if id == "" {
			continue
		}
		s.log = append(s.log, "result of "+id)
		if slices.ContainsFunc(s.journal.GetResults(), func(r *statev1.CallResult) bool { return r.GetResult().GetToolCallId() == id }) {
			continue
		}
		result := &statev1.CallResult{Result: &eventv1.ToolResultPart{ToolCallId: id, Success: true}, Ops: []*statev1.StateOp{appendTo("log", "result of "+id)}}
		_, _, err := attempt(s.world, func(ctx context.Context, c client) (*statev1.RecordResultResponse, error) {
			return c.RecordResult(ctx, &statev1.RecordResultRequest{Run: s.ref, Step: s.step, Result: result})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// finish ends the run: as requested by a stop, suspended with open calls, or completed.
func (s *stepper) finish(r *statev1.CommitStepRequest) {
	s.over = true
	switch {
	case s.stopped.GetKind() == statev1.StopKind_STOP_KIND_ABORT:
		r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_FAILED, Failure: &statev1.Failure{Error: "stopped", Code: "framework_cancelled"}}
	case s.stopped != nil:
		r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_INTERRUPTED}
	case chance(50):
		r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL}
		for range pick([]int{1, 2}) {
			call := &statev1.Call{ToolCallId: s.id("ask"), ToolName: "ask", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: "{}"}
			if chance(20) {
				call.DeadlineAt = time.Now().Add(500 * time.Millisecond).UnixMilli()
			}
			r.Calls = append(r.Calls, call)
		}
	default:
		r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED, Output: `"done"`}
	}
}

// consume takes the answers of the claim.
func (s *stepper) consume(r *statev1.CommitStepRequest) {
	r.ConsumedCalls = nil
	for _, c := range s.calls {
		if c.GetAnswer() != nil && c.GetConsumedAt() == 0 {
			r.ConsumedCalls = append(r.ConsumedCalls, &statev1.ConsumedCall{ToolCallId: c.GetToolCallId(), Revision: c.GetRevision()})
		}
	}
}

// commit sends the step. It reads an answer again if the answer has changed since.
func (s *stepper) commit(r *statev1.CommitStepRequest) (*statev1.CommitStepResponse, error) {
	unsure, begun := false, s.ticks.Add(1)
	for {
		answer, again, err := attempt(s.world, func(ctx context.Context, c client) (*statev1.CommitStepResponse, error) { return c.CommitStep(ctx, r) })
		unsure = unsure || again
		if fault.ReasonOf(err) == "ANSWER_CHANGED" {
			if s.calls, err = s.reread(); err != nil {
				return nil, err
			}
			s.consume(r)
			continue
		}
		s.note(r, answer, fateOf(unsure || errors.Is(err, errNoAnswer), err), begun)
		return answer, err
	}
}

func (s *stepper) reread() ([]*statev1.Call, error) {
	answer, _, err := s.get(s.ref.GetSessionId())
	own := slices.DeleteFunc(slices.Clone(answer.GetCalls()), func(c *statev1.Call) bool { return c.GetSessionId() != s.ref.GetSessionId() })
	return own, err
}

func (s *stepper) note(r *statev1.CommitStepRequest, answer *statev1.CommitStepResponse, fate fate, begun int64) {
	c := commit{
		session: s.ref.GetSessionId(), run: s.ref.GetRunId(), epoch: s.ref.GetEpoch(), step: s.step,
		log: s.log, fate: fate, begun: begun, consumed: map[string]string{},
	}
	for _, m := range r.GetMessages() {
		c.messages = append(c.messages, m.GetId())
	}
	for _, consumed := range r.GetConsumedCalls() {
		for _, call := range s.calls {
			if call.GetToolCallId() == consumed.GetToolCallId() {
				c.consumed[call.GetToolCallId()] = payload(call.GetAnswer())
			}
		}
	}
	s.observe(func(h *history) {
		h.commits = append(h.commits, c)
		if fate == acked {
			h.wrote(s.T, c.session, answer.GetVersion(), fmt.Sprint("step ", c.step))
		}
	})
}

// payload returns a client's answer, or the answer's other origin.
func payload(a *statev1.CallAnswer) string {
	if a.GetSource() == statev1.AnswerSource_ANSWER_SOURCE_CLIENT {
		return strings.Trim(a.GetResult(), `"`)
	}
	return a.GetSource().String()
}
