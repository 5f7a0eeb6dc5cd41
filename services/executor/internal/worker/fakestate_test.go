package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
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
	held      [][]string                       // of heartbeats that list
	maxResult int                              // 0: no limit
	list      func() error                     // when set, may refuse to list messages
	claimed   map[int64]*statev1.Claim         // by epoch
	maxState  int                              // 0: no limit
	quiet     bool                             // stops are told by heartbeats and commits alone
	pushed    map[string][]*statev1.StoppedRun // stops that wait for the claim stream, by executor
	commits   []*statev1.CommitStepRequest
	finishes  []*statev1.FinishRunRequest
	// refuseResult, when set, may refuse the result of a call.
	refuseResult func(*statev1.RecordResultRequest) error
	// refuseCommit, when set, may refuse a step.
	refuseCommit func(*statev1.CommitStepRequest) error
	// refuseEnd, when set, may refuse the end of a run outside of a step.
	refuseEnd func(*statev1.FinishRunRequest) error
}

type fakeSession struct {
	session    *statev1.Session
	messages   []*statev1.StoredMessage
	journal    *statev1.Journal
	calls      []*statev1.Call
	state      agent.State
	checkpoint string // of the last committed step
	steps      []*statev1.StoredStep
	usage      []*statev1.UsageEntry
	writes     []string // names of the writes that took effect, in their order
	turnless   bool     // its runs are of a service that does not know where turns begin
}

type fakeRun struct {
	run      *statev1.Run
	session  *fakeSession
	holder   string
	epoch    int64 // of the claim that finished it
	released int
	delay    int64
	outcome  *statev1.Outcome // that finished it
	used     statev1.TokenSums
}

func newFakeState() *fakeState {
	return &fakeState{changed: make(chan struct{}), sessions: map[string]*fakeSession{}, executors: map[string]bool{}, claimed: map[int64]*statev1.Claim{}, pushed: map[string][]*statev1.StoppedRun{}}
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
	return f.queue(s, statev1.RunEntry_RUN_ENTRY_START, "", text)
}

// resume queues a run that goes on in the session.
func (f *fakeState) resume(sessionID string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queue(f.sessions[sessionID], statev1.RunEntry_RUN_ENTRY_RESUME, "", "")
}

// queue makes the session's next run. The caller holds mu.
func (f *fakeState) queue(s *fakeSession, entry statev1.RunEntry, messageID, text string) string {
	s.session.Turn++
	runID := fmt.Sprintf("%s/run %d", s.session.GetSessionId(), s.session.Turn)
	before := s.session.GetMessageCount()
	turn := int64(0)
	if continued := f.find(s.session.GetCurrentRunId()); entry == statev1.RunEntry_RUN_ENTRY_CONTINUATION && !s.turnless {
		turn = cmp.Or(continued.run.GetTurnMessageCount(), continued.run.GetStartMessageCount())
	}
	if text != "" {
		s.append(&eventv1.Message{
			Id: fmt.Sprintf("user %d", s.session.Turn), Role: eventv1.Role_ROLE_USER, RunId: runID,
			Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}},
		})
	}
	s.session.Status = statev1.SessionStatus_SESSION_STATUS_ACTIVE
	s.session.CurrentRunId = runID
	f.order = append(f.order, &fakeRun{session: s, run: &statev1.Run{
		RunId: runID, SessionId: s.session.GetSessionId(), AgentType: s.session.GetAgentType(), Turn: s.session.Turn, Status: statev1.RunStatus_RUN_STATUS_QUEUED,
		MessageId: cmp.Or(messageID, "ui "+runID), StartPosition: s.session.Position, Entry: entry, StartMessageCount: before, TurnMessageCount: turn,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}})
	f.announce()
	return runID
}

// answer answers a call, and continues the session when that was the last one.
func (f *fakeState) answer(callID string, answer *statev1.CallAnswer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sessions {
		for _, c := range s.calls {
			if c.GetToolCallId() == callID {
				c.Answer = answer
				c.Revision++
				f.proceed(s)
			}
		}
	}
	f.announce()
}

// proceed continues a suspended session that waits for nothing. The caller holds mu.
func (f *fakeState) proceed(s *fakeSession) {
	current := f.find(s.session.GetCurrentRunId())
	if !suspended[current.run.GetStatus()] || slices.ContainsFunc(s.calls, func(c *statev1.Call) bool { return c.GetAnswer() == nil }) {
		return
	}
	f.queue(s, statev1.RunEntry_RUN_ENTRY_CONTINUATION, current.run.GetMessageId(), "")
}

// stopRun asks a live run to end early.
func (f *fakeState) stopRun(runID string, kind statev1.StopKind, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.find(runID)
	if !r.live() || r.run.GetStop().GetKind() >= kind {
		return
	}
	r.run.Stop = &statev1.Stop{Kind: kind, Reason: reason}
	if r.holder != "" && !f.quiet {
		f.pushed[r.holder] = append(f.pushed[r.holder], &statev1.StoppedRun{RunId: runID, Stop: proto.CloneOf(r.run.GetStop())})
	}
	f.announce()
}

var suspended = map[statev1.RunStatus]bool{
	statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL: true, statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL: true,
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
			r.run.Losses++
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
		if r.holder != "" || !r.live() || f.blocked(r) || r.run.GetDueAt() > time.Now().UnixMilli() {
			continue
		}
		r.holder = executorID
		r.run.Attempt++
		if r.run.StartedAt == 0 {
			r.run.StartedAt = time.Now().UnixMilli()
		}
		r.session.session.Epoch++
		r.session.session.Claims++
		claim := &statev1.Claim{
			Session: proto.CloneOf(r.session.session), Run: proto.CloneOf(r.run), Epoch: r.session.session.Epoch,
			Journal: proto.CloneOf(r.session.journal), Used: proto.CloneOf(&r.used),
		}
		if text, err := json.Marshal(r.session.state); err == nil && r.session.state != nil {
			claim.Session.CustomState = string(text)
		}
		f.claimed[claim.GetEpoch()] = claim
		r.run.Status = statev1.RunStatus_RUN_STATUS_RUNNING
		claim.Run.Status = r.run.Status
		for _, m := range r.session.messages[max(0, len(r.session.messages)-tailLength):] {
			claim.Messages = append(claim.Messages, proto.CloneOf(m))
		}
		for _, c := range r.session.calls {
			if c.GetConsumedAt() == 0 || c.GetLateAnswer() != nil && c.GetLateAt() > 0 {
				claim.Calls = append(claim.Calls, proto.CloneOf(c))
			}
		}
		return &statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Execute{Execute: claim}}
	}
	return nil
}

// blocked reports whether the run waits for the end of a former one.
func (f *fakeState) blocked(r *fakeRun) bool {
	return slices.ContainsFunc(f.order, func(o *fakeRun) bool {
		return o.session == r.session && o.run.GetTurn() < r.run.GetTurn() && o.live()
	})
}

// due fires when a run that was given back for a while may be claimed; nil without one.
func (f *fakeState) due() <-chan time.Time {
	for _, r := range f.order {
		if wait := time.Until(time.UnixMilli(r.run.GetDueAt())); wait > 0 {
			return time.After(wait)
		}
	}
	return nil
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
		if stops := f.pushed[id]; len(stops) > 0 {
			work = &statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Stop{Stop: stops[0]}}
			f.pushed[id] = stops[1:]
		} else if credits > 0 {
			if work = f.next(id); work != nil {
				credits--
			}
		}
		changed, due := f.changed, f.due()
		f.mu.Unlock()
		if work != nil {
			if err := stream.Send(work); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-due:
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
	answer := &statev1.HeartbeatResponse{Forgotten: !f.executors[r.GetExecutorId()]}
	for _, run := range f.order {
		if run.holder == r.GetExecutorId() && run.live() && run.run.GetStop() != nil {
			answer.Stops = append(answer.Stops, &statev1.StoppedRun{RunId: run.run.GetRunId(), Stop: proto.CloneOf(run.run.GetStop())})
		}
	}
	f.announce()
	return answer, nil
}
