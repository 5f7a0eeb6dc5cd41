package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// State is a state service. The agents demo and other are announced.
type State struct {
	statev1.UnimplementedRunServiceServer
	statev1.UnimplementedSessionServiceServer
	statev1.UnimplementedCallServiceServer

	stream *Stream

	mu       sync.Mutex
	sessions map[string]*session
	agents   []*statev1.Agent
	runs     int
	prints   map[string]string // of the requests, by run
	failures int               // how many of the next calls fail
	failure  error
	starts   []*statev1.StartRunRequest
	stops    []*statev1.RequestStopRequest
	submits  []*statev1.SubmitCallsRequest
	entered  int // calls so far
	asked    int // for steps
	hold     func(*statev1.StartRunRequest)
}

type session struct {
	*statev1.Session
	runs        []*statev1.Run
	messages    []*eventv1.Message
	waiting     []*waiting
	gone        []*statev1.Run // waited and were given up
	calls       []*statev1.Call
	answered    []*statev1.Call       // taken by a step
	planned     []string              // calls of the step in flight; nil: its plan is not recorded
	checkpoints []*statev1.Checkpoint // the oldest first
	steps       []*statev1.StoredStep // the oldest first
}

// all returns every run: begun, discarded and waiting.
func (s *session) all() []*statev1.Run {
	runs := slices.Concat(s.runs, s.gone)
	for _, w := range s.waiting {
		runs = append(runs, w.Run)
	}
	return runs
}

func (s *session) current() *statev1.Run {
	if len(s.runs) == 0 {
		return nil
	}
	return s.runs[len(s.runs)-1]
}

func newState(s *Stream) *State {
	return &State{stream: s, sessions: map[string]*session{}, prints: map[string]string{}, agents: []*statev1.Agent{
		{AgentType: "demo", Description: "answers"}, {AgentType: "other"},
	}}
}

// Announce replaces the agents.
func (s *State) Announce(agents ...*statev1.Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents = agents
}

// FailNext lets the next calls fail with UNAVAILABLE.
func (s *State) FailNext(calls int) {
	s.FailNextWith(calls, fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "the database is away"))
}

// FailNextWith lets the next calls fail.
func (s *State) FailNextWith(calls int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.failure = calls, err
}

// Starts gives the StartRun requests so far.
func (s *State) Starts() []*statev1.StartRunRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.starts)
}

// Entered tells how many calls there were so far.
func (s *State) Entered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entered
}

// enter is called with mu held.
func (s *State) enter() error {
	s.entered++
	if s.failures > 0 {
		s.failures--
		return s.failure
	}
	return nil
}

func (s *State) find(tenant, id string) (*session, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	found := s.sessions[streamKey(tenant, id)]
	if found == nil {
		return nil, fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", id)
	}
	return found, nil
}

// StartRun implements the service.
func (s *State) StartRun(_ context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	s.holdUp(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(); err != nil {
		return nil, err
	}
	s.starts = append(s.starts, r)
	if r.GetAgentType() != "" && !slices.ContainsFunc(s.agents, func(a *statev1.Agent) bool { return a.GetAgentType() == r.GetAgentType() }) {
		return nil, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "no executor has announced %q", r.GetAgentType())
	}
	found, created, err := s.target(r)
	if err != nil {
		return nil, err
	}
	if run, err := s.repeated(found, r); run != nil || err != nil {
		return repetition(found, run), err
	}
	keep, run, err := found.keeps(r)
	if run != nil || err != nil {
		return repetition(found, run), err
	}
	if w, err := s.wait(found, r, keep); w != nil || err != nil {
		return waits(found, w), err
	}
	if err := startable(found, r); err != nil {
		return nil, err
	}
	abandoned := found.goBack(r, keep)
	s.sessions[streamKey(r.GetTenant(), found.GetSessionId())] = found
	run = s.makeRun(found, r)
	if r.GetRegenerate() != nil && keep >= 0 { // the message stands there, and is the run's own first one
		found.begin(run, &statev1.StartRunRequest{})
		run.StartMessageCount--
		found.messages[run.GetStartMessageCount()].RunId = run.GetRunId()
	} else {
		found.begin(run, r)
	}
	return &statev1.StartRunResponse{
		Session: proto.CloneOf(found.Session), Run: proto.CloneOf(run), SessionCreated: created, AbandonedCalls: abandoned,
	}, nil
}

func startable(found *session, r *statev1.StartRunRequest) error {
	if r.GetAgentType() != "" && found.GetAgentType() != r.GetAgentType() {
		return fault.New(fault.Conflict, "AGENT_MISMATCH", "the session is %s's", found.GetAgentType())
	}
	return resumable(found, r)
}

func (s *State) newRun(found *session, r *statev1.StartRunRequest) *statev1.Run {
	run := s.makeRun(found, r)
	found.begin(run, r)
	return run
}

func (s *State) makeRun(found *session, r *statev1.StartRunRequest) *statev1.Run {
	s.runs++
	id := fmt.Sprintf("run-%d", s.runs)
	run := &statev1.Run{
		RunId: id, SessionId: found.GetSessionId(), AgentType: found.GetAgentType(), Status: statev1.RunStatus_RUN_STATUS_QUEUED,
		RequestKey: r.GetRequestKey(), MessageId: "msg-" + id, Traceparent: r.GetTraceparent(), Entry: statev1.RunEntry_RUN_ENTRY_START,
	}
	if r.GetResume() != nil || r.GetRetry() != nil || r.GetBranch() != nil {
		run.Entry = statev1.RunEntry_RUN_ENTRY_RESUME
	}
	if found.writesOn(r) {
		run.MessageId = found.current().GetMessageId()
		found.answered, found.calls = append(found.answered, found.calls...), nil
	}
	s.prints[id] = printOf(r)
	return run
}

// writesOn reports whether the run that r begins goes on in the message of the run before
// it, with the answers to that one's calls.
func (s *session) writesOn(r *statev1.StartRunRequest) bool {
	return r.GetResume() != nil && !r.GetAbandonCalls() && r.GetResume().GetCheckpointId() == "" &&
		len(r.GetMessages())+len(r.GetResume().GetAppendMessages()) == 0 &&
		slices.ContainsFunc(s.calls, func(c *statev1.Call) bool { return c.GetConsumedAt() == 0 && c.GetRunId() != "" })
}

// printOf is what a repetition of the request has to bring again.
func printOf(r *statev1.StartRunRequest) string {
	return prototext.Format(&statev1.StartRunRequest{Messages: r.GetMessages(), Intent: r.GetIntent()})
}

// begin queues the run and appends its messages.
func (s *session) begin(run *statev1.Run, r *statev1.StartRunRequest) {
	s.Turn++
	run.Turn, run.Status, run.StartPosition = s.GetTurn(), statev1.RunStatus_RUN_STATUS_QUEUED, s.GetPosition()
	run.StartMessageCount = int64(len(s.messages))
	s.runs = append(s.runs, run)
	s.Status, s.CurrentRunId = statev1.SessionStatus_SESSION_STATUS_ACTIVE, run.GetRunId()
	for _, m := range slices.Concat(appended(r), r.GetMessages()) {
		m.RunId = run.GetRunId()
		if m.Id == "" {
			m.Id = fmt.Sprintf("given-%s-%d", run.GetRunId(), len(s.messages))
		}
		s.messages = append(s.messages, m)
	}
}

// DeleteSession implements the service.
func (s *State) DeleteSession(_ context.Context, r *statev1.DeleteSessionRequest) (*statev1.DeleteSessionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(r.GetTenant(), r.GetSessionId()); err != nil {
		return nil, err
	}
	delete(s.sessions, streamKey(r.GetTenant(), r.GetSessionId()))
	return &statev1.DeleteSessionResponse{Deleted: 1}, nil
}

// Has reports whether there is a session.
func (s *State) Has(tenant, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[streamKey(tenant, id)] != nil
}

// child adds a session below another one, with a run that works.
func (s *State) child(tenant, root, id string) *statev1.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := &session{Session: &statev1.Session{Tenant: tenant, SessionId: id, RootSessionId: root, AgentType: "other"}}
	s.sessions[streamKey(tenant, id)] = found
	return proto.CloneOf(s.newRun(found, &statev1.StartRunRequest{}))
}

// GetRun implements the service.
func (s *State) GetRun(_ context.Context, r *statev1.GetRunRequest) (*statev1.GetRunResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	for _, run := range found.all() {
		if run.GetRunId() == r.GetRunId() {
			return &statev1.GetRunResponse{Run: proto.CloneOf(run)}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "there is no run %q", r.GetRunId())
}

// ListRuns implements the service; it gives the last two runs at most, so that
// older ones have to be asked for.
func (s *State) ListRuns(_ context.Context, r *statev1.ListRunsRequest) (*statev1.ListRunsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	out := &statev1.ListRunsResponse{}
	for _, run := range slices.Backward(found.runs) {
		if r.GetBeforeTurn() > 0 && run.GetTurn() >= r.GetBeforeTurn() {
			continue
		}
		if out.HasMore = len(out.GetRuns()) == 2; out.GetHasMore() {
			break
		}
		out.Runs = append(out.Runs, proto.CloneOf(run))
	}
	return out, nil
}

// GetSession implements the service.
func (s *State) GetSession(_ context.Context, r *statev1.GetSessionRequest) (*statev1.GetSessionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	whole := proto.CloneOf(found.Session)
	whole.MessageCount = int64(len(found.messages))
	whole.Version = found.version()
	out := &statev1.GetSessionResponse{Session: whole, CurrentRun: proto.CloneOf(found.current())}
	for _, c := range found.calls {
		out.Calls = append(out.Calls, proto.CloneOf(c))
	}
	for _, w := range found.waiting {
		out.Waiting = append(out.Waiting, proto.CloneOf(w.Run))
	}
	return out, nil
}

// version is something that rises with whatever happens to the session.
func (s *session) version() int64 {
	v := int64(len(s.messages) + len(s.runs) + len(s.steps))
	for _, run := range s.runs {
		v += int64(run.GetStatus()) << 20
	}
	return v + s.GetPosition()
}

// maxListed is the largest page that ListMessages gives, small so that readers
// have to ask again.
const maxListed = 3

// ListMessages implements the service.
func (s *State) ListMessages(_ context.Context, r *statev1.ListMessagesRequest) (*statev1.ListMessagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	total := int64(len(found.messages))
	out := &statev1.ListMessagesResponse{Total: total}
	end := min(total, r.GetOffset()+int64(min(max(r.GetLimit(), 1), maxListed)))
	for i := r.GetOffset(); i < end; i++ {
		out.Messages = append(out.Messages, &statev1.StoredMessage{Ordinal: i, Message: proto.CloneOf(found.messages[i])})
	}
	out.HasMore = end < total
	return out, nil
}

// ListAgents implements the service.
func (s *State) ListAgents(context.Context, *statev1.ListAgentsRequest) (*statev1.ListAgentsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(); err != nil {
		return nil, err
	}
	return &statev1.ListAgentsResponse{Agents: slices.Clone(s.agents)}, nil
}

// Newest gives the newest run of a session, nil when there is none.
func (s *State) Newest(tenant, id string) *statev1.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[streamKey(tenant, id)]
	if found == nil {
		return nil
	}
	return proto.CloneOf(found.current())
}

// change changes the stored run and its session.
func (s *State) change(tenant string, run *statev1.Run, f func(*session, *statev1.Run)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[streamKey(tenant, run.GetSessionId())]
	for _, stored := range found.runs {
		if stored.GetRunId() == run.GetRunId() {
			f(found, stored)
		}
	}
}

// commit appends messages of the run.
func (s *session) commit(run *statev1.Run, messages []*eventv1.Message) {
	step := s.GetStepCount()
	for i, m := range messages {
		m.RunId = run.GetRunId()
		if m.Id == "" {
			m.Id = fmt.Sprintf("stored-%s-%d", run.GetRunId(), len(s.messages)+i)
		}
		step = max(step, m.GetStep())
	}
	s.messages = append(s.messages, messages...)
	if len(messages) > 0 {
		s.checkpoint(step)
	}
}

// ended is how a session stands when its run has ended.
var ended = map[statev1.RunStatus]statev1.SessionStatus{
	statev1.RunStatus_RUN_STATUS_COMPLETED:             statev1.SessionStatus_SESSION_STATUS_COMPLETED,
	statev1.RunStatus_RUN_STATUS_FAILED:                statev1.SessionStatus_SESSION_STATUS_FAILED,
	statev1.RunStatus_RUN_STATUS_INTERRUPTED:           statev1.SessionStatus_SESSION_STATUS_INTERRUPTED,
	statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL: statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
}

// finish ends the run at the position.
func (s *session) finish(run *statev1.Run, e *ending, at int64) {
	run.Status, run.Failure, run.CompletedAt, run.StartedAt, run.EndPosition = e.status, e.failure, time.Now().UnixMilli(), 1, at
	run.FinishReason, run.Usage = e.chunk.GetRunCompleted().GetFinishReason(), e.chunk.GetRunCompleted().GetUsage()
	if reason := e.chunk.GetRunInterrupted().GetReason(); reason != "" {
		run.Stop = &statev1.Stop{Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: reason}
	}
	run.Output = e.terminal.GetEnd().GetOutput()
	s.Failure, s.Status, s.Output, s.Position = e.failure, ended[e.status], run.GetOutput(), at
	s.next(run)
}
