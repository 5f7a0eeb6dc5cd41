package gatewaytest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// The largest pages for a gateway, so that it must load several.
const (
	maxRuns     = 2
	maxMessages = 3
	maxSteps    = 2
)

// State is the state service, and injects faults into a gateway's calls to it.
type State struct {
	runs        statev1.RunServiceClient
	sessions    statev1.SessionServiceClient
	calls       statev1.CallServiceClient
	checkpoints statev1.CheckpointServiceClient
	files       statev1.FileServiceClient
	usage       statev1.UsageServiceClient
	audit       statev1.AuditServiceClient
	executor    *executor

	mu       sync.Mutex
	failures int // how many of the next calls fail
	failure  error
	losses   int      // how many of the next calls fail after they have taken effect
	methods  []string // of the calls so far
	inFlight int
	starts   []*statev1.StartRunRequest
	stops    []*statev1.RequestStopRequest
	submits  []*statev1.SubmitCallsRequest
	hold     func(*statev1.StartRunRequest)
	uploads  int // calls of PutFile
	reads    int // calls of ReadFile
}

// Files returns a client of the files.
func (s *State) Files() statev1.FileServiceClient { return s.files }

// Uploads returns how many files the gateway has uploaded.
func (s *State) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uploads
}

// FileReads returns how many times the gateway has begun to read a file.
func (s *State) FileReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// countFiles is an interceptor of the gateway's streaming calls.
func (s *State) countFiles(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	s.mu.Lock()
	switch info.FullMethod {
	case statev1.FileService_PutFile_FullMethodName:
		s.uploads++
	case statev1.FileService_ReadFile_FullMethodName:
		s.reads++
	}
	s.mu.Unlock()
	return next(service, stream)
}

func newState() *State { return &State{} }

func (s *State) connect(conn *grpc.ClientConn, e *executor) {
	s.executor = e
	s.runs, s.sessions = statev1.NewRunServiceClient(conn), statev1.NewSessionServiceClient(conn)
	s.calls, s.checkpoints = statev1.NewCallServiceClient(conn), statev1.NewCheckpointServiceClient(conn)
	s.files, s.usage, s.audit = statev1.NewFileServiceClient(conn), statev1.NewUsageServiceClient(conn), statev1.NewAuditServiceClient(conn)
}

// intercept runs around every call of a gateway.
func (s *State) intercept(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if start, ok := r.(*statev1.StartRunRequest); ok {
		s.mu.Lock()
		hold := s.hold
		s.mu.Unlock()
		if hold != nil {
			hold(start)
		}
	}
	if err := s.enter(info.FullMethod, r); err != nil {
		return nil, err
	}
	switch r := r.(type) {
	case *statev1.ListRunsRequest:
		r.Limit = atMost(r.GetLimit(), maxRuns)
	case *statev1.ListMessagesRequest:
		r.Limit = atMost(r.GetLimit(), maxMessages)
	case *statev1.ListStepsRequest:
		r.Limit = atMost(r.GetLimit(), maxSteps)
	}
	answer, err := next(ctx, r)
	if err := s.done(r, err); err != nil {
		return nil, err
	}
	return answer, nil
}

// done records a successful call. It returns err, or the failure of a lost answer.
func (s *State) done(r any, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if err != nil {
		return err
	}
	switch r := r.(type) {
	case *statev1.RequestStopRequest:
		s.stops = append(s.stops, r)
	case *statev1.SubmitCallsRequest:
		s.submits = append(s.submits, r)
	}
	if s.losses > 0 {
		s.losses--
		return storeUnavailable()
	}
	return nil
}

// maxLimit is the largest valid limit of a page.
const maxLimit = 200

// atMost lowers a valid limit.
func atMost(limit, most int32) int32 {
	switch {
	case limit == 0:
		return most
	case limit > maxLimit:
		return limit
	}
	return min(limit, most)
}

// enter counts the call, or fails it before it takes effect.
func (s *State) enter(method string, r any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.methods = append(s.methods, method[strings.LastIndexByte(method, '/')+1:])
	if s.failures > 0 {
		s.failures--
		return s.failure
	}
	s.inFlight++
	if start, ok := r.(*statev1.StartRunRequest); ok {
		s.starts = append(s.starts, proto.CloneOf(start))
	}
	return nil
}

// FailNext lets the next calls fail with UNAVAILABLE.
func (s *State) FailNext(calls int) { s.FailNextWith(calls, storeUnavailable()) }

func storeUnavailable() error {
	return fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "the database cannot be reached")
}

// LoseNext lets the next successful calls fail with UNAVAILABLE after they have taken effect.
func (s *State) LoseNext(calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = calls
}

// FailNextWith lets the next calls fail before they take effect.
func (s *State) FailNextWith(calls int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.failure = calls, err
}

// HoldStarts calls f before each StartRun and waits for it; nil removes it.
func (s *State) HoldStarts(f func(*statev1.StartRunRequest)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = f
}

// Starts returns the StartRun requests so far.
func (s *State) Starts() []*statev1.StartRunRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.starts)
}

// Stops returns the successful RequestStop requests so far.
func (s *State) Stops() []*statev1.RequestStopRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stops)
}

// Submits returns the successful SubmitCalls requests so far.
func (s *State) Submits() []*statev1.SubmitCallsRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.submits)
}

// Methods returns the methods of the calls so far.
func (s *State) Methods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.methods)
}

// CallCount returns the number of calls so far.
func (s *State) CallCount() int { return len(s.Methods()) }

// InFlight returns the number of calls in flight.
func (s *State) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// Announce replaces the executor by one with these agents.
func (s *State) Announce(t testing.TB, agents ...*statev1.Agent) {
	t.Helper()
	s.executor.announce(t, agents...)
}

// StartRun calls the service without faults. A request without a message sends "hi".
func (s *State) StartRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	if r.GetIntent() == nil && len(r.GetMessages()) == 0 {
		text := &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}
		r.Messages = []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{text}}}
	}
	return s.runs.StartRun(ctx, r)
}

// Get returns the session, nil if it does not exist.
func (s *State) Get(tenant, id string) *statev1.GetSessionResponse {
	got, err := s.sessions.GetSession(context.Background(), &statev1.GetSessionRequest{Tenant: tenant, SessionId: id})
	if err != nil && fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		panic(err)
	}
	return got
}

// Messages returns the stored messages of a session, at most 200.
func (s *State) Messages(t testing.TB, tenant, id string) (messages []*eventv1.Message) {
	t.Helper()
	page, err := s.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: tenant, SessionId: id, Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page.GetMessages() {
		messages = append(messages, m.GetMessage())
	}
	return messages
}

// Sessions returns the ids of all sessions of the tenant.
func (s *State) Sessions(t testing.TB, tenant string) (ids []string) {
	t.Helper()
	for cursor := ""; ; {
		page, err := s.sessions.ListSessions(t.Context(), &statev1.ListSessionsRequest{Tenant: tenant, Limit: 200, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range page.GetSessions() {
			ids = append(ids, session.GetSessionId())
		}
		if cursor = page.GetNext(); cursor == "" {
			return ids
		}
	}
}

// AuditLog returns all entries of the tenant's audit log, newest first.
func (s *State) AuditLog(t testing.TB, tenant string) (entries []*eventv1.AuditEvent) {
	t.Helper()
	for r := (&statev1.ListEventsRequest{Tenant: tenant, Limit: 200}); ; {
		page, err := s.audit.ListEvents(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, page.GetEvents()...)
		if !page.GetHasMore() {
			return entries
		}
		r.Cursor = entries[len(entries)-1].GetCursor()
	}
}

// Newest returns the newest run of a session, nil for none.
func (s *State) Newest(tenant, id string) *statev1.Run { return s.Get(tenant, id).GetCurrentRun() }

// Has reports whether there is a session.
func (s *State) Has(tenant, id string) bool { return s.Get(tenant, id).GetSession() != nil }

// PendingCalls returns the calls of a session with answers that no step has consumed.
func (s *State) PendingCalls(tenant, id string) []*statev1.Call { return s.Get(tenant, id).GetCalls() }

// RewindToStep rewinds a session to the checkpoint of the step.
func (s *State) RewindToStep(tenant, id string, step int32) {
	ctx := context.Background()
	list, err := s.checkpoints.ListCheckpoints(ctx, &statev1.ListCheckpointsRequest{Tenant: tenant, SessionId: id})
	if err != nil {
		panic(err)
	}
	for _, c := range list.GetCheckpoints() {
		if c.GetStep() == step {
			_, err = s.checkpoints.Rewind(ctx, &statev1.RewindRequest{Tenant: tenant, SessionId: id, CheckpointId: c.GetCheckpointId()})
		}
	}
	if err != nil {
		panic(err)
	}
}

// SaveState replaces the state of a session, without faults.
func (s *State) SaveState(tenant, id, state string) {
	_, err := s.sessions.SaveState(context.Background(), &statev1.SaveStateRequest{Tenant: tenant, SessionId: id, CustomState: state})
	if err != nil {
		panic(err)
	}
}

// RecordTokens records the usage of a model in a session, without faults.
func (s *State) RecordTokens(t testing.TB, tenant, id string, tokens int64) {
	t.Helper()
	entry := &eventv1.TokenUsage{Model: "m", PromptTokens: tokens, TotalTokens: tokens}
	_, err := s.usage.RecordUsage(t.Context(), &statev1.RecordUsageRequest{
		Tenant: tenant, SessionId: id, Usage: []*eventv1.UsageEntry{{Entry: &eventv1.UsageEntry_Tokens{Tokens: entry}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Abort stops a session, without faults.
func (s *State) Abort(tenant, id string) {
	_, err := s.runs.RequestStop(
		context.Background(),
		&statev1.RequestStopRequest{Tenant: tenant, SessionId: id, Kind: statev1.StopKind_STOP_KIND_ABORT},
	)
	if err != nil {
		panic(err)
	}
}
