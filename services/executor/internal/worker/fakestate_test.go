package worker_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// tailLength is how many messages a claim of the fake carries.
const tailLength = 2

// fakeState is the part of the state service that executors use, in memory:
// epochs, journals and repeated writes are as the contract says.
type fakeState struct {
	statev1.UnimplementedWorkServiceServer
	statev1.UnimplementedSessionServiceServer

	mu        sync.Mutex
	changed   chan struct{}
	sessions  map[string]*fakeSession
	order     []*fakeRun
	executors map[string]bool
	announced []*statev1.ClaimRunsRequest
	beats     int
	held      [][]string      // of heartbeats that list
	maxResult int             // 0: no limit
	list      func() error    // when set, may refuse to list messages
	known     map[int64]int64 // the stream's sequence at the claim, by epoch
}

type fakeSession struct {
	session    *statev1.Session
	messages   []*statev1.StoredMessage
	journal    *statev1.Journal
	checkpoint string // of the last committed step
	usage      []*statev1.UsageEntry
	writes     []string // names of the writes that took effect, in their order
}

type fakeRun struct {
	run      *statev1.Run
	session  *fakeSession
	holder   string
	epoch    int64 // of the claim that finished it
	released int
}

func newFakeState() *fakeState {
	return &fakeState{changed: make(chan struct{}), sessions: map[string]*fakeSession{}, executors: map[string]bool{}, known: map[int64]int64{}}
}

func (f *fakeState) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// startRun queues a run with one user message.
func (f *fakeState) startRun(sessionID, agentType, text string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[sessionID]
	if s == nil {
		s = &fakeSession{session: &statev1.Session{Tenant: "acme", SessionId: sessionID, RootSessionId: sessionID, AgentType: agentType}}
		f.sessions[sessionID] = s
	}
	s.session.Turn++
	runID := fmt.Sprintf("%s/run %d", sessionID, s.session.Turn)
	s.append(&eventv1.Message{
		Id: fmt.Sprintf("user %d", s.session.Turn), Role: eventv1.Role_ROLE_USER, RunId: runID,
		Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}},
	})
	s.session.Status = statev1.SessionStatus_SESSION_STATUS_ACTIVE
	f.order = append(f.order, &fakeRun{session: s, run: &statev1.Run{
		RunId: runID, SessionId: sessionID, AgentType: agentType, Turn: s.session.Turn, Status: statev1.RunStatus_RUN_STATUS_QUEUED,
		MessageId: "ui " + runID, StartSequence: s.session.StreamSequence,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}})
	f.announce()
	return runID
}

func (s *fakeSession) append(m *eventv1.Message) {
	for _, stored := range s.messages {
		if stored.Message.GetId() == m.GetId() {
			panic("message id is there twice: " + m.GetId())
		}
	}
	s.messages = append(s.messages, &statev1.StoredMessage{Ordinal: int64(len(s.messages)), Message: proto.CloneOf(m)})
	s.session.MessageCount = int64(len(s.messages))
}

// await waits until the condition holds of the locked state.
func (f *fakeState) await(ctx context.Context, condition func() bool) error {
	for {
		f.mu.Lock()
		ok, changed := condition(), f.changed
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeState) find(runID string) *fakeRun {
	for _, r := range f.order {
		if r.run.GetRunId() == runID {
			return r
		}
	}
	return nil
}

// silence takes everything away from an executor.
func (f *fakeState) silence(executorID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.executors, executorID)
	for _, r := range f.order {
		if r.holder == executorID {
			r.free()
		}
	}
	f.announce()
}

func (r *fakeRun) free() {
	r.holder = ""
	if r.run.Status == statev1.RunStatus_RUN_STATUS_RUNNING {
		r.run.Status = statev1.RunStatus_RUN_STATUS_QUEUED
	}
}

func (r *fakeRun) live() bool {
	return r.run.Status == statev1.RunStatus_RUN_STATUS_QUEUED || r.run.Status == statev1.RunStatus_RUN_STATUS_RUNNING
}

// next claims the oldest work that is free. The caller holds mu.
func (f *fakeState) next(executorID string) *statev1.ClaimRunsResponse {
	for _, r := range f.order {
		if r.holder != "" || r.run.GetSettled() || f.blocked(r) {
			continue
		}
		r.holder = executorID
		r.run.Attempt++
		r.session.session.Epoch++
		f.known[r.session.session.Epoch] = r.session.session.GetStreamSequence()
		claim := &statev1.Claim{
			Session: proto.CloneOf(r.session.session), Run: proto.CloneOf(r.run), Epoch: r.session.session.Epoch,
			Journal: proto.CloneOf(r.session.journal),
		}
		if !r.live() {
			return &statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Settle{Settle: claim}}
		}
		r.run.Status = statev1.RunStatus_RUN_STATUS_RUNNING
		claim.Run.Status = r.run.Status
		for _, m := range r.session.messages[max(0, len(r.session.messages)-tailLength):] {
			claim.Messages = append(claim.Messages, proto.CloneOf(m))
		}
		return &statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Execute{Execute: claim}}
	}
	return nil
}

// blocked reports whether the run waits for the settling of a former one.
func (f *fakeState) blocked(r *fakeRun) bool {
	return slices.ContainsFunc(f.order, func(o *fakeRun) bool {
		return o.session == r.session && o.run.GetTurn() < r.run.GetTurn() && !o.run.GetSettled()
	})
}

func (f *fakeState) ClaimRuns(stream statev1.WorkService_ClaimRunsServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetExecutorId() == "" || len(first.GetAgents()) == 0 {
		return fault.New(fault.Invalid, "EXECUTOR_INVALID", "no id or agents")
	}
	id := first.GetExecutorId()
	credits := int(first.GetCredits())
	f.mu.Lock()
	f.executors[id] = true
	f.announced = append(f.announced, proto.CloneOf(first))
	for _, r := range f.order {
		if r.holder == id && !slices.Contains(first.GetHeldRunIds(), r.run.GetRunId()) {
			r.free()
		}
	}
	f.mu.Unlock()
	ended := make(chan error, 1)
	go func() { // ends with the stream
		for {
			r, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			f.mu.Lock()
			credits += int(r.GetCredits())
			f.announce()
			f.mu.Unlock()
		}
	}()
	for {
		f.mu.Lock()
		if !f.executors[id] {
			f.mu.Unlock()
			return fault.New(fault.Unavailable, "EXECUTOR_SILENT", "taken for dead")
		}
		var work *statev1.ClaimRunsResponse
		if credits > 0 {
			if work = f.next(id); work != nil {
				credits--
			}
		}
		changed := f.changed
		f.mu.Unlock()
		if work != nil {
			if err := stream.Send(work); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case err := <-ended:
			if err == io.EOF {
				return nil
			}
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fakeState) Heartbeat(_ context.Context, r *statev1.HeartbeatRequest) (*statev1.HeartbeatResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats++
	if r.GetHeld() != nil {
		f.held = append(f.held, r.GetHeld().GetRunIds())
	}
	f.announce()
	return &statev1.HeartbeatResponse{Forgotten: !f.executors[r.GetExecutorId()]}, nil
}

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
	s.journal = &statev1.Journal{Step: r.GetStep(), Plan: proto.CloneOf(r.GetPlan()), PlanSequence: r.GetStreamSequence(), Usage: r.GetUsage()}
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
	if f.maxResult > 0 && len(r.GetResult().GetResult().GetResult()) > f.maxResult {
		return nil, fault.New(fault.Invalid, "RESULT_TOO_LARGE", "too large")
	}
	for _, result := range j.GetResults() {
		if result.GetResult().GetToolCallId() == id {
			return &statev1.RecordResultResponse{Repeated: true}, nil
		}
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
	for _, m := range r.GetMessages() {
		s.append(m)
	}
	for _, result := range s.journal.GetResults() {
		s.usage = append(s.usage, result.GetUsage()...)
	}
	s.usage = append(append(s.usage, s.journal.GetUsage()...), r.GetUsage()...)
	s.journal = nil
	s.session.StepCount++
	run.run.StepCount++
	run.epoch = r.GetRun().GetEpoch()
	s.session.StreamSequence = max(s.session.StreamSequence, r.GetStreamSequence())
	s.session.StreamStep = max(s.session.StreamStep, r.GetStreamStep())
	s.checkpoint = fmt.Sprintf("checkpoint %d", s.session.StepCount)
	s.writes = append(s.writes, fmt.Sprintf("commit %d", r.GetStep()))
	if o := r.GetOutcome(); o != nil {
		run.finish(o)
	}
	f.announce()
	return f.committed(s), nil
}

func (f *fakeState) committed(s *fakeSession) *statev1.CommitStepResponse {
	return &statev1.CommitStepResponse{CheckpointId: s.checkpoint, MessageCount: s.session.GetMessageCount()}
}

func (r *fakeRun) finish(o *statev1.Outcome) {
	r.run.Status, r.run.Output, r.run.Failure, r.run.CompletionReason = o.GetStatus(), o.GetOutput(), o.GetFailure(), o.GetCompletionReason()
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
	run.finish(r.GetOutcome())
	run.epoch = -r.GetRun().GetEpoch() // finished outside of a step
	run.session.journal = nil
	run.session.session.StreamSequence = max(run.session.session.StreamSequence, r.GetStreamSequence())
	run.session.writes = append(run.session.writes, "finish")
	f.announce()
	return &statev1.FinishRunResponse{}, nil
}

func (f *fakeState) SettleRun(_ context.Context, r *statev1.SettleRunRequest) (*statev1.SettleRunResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, err := f.owned(r.GetRun())
	if err != nil {
		return nil, err
	}
	if run.live() {
		return nil, fault.New(fault.Conflict, "RUN_NOT_FINISHED", "not finished")
	}
	run.run.Settled = true
	run.holder = ""
	run.session.session.StreamSequence = max(run.session.session.StreamSequence, r.GetStreamSequence())
	run.session.session.StreamStep = run.session.session.GetStepCount()
	f.announce()
	return &statev1.SettleRunResponse{}, nil
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
	run.released++
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
