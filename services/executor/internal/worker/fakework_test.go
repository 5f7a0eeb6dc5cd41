package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// owned gives the run of a write. The caller holds mu.
func (f *fakeState) owned(ref *statev1.RunRef) (*fakeRun, error) {
	r := f.find(ref.GetRunId())
	if r == nil {
		return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "no run %q", ref.GetRunId())
	}
	if ref.GetEpoch() != r.session.session.GetEpoch() || r.run.GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED {
		return nil, fault.New(fault.Stale, "EPOCH_STALE", "epoch %d", ref.GetEpoch())
	}
	return r, nil
}

func (f *fakeState) running(ref *statev1.RunRef) (*fakeRun, error) {
	r, err := f.owned(ref)
	if err == nil && !r.live() {
		return nil, fault.New(fault.Stale, "RUN_FINISHED", "finished")
	}
	return r, err
}

func (f *fakeState) RecordPlan(_ context.Context, r *statev1.RecordPlanRequest) (*statev1.RecordPlanResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, err := f.running(r.GetRun())
	if err != nil {
		return nil, err
	}
	s := run.session
	if r.GetStep() != s.session.GetStepCount()+1 {
		return nil, fault.New(fault.Stale, "STEP_STALE", "step %d", r.GetStep())
	}
	if s.journal != nil {
		if !proto.Equal(s.journal.GetPlan(), r.GetPlan()) {
			return nil, fault.New(fault.Stale, "PLAN_EXISTS", "another plan")
		}
		return &statev1.RecordPlanResponse{}, nil
	}
	ops := r.GetOps()
	if f.maxState > 0 && opsSize(ops) > f.maxState {
		return nil, fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED", "the writes of the plan")
	}
	s.journal = proto.CloneOf(&statev1.Journal{
		Step: r.GetStep(), Plan: r.GetPlan(), Usage: r.GetUsage(), Ops: ops,
	})
	s.writes = append(s.writes, "plan")
	return &statev1.RecordPlanResponse{}, nil
}

func (f *fakeState) RecordResult(_ context.Context, r *statev1.RecordResultRequest) (*statev1.RecordResultResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, err := f.running(r.GetRun())
	if err != nil {
		return nil, err
	}
	j := run.session.journal
	id := r.GetResult().GetResult().GetToolCallId()
	if j == nil || j.GetStep() != r.GetStep() || !slices.ContainsFunc(j.GetPlan().GetParts(), func(p *eventv1.Part) bool { return p.GetToolCall().GetToolCallId() == id }) {
		return nil, fault.New(fault.Conflict, "CALL_UNKNOWN", "call %q", id)
	}
	if f.refuseResult != nil {
		if err := f.refuseResult(r); err != nil {
			return nil, err
		}
	}
	if f.maxResult > 0 && len(r.GetResult().GetResult().GetResult()) > f.maxResult {
		return nil, fault.New(fault.Invalid, "RESULT_TOO_LARGE", "too large")
	}
	size := opsSize(j.GetOps()) + opsSize(r.GetResult().GetOps())
	for _, result := range j.GetResults() {
		size += opsSize(result.GetOps())
		if result.GetResult().GetToolCallId() == id {
			return &statev1.RecordResultResponse{Repeated: true}, nil
		}
	}
	if f.maxState > 0 && size > f.maxState {
		return nil, fault.New(fault.Invalid, "STATE_SIZE_EXCEEDED", "%d bytes", size)
	}
	j.Results = append(j.Results, proto.CloneOf(r.GetResult()))
	run.session.writes = append(run.session.writes, "result "+id)
	f.announce()
	return &statev1.RecordResultResponse{}, nil
}

func (f *fakeState) CommitStep(_ context.Context, r *statev1.CommitStepRequest) (*statev1.CommitStepResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, err := f.owned(r.GetRun())
	if err != nil {
		return nil, err
	}
	s := run.session
	if r.GetStep() == s.session.GetStepCount() && run.epoch == r.GetRun().GetEpoch() {
		return f.committed(s), nil
	}
	if !run.live() {
		return nil, fault.New(fault.Stale, "RUN_FINISHED", "finished")
	}
	if r.GetStep() != s.session.GetStepCount()+1 {
		return nil, fault.New(fault.Stale, "STEP_STALE", "step %d", r.GetStep())
	}
	if f.maxState > 0 && opsSize(r.GetOps()) > f.maxState {
		return nil, fault.New(fault.Invalid, "STATE_SIZE_EXCEEDED", "the step's own writes")
	}
	if f.refuseCommit != nil {
		if err := f.refuseCommit(r); err != nil {
			return nil, err
		}
	}
	if err := s.takeCalls(run, r); err != nil {
		return nil, err
	}
	f.commits = append(f.commits, proto.CloneOf(r))
	for _, m := range r.GetMessages() {
		s.append(m)
	}
	for _, part := range s.journal.GetPlan().GetParts() {
		for _, result := range s.journal.GetResults() {
			if result.GetResult().GetToolCallId() == part.GetToolCall().GetToolCallId() {
				s.write(result.GetOps())
			}
		}
	}
	s.write(r.GetOps())
	for _, result := range s.journal.GetResults() {
		run.spend(result.GetUsage())
	}
	run.spend(s.journal.GetUsage(), r.GetUsage())
	s.journal = nil
	s.session.StepCount++
	run.run.StepCount++
	run.run.Losses = 0
	run.epoch = r.GetRun().GetEpoch()
	s.session.Position, s.session.Claims = position.Committed(r.GetStep()), 0
	s.checkpoint = fmt.Sprintf("checkpoint %d", s.session.StepCount)
	s.session.CheckpointId = s.checkpoint
	s.writes = append(s.writes, fmt.Sprintf("commit %d", r.GetStep()))
	s.store(run, r)
	answer := f.committed(s)
	answer.Stop = proto.CloneOf(run.run.GetStop())
	if o := r.GetOutcome(); o != nil {
		s.session.Position, run.run.FinishStep = position.Ended(r.GetStep()), r.GetStep()
		run.finish(o)
		if suspended[o.GetStatus()] {
			f.proceed(s)
		}
	}
	f.announce()
	return answer, nil
}

// store keeps the step for readers.
func (s *fakeSession) store(run *fakeRun, r *statev1.CommitStepRequest) {
	stored := &statev1.StoredStep{
		Step: r.GetStep(), RunId: run.run.GetRunId(), BeginsRun: run.run.GetStepCount() == 1, CheckpointId: s.checkpoint,
		Messages: r.GetMessages(), Record: r.GetRecord(),
	}
	if n := len(s.steps); n > 0 {
		stored.Follows = s.steps[n-1].GetStep()
	}
	s.steps = append(s.steps, proto.CloneOf(stored))
}

// takeCalls checks and takes what a step does with calls.
func (s *fakeSession) takeCalls(run *fakeRun, r *statev1.CommitStepRequest) error {
	for _, consumed := range r.GetConsumedCalls() {
		c := s.call(consumed.GetToolCallId())
		switch {
		case c == nil:
			return fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL", "%s", consumed.GetToolCallId())
		case c.GetConsumedAt() != 0:
			return fault.New(fault.Conflict, "CALL_CONSUMED", "%s", consumed.GetToolCallId())
		case c.GetAnswer() == nil:
			return fault.New(fault.Conflict, "CALL_UNANSWERED", "%s", consumed.GetToolCallId())
		case c.GetRevision() != consumed.GetRevision():
			return fault.New(fault.Stale, "ANSWER_CHANGED", "%s", consumed.GetToolCallId())
		}
	}
	for _, c := range r.GetCalls() {
		if s.call(c.GetToolCallId()) != nil {
			return fault.New(fault.Conflict, "CALL_EXISTS", "%s", c.GetToolCallId())
		}
	}
	if suspended[r.GetOutcome().GetStatus()] && len(r.GetCalls()) == 0 && !slices.ContainsFunc(s.calls, func(c *statev1.Call) bool { return c.GetAnswer() == nil }) {
		return fault.New(fault.Invalid, "OUTCOME_INVALID", "nothing to wait for")
	}
	for _, consumed := range r.GetConsumedCalls() {
		s.call(consumed.GetToolCallId()).ConsumedAt = time.Now().UnixMilli()
	}
	for _, id := range r.GetToldCalls() {
		s.call(id).LateAt = 0
	}
	for _, c := range r.GetCalls() {
		open := proto.CloneOf(c)
		open.SessionId, open.RunId, open.Step = s.session.GetSessionId(), run.run.GetRunId(), r.GetStep()
		s.calls = append(s.calls, open)
	}
	return nil
}

// forgo takes the answers to the calls of a journal: none of them is run again.
func (s *fakeSession) forgo(j *statev1.Journal) {
	for _, part := range j.GetPlan().GetParts() {
		if c := s.call(part.GetToolCall().GetToolCallId()); c.GetAnswer() != nil && c.GetConsumedAt() == 0 {
			c.ConsumedAt = time.Now().UnixMilli()
		}
	}
}

// takeBack takes the session back to the message of its first user, as an edit of it does:
// nothing of its steps is left but that they were, and no call is known.
func (f *fakeState) takeBack(sessionID, text string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[sessionID]
	s.messages, s.calls, s.state, s.journal, s.steps = nil, nil, nil, nil, nil
	s.session.MessageCount, s.session.CheckpointId, s.session.Position = 0, "", 0
	return f.queue(s, statev1.RunEntry_RUN_ENTRY_START, "", text)
}

// branch makes a session that begins with the messages of another one.
func (f *fakeState) branch(from, sessionID string, state agent.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	source := f.sessions[from]
	s := &fakeSession{session: &statev1.Session{Tenant: "acme", SessionId: sessionID, RootSessionId: sessionID, AgentType: source.session.GetAgentType()}, state: state}
	for _, stored := range source.messages {
		m := proto.CloneOf(stored.GetMessage())
		m.Id = from + "/" + m.GetId() // the fake's ids are those of their session
		s.append(m)
	}
	f.sessions[sessionID] = s
}

func (s *fakeSession) call(id string) *statev1.Call {
	for _, c := range s.calls {
		if c.GetToolCallId() == id {
			return c
		}
	}
	return nil
}

func (s *fakeSession) write(ops []*statev1.StateOp) {
	for _, op := range ops {
		one := agent.Op{Key: op.GetKey(), Kind: agent.OpDelete}
		switch o := op.GetOp().(type) {
		case *statev1.StateOp_Replace:
			one.Kind, one.Value = agent.OpReplace, json.RawMessage(o.Replace)
		case *statev1.StateOp_Append:
			one.Kind, one.Value = agent.OpAppend, json.RawMessage(o.Append)
		}
		after, err := s.state.Apply([]agent.Op{one})
		if err != nil {
			panic(err)
		}
		s.state = after
	}
}

func opsSize(ops []*statev1.StateOp) int {
	size := 0
	for _, op := range ops {
		size += proto.Size(op)
	}
	return size
}

func (f *fakeState) committed(s *fakeSession) *statev1.CommitStepResponse {
	return &statev1.CommitStepResponse{CheckpointId: s.checkpoint, MessageCount: s.session.GetMessageCount()}
}

// spend keeps usage, and adds its tokens to those of the run.
func (r *fakeRun) spend(lists ...[]*statev1.UsageEntry) {
	for _, entry := range slices.Concat(lists...) {
		r.session.usage = append(r.session.usage, entry)
		if t := entry.GetTokens(); t != nil {
			r.used.PromptTokens += t.GetPromptTokens()
			r.used.CompletionTokens += t.GetCompletionTokens()
			r.used.ReasoningTokens += t.GetReasoningTokens()
			r.used.CachedTokens += t.GetCachedTokens()
			r.used.TotalTokens += t.GetTotalTokens()
		}
	}
}

func (r *fakeRun) finish(o *statev1.Outcome) {
	r.outcome = proto.CloneOf(o)
	r.run.Status, r.run.Output, r.run.Failure, r.run.CompletionReason = o.GetStatus(), o.GetOutput(), o.GetFailure(), o.GetCompletionReason()
	r.run.FinishReason, r.run.Usage = o.GetFinishReason(), o.GetUsage()
	r.run.EndPosition, r.holder = r.session.session.GetPosition(), ""
	r.session.session.Status = statev1.SessionStatus_SESSION_STATUS_COMPLETED
}

func (f *fakeState) FinishRun(_ context.Context, r *statev1.FinishRunRequest) (*statev1.FinishRunResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, err := f.owned(r.GetRun())
	if err != nil {
		return nil, err
	}
	if !run.live() {
		if run.epoch == -r.GetRun().GetEpoch() {
			return &statev1.FinishRunResponse{}, nil
		}
		return nil, fault.New(fault.Stale, "RUN_FINISHED", "finished")
	}
	if suspended[r.GetOutcome().GetStatus()] {
		return nil, fault.New(fault.Invalid, "OUTCOME_INVALID", "a run suspends with a step")
	}
	if f.refuseEnd != nil {
		if err := f.refuseEnd(r); err != nil {
			return nil, err
		}
	}
	f.finishes = append(f.finishes, proto.CloneOf(r))
	run.spend(run.session.journal.GetUsage(), r.GetUsage())
	s := run.session.session
	s.Position = position.OutsideStep(s.GetStepCount()+1, s.GetClaims())
	s.Claims++
	run.finish(r.GetOutcome())
	run.epoch = -r.GetRun().GetEpoch() // finished outside of a step
	run.session.forgo(run.session.journal)
	run.session.journal = nil
	run.session.writes = append(run.session.writes, "finish")
	f.announce()
	return &statev1.FinishRunResponse{}, nil
}

func (f *fakeState) ReleaseRun(_ context.Context, r *statev1.ReleaseRunRequest) (*statev1.ReleaseRunResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.find(r.GetRun().GetRunId())
	if run != nil && run.session.session.GetEpoch() == r.GetRun().GetEpoch() && run.run.GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED {
		return &statev1.ReleaseRunResponse{}, nil
	}
	run, err := f.owned(r.GetRun())
	if err != nil {
		return nil, err
	}
	run.free()
	run.spend(r.GetUsage())
	run.released++
	run.delay = r.GetDelayMs()
	run.run.DueAt = time.Now().UnixMilli() + r.GetDelayMs()
	f.announce()
	return &statev1.ReleaseRunResponse{}, nil
}

func (f *fakeState) ListMessages(_ context.Context, r *statev1.ListMessagesRequest) (*statev1.ListMessagesResponse, error) {
	if f.list != nil {
		if err := f.list(); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.sessions[r.GetSessionId()].messages
	// One at a time: an answer may hold fewer than asked for.
	page := all[min(int(r.GetOffset()), len(all)):min(int(r.GetOffset())+1, len(all))]
	answer := &statev1.ListMessagesResponse{Total: int64(len(all)), HasMore: int(r.GetOffset())+1 < len(all)}
	for _, m := range page {
		answer.Messages = append(answer.Messages, proto.CloneOf(m))
	}
	return answer, nil
}
