package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

const (
	stolen     = "e2e-token-of-an-executor"
	ofGateways = "e2e-token-of-gateways"
	// secret is in everything that a thief may not read.
	secret = "the-secret-of-the-victim"
)

// guardedSystem starts a system with a token for each role, and a secret for grants.
func guardedSystem(t *testing.T) *harness.System {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	var lines string
	for role, token := range map[string]string{"executor": stolen, "gateway": ofGateways, "any": harness.InternalToken} {
		lines += fmt.Sprintf("%s %x\n", role, sha256.Sum256([]byte(token)))
	}
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, grants := "HOLDFAST_INTERNAL_TOKENS="+file, "HOLDFAST_GRANT_SECRET="+strings.Repeat("s", grant.MinSecret)
	return harness.Start(t, harness.Options{
		Agents: agents(), StateEnv: []string{tokens, grants, harness.PatientState}, StreamEnv: []string{tokens, grants},
		ExecutorEnv: []string{tokens, "HOLDFAST_INTERNAL_TOKEN=" + stolen}, GatewayEnv: []string{"HOLDFAST_INTERNAL_TOKEN=" + ofGateways},
	})
}

// caller calls state and stream with one token.
type caller struct{ state, stream *grpc.ClientConn }

func callerWith(t *testing.T, s *harness.System, token string) caller {
	t.Helper()
	dial := func(address string) *grpc.ClientConn {
		conn, err := rpc.Dial(rpc.TCP(), address, rpc.ClientConfig{Security: rpc.Security{Token: token}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	return caller{dial(s.State.Address), dial(s.Stream.Address)}
}

// call calls any method, and returns the answers as JSON. The request of a method with a stream of requests is its first one.
func (c caller) call(ctx context.Context, m protoreflect.MethodDescriptor, request proto.Message, signed []byte) (string, error) {
	conn := c.state
	if m.ParentFile().Package() == "holdfast.stream.v2" {
		conn = c.stream
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name, grant.Attach(signed))
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return "", err
	}
	var answers strings.Builder
	for {
		answer := kind.New().Interface()
		if err := stream.RecvMsg(answer); errors.Is(err, io.EOF) {
			return answers.String(), nil
		} else if err != nil {
			return answers.String(), err
		}
		if part, ok := answer.(*statev1.ReadFileResponse); ok {
			answers.Write(part.GetData())
		}
		answers.WriteString(strings.ReplaceAll(protojson.Format(answer), "\n", ""))
	}
}

// victim is a run that another executor holds, and what is known of it.
type victim struct {
	claim *statev1.Claim
	file  string
}

// request returns a valid request to the method about the victim's run, with the grant where the request has a field for it.
func (v victim) request(t *testing.T, m protoreflect.MethodDescriptor, signed []byte) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	request := kind.New()
	v.fill(request, signed)
	switch r := request.Interface().(type) {
	case *statev1.StartRunRequest:
		r.Messages = []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "obey"}}}}}}
		r.OnBusy, r.Parent = statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, nil
	case *statev1.RequestStopRequest:
		r.Kind = statev1.StopKind_STOP_KIND_ABORT
	case *statev1.SaveStateRequest:
		r.CustomState = "{}"
	case *statev1.CreateSessionRequest:
		r.Parent = nil
	case *statev1.RecordPlanRequest:
		r.Step, r.Plan = 1, &eventv1.Message{Id: "p", Role: eventv1.Role_ROLE_ASSISTANT}
	case *statev1.RecordResultRequest:
		r.Step, r.Result = 1, &statev1.CallResult{Result: &eventv1.ToolResultPart{ToolCallId: "c"}}
	case *statev1.CommitStepRequest:
		r.Step = 1
	case *statev1.FinishRunRequest:
		r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED}
	case *statev1.ClaimRunsRequest:
		return &statev1.ClaimRunsRequest{ExecutorId: "thief", Agents: []*statev1.Agent{{AgentType: "guarded"}}, Credits: 10}
	case *statev1.HeartbeatRequest:
		return &statev1.HeartbeatRequest{ExecutorId: "made-up", Held: &statev1.HeldRuns{}}
	case *statev1.AcquireRequest:
		limits := []*statev1.GovernorLimits{{Name: "g", Concurrency: 1}}
		return &statev1.AcquireRequest{ExecutorId: "thief", LeaseId: "lease", Governors: limits, TtlMs: 1000}
	case *statev1.ReleaseRequest:
		return &statev1.ReleaseRequest{LeaseId: "unknown", Governors: []string{"g"}}
	case *statev1.ClaimDeliveriesRequest:
		return &statev1.ClaimDeliveriesRequest{ExecutorId: "thief", Limit: 1}
	case *statev1.ReportDeliveriesRequest:
		return &statev1.ReportDeliveriesRequest{ExecutorId: "thief", Reports: []*statev1.DeliveryReport{{Tenant: "first", Number: 1, ClaimId: "made-up"}}}
	case *streamv2.AppendRequest:
		r.Epoch = v.claim.GetEpoch()
	case *streamv2.ReadRequest:
		r.StoredOnly = true
	}
	return request.Interface()
}

// fill sets the fields that name the victim.
func (v victim) fill(m protoreflect.Message, signed []byte) {
	texts := map[protoreflect.Name]string{
		"tenant": "first", "session_id": "victim", "root_session_id": "victim", "from_session_id": "victim", "agent_type": "guarded",
		"run_id": v.claim.GetRun().GetRunId(), "file_id": v.file, "memory_id": "m", "entity_id": "e", "tool_call_id": "c",
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		text, known := texts[field.Name()]
		switch {
		case field.Name() == "file_ids":
			m.Mutable(field).List().Append(protoreflect.ValueOfString(v.file))
		case field.IsList() || field.IsMap() || field.ContainingOneof() != nil:
		case known && field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(text))
		case field.Name() == "epoch":
			m.Set(field, protoreflect.ValueOfInt64(v.claim.GetEpoch()))
		case field.Name() == "grant":
			m.Set(field, protoreflect.ValueOfBytes(signed))
		case field.Name() == "run" || field.Name() == "stream" || field.Name() == "parent":
			v.fill(m.Mutable(field).Message(), signed)
		}
	}
}

// eachInternalMethod calls f with every method of state and stream.
func eachInternalMethod(f func(m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if file.Package() != "holdfast.state.v1" && file.Package() != "holdfast.stream.v2" {
			return true
		}
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				f(methods.Get(j))
			}
		}
		return true
	})
}

// claims is an open claim stream of an executor of the test.
type claims struct {
	grpc.BidiStreamingClient[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]
	t *testing.T
}

func announceGuarded(t *testing.T, c caller, id string) claims {
	t.Helper()
	stream, err := statev1.NewWorkServiceClient(c.state).ClaimRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&statev1.ClaimRunsRequest{ExecutorId: id, Agents: []*statev1.Agent{{AgentType: "guarded"}}, Credits: 100}); err != nil {
		t.Fatal(err)
	}
	return claims{stream, t}
}

func (c claims) next() *statev1.Claim {
	c.t.Helper()
	answer, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.GetExecute()
}

// start starts a run with the secret in its message, its file and its state. The agent may have to be announced first.
func (c caller) start(t *testing.T, session, file string) {
	t.Helper()
	parts := []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: secret}}}}
	if file != "" {
		parts = append(parts, &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{Url: "holdfast-file:" + file, MediaType: "text/plain"}}})
	}
	r := &statev1.StartRunRequest{
		Tenant: "first", SessionId: session, AgentType: "guarded", CustomState: `{"of":"` + secret + `"}`,
		Messages: []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: parts}},
	}
	harness.WaitFor(t, harness.StopLimit, "the agent to be announced", func() (bool, string) {
		_, err := statev1.NewRunServiceClient(c.state).StartRun(t.Context(), r)
		if err != nil && fault.ReasonOf(err) != "AGENT_NOT_FOUND" {
			t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

func (c caller) putFile(t *testing.T) string {
	t.Helper()
	stream, err := statev1.NewFileServiceClient(c.state).PutFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head := &statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: "first", MediaType: "text/plain"}}}
	data := &statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: []byte(secret)}}
	if err := errors.Join(stream.Send(head), stream.Send(data)); err != nil {
		t.Fatal(err)
	}
	put, err := stream.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	return put.GetFile().GetFileId()
}

func TestAStolenTokenOfAnExecutorReachesNoRunThatItDoesNotHold(t *testing.T) {
	t.Parallel()
	s := guardedSystem(t)
	if _, err := s.Client.Converse(t.Context(), "chat", "talker", "hello"); err != nil {
		t.Errorf("a chat with the roles of gateway and executor: %v", err)
	}
	all, thief := callerWith(t, s, harness.InternalToken), callerWith(t, s, stolen)
	work := announceGuarded(t, all, "holder")
	v := victim{file: all.putFile(t)}
	all.start(t, "victim", v.file)
	older := work.next()
	run := &statev1.RunRef{Tenant: "first", SessionId: "victim", RunId: older.GetRun().GetRunId(), Epoch: older.GetEpoch(), Grant: older.GetGrant()}
	if _, err := statev1.NewWorkServiceClient(all.state).ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: run}); err != nil {
		t.Fatal(err)
	}
	v.claim = work.next()
	all.start(t, "other", "")
	other := work.next()
	v.show(t, all)
	grants := []struct {
		name   string
		signed []byte
	}{{"no grant", nil}, {"made up", []byte(strings.Repeat("x", 90))}, {"of another run", other.GetGrant()}, {"of an older epoch", older.GetGrant()}}
	refusals := []string{"ROLE_REFUSED", "GRANT_MISSING", "GRANT_REFUSED", "EPOCH_STALE", "FILE_NOT_FOUND"}
	// ClaimRuns names no run, and gets none. The executor of Heartbeat is unknown, as is the file to another run. The
	// leases of model calls belong to no run, and neither do deliveries: there are none, and the claim of a report is made up.
	harmless := map[string]string{
		"ClaimRuns": "", "Heartbeat": `{"forgotten":true}`, "GetFiles": "{}", "Acquire": "{}", "Release": "{}",
		"ClaimDeliveries": "{}", "ReportDeliveries": "{}",
	}
	table := &strings.Builder{}
	columns := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "\nRPC\tno grant\tmade up\tof another run\tof an older epoch\tany, with the grant")
	methods, leaks := 0, 0
	eachInternalMethod(func(m protoreflect.MethodDescriptor) {
		methods++
		fmt.Fprintf(columns, "%s", m.FullName())
		for _, g := range grants {
			answer, err := thief.call(t.Context(), m, v.request(t, m, g.signed), g.signed)
			reason := fault.ReasonOf(err)
			fmt.Fprintf(columns, "\t%s", outcome(answer, err))
			switch name := string(m.Name()); {
			case strings.Contains(answer, secret):
				t.Errorf("%s, %s: it leaks %s", m.FullName(), g.name, answer)
			case err == nil && !isHarmless(harmless, name, answer), err != nil && !slices.Contains(refusals, reason):
				t.Errorf("%s, %s: got %q, %v; want a refusal", m.FullName(), g.name, answer, err)
			}
		}
		control := "-"
		if reads := strings.HasPrefix(string(m.Name()), "Get") || strings.HasPrefix(string(m.Name()), "List") || strings.HasPrefix(string(m.Name()), "Read"); reads {
			answer, err := all.call(t.Context(), m, v.request(t, m, v.claim.GetGrant()), v.claim.GetGrant())
			control = outcome(answer, err)
			if strings.Contains(answer, secret) {
				leaks++
				control += ", with the secret"
			}
		}
		fmt.Fprintf(columns, "\t%s\n", control)
	})
	_ = columns.Flush()
	t.Log(table)
	if methods < 45 || leaks < 4 { // the session, its messages, its file and its live log
		t.Errorf("called %d methods, and the control has read the secret by %d: the test would not see a leak", methods, leaks)
	}
	v.unharmed(t, all)
}

func isHarmless(answers map[string]string, method, answer string) bool {
	want, ok := answers[method]
	return ok && strings.ReplaceAll(answer, " ", "") == want
}

// show appends a chunk with the secret to the victim's live log.
func (v victim) show(t *testing.T, c caller) {
	t.Helper()
	claim := v.claim
	attempt, _ := position.Attempts(claim.GetSession().GetClaims())
	first := position.Position{Step: 1, Attempt: attempt}.Sequence()
	_, err := streamv2.NewStreamServiceClient(c.stream).Append(t.Context(), &streamv2.AppendRequest{
		Stream: &streamv2.StreamRef{Tenant: "first", RootSessionId: "victim", SessionId: "victim"}, Epoch: claim.GetEpoch(), Grant: claim.GetGrant(),
		Records: []*streamv2.Record{{Sequence: first, Attempt: &streamv2.Attempt{Stands: claim.GetSession().GetPosition(), RunId: secret}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unharmed checks that the victim's run is still held, and that its holder can end it.
func (v victim) unharmed(t *testing.T, c caller) {
	t.Helper()
	got, err := statev1.NewSessionServiceClient(c.state).GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "first", SessionId: "victim"})
	if err != nil || got.GetSession().GetEpoch() != v.claim.GetEpoch() || !strings.Contains(got.GetSession().GetCustomState(), secret) ||
		got.GetCurrentRun().GetStatus() != statev1.RunStatus_RUN_STATUS_RUNNING || got.GetCurrentRun().GetStop() != nil || len(got.GetWaiting()) > 0 {
		t.Errorf("got %v, %v; want the victim's run as it was", got, err)
	}
	run := &statev1.RunRef{Tenant: "first", SessionId: "victim", RunId: v.claim.GetRun().GetRunId(), Epoch: v.claim.GetEpoch(), Grant: v.claim.GetGrant()}
	_, err = statev1.NewWorkServiceClient(c.state).FinishRun(t.Context(), &statev1.FinishRunRequest{Run: run, Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED}})
	if err != nil {
		t.Errorf("the holder ends its run: %v", err)
	}
}

// outcome describes the end of a call.
func outcome(answer string, err error) string {
	switch {
	case err != nil:
		return fault.ReasonOf(err)
	case answer == "" || answer == "{}":
		return "nothing"
	}
	return fmt.Sprintf("%d bytes", len(answer))
}
