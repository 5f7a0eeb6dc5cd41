package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// files are the files of the contract.
var files = []protoreflect.FileDescriptor{
	statev1.File_holdfast_state_v1_run_proto, statev1.File_holdfast_state_v1_session_proto, statev1.File_holdfast_state_v1_work_proto,
	statev1.File_holdfast_state_v1_checkpoint_proto, statev1.File_holdfast_state_v1_call_proto, statev1.File_holdfast_state_v1_usage_proto,
	statev1.File_holdfast_state_v1_memory_proto, statev1.File_holdfast_state_v1_operator_proto, statev1.File_holdfast_state_v1_governor_proto,
	statev1.File_holdfast_state_v1_audit_proto, statev1.File_holdfast_state_v1_erasure_proto,
	statev1.File_holdfast_state_v1_outbox_proto,
}

// eachMethod calls f with every method of the contract.
func eachMethod(f func(name string, m protoreflect.MethodDescriptor)) {
	for _, file := range files {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				f(string(service.Name())+"/"+string(m.Name()), m)
			}
		}
	}
}

// answerTo returns an empty answer of the method.
func answerTo(t *testing.T, method string) proto.Message {
	t.Helper()
	var answer proto.Message
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		if name == method {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
			if err != nil {
				t.Fatal(err)
			}
			answer = kind.New().Interface()
		}
	})
	if answer == nil {
		t.Fatalf("there is no method %s", method)
	}
	return answer
}

// ofNoTenant are the methods without a tenant.
var ofNoTenant = map[string]bool{
	"OutboxService/ClaimDeliveries": true, "OutboxService/ReportDeliveries": true, // a claim names the tenant
	"GovernorService/Acquire": true, "GovernorService/Release": true,
	"SessionService/ListAgents": true, "WorkService/ClaimRuns": true, "WorkService/Heartbeat": true, "OperatorService/ExpireSessions": true,
	"AuditService/RecordEvents": true, "ErasureService/FinishLogErasures": true, // name a tenant for each entry
}

// requestsOn returns valid requests of a tenant on the session of the run, by method. The session waits for the
// answer to the call c1.
func requestsOn(tenant string, ref *statev1.RunRef, point string) map[string]proto.Message {
	theirs := proto.CloneOf(ref)
	theirs.Tenant = tenant
	id := ref.GetSessionId()
	child := &statev1.SubSession{SessionId: "far", Status: active, Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE}
	plan := &eventv1.Message{Id: "p", Role: eventv1.Role_ROLE_ASSISTANT}
	parent := &statev1.Parent{SessionId: id}
	return map[string]proto.Message{
		"RunService/StartRun":                  &statev1.StartRunRequest{Tenant: tenant, SessionId: id, Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}, AbandonCalls: true},
		"RunService/GetRun":                    &statev1.GetRunRequest{Tenant: tenant, SessionId: id, RunId: ref.GetRunId()},
		"RunService/ListRuns":                  &statev1.ListRunsRequest{Tenant: tenant, SessionId: id},
		"RunService/RequestStop":               &statev1.RequestStopRequest{Tenant: tenant, SessionId: id, Kind: statev1.StopKind_STOP_KIND_ABORT},
		"SessionService/CreateSession":         &statev1.CreateSessionRequest{Tenant: tenant, SessionId: "new below " + id, AgentType: "support", Parent: parent},
		"SessionService/GetSession":            &statev1.GetSessionRequest{Tenant: tenant, SessionId: id},
		"SessionService/DeleteSession":         &statev1.DeleteSessionRequest{Tenant: tenant, SessionId: id},
		"SessionService/UpdateSession":         &statev1.UpdateSessionRequest{Tenant: tenant, SessionId: id, Tags: &statev1.Tags{}},
		"SessionService/SetStatus":             &statev1.SetStatusRequest{Tenant: tenant, SessionId: id, Status: sessionOK},
		"SessionService/SaveState":             &statev1.SaveStateRequest{Tenant: tenant, SessionId: id, CustomState: "{}"},
		"SessionService/MergeState":            &statev1.MergeStateRequest{Tenant: tenant, SessionId: id},
		"SessionService/ReadStore":             &statev1.ReadStoreRequest{Tenant: tenant, SessionId: id},
		"SessionService/WriteStore":            &statev1.WriteStoreRequest{Tenant: tenant, SessionId: id, Writes: []*statev1.StoreWrite{putting("k", "1")}},
		"SessionService/AppendMessages":        &statev1.AppendMessagesRequest{Tenant: tenant, SessionId: id, Messages: []*eventv1.Message{userMessage("x")}},
		"SessionService/TruncateMessages":      &statev1.TruncateMessagesRequest{Tenant: tenant, SessionId: id},
		"SessionService/PutSubSession":         &statev1.PutSubSessionRequest{Tenant: tenant, SessionId: id, SubSession: child},
		"SessionService/ListMessages":          &statev1.ListMessagesRequest{Tenant: tenant, SessionId: id},
		"SessionService/ListSteps":             &statev1.ListStepsRequest{Tenant: tenant, SessionId: id},
		"WorkService/RecordPlan":               &statev1.RecordPlanRequest{Run: theirs, Step: 2, Plan: plan},
		"WorkService/RecordResult":             &statev1.RecordResultRequest{Run: theirs, Step: 2, Result: &statev1.CallResult{Result: &eventv1.ToolResultPart{ToolCallId: "c"}}},
		"WorkService/CommitStep":               step(theirs, 2),
		"WorkService/FinishRun":                &statev1.FinishRunRequest{Run: theirs, Outcome: &statev1.Outcome{Status: completed}},
		"WorkService/ReleaseRun":               &statev1.ReleaseRunRequest{Run: theirs},
		"CheckpointService/GetCheckpoint":      &statev1.GetCheckpointRequest{Tenant: tenant, SessionId: id},
		"CheckpointService/ListCheckpoints":    &statev1.ListCheckpointsRequest{Tenant: tenant, SessionId: id},
		"CheckpointService/Rewind":             &statev1.RewindRequest{Tenant: tenant, SessionId: id, CheckpointId: point},
		"CheckpointService/Branch":             &statev1.BranchRequest{Tenant: tenant, SessionId: id, CheckpointId: point, NewSessionId: "branch of " + id},
		"CallService/SubmitCall":               &statev1.SubmitCallRequest{Tenant: tenant, SessionId: id, ToolCallId: "c1", Answer: result(`1`)},
		"CallService/SubmitCalls":              &statev1.SubmitCallsRequest{Tenant: tenant, SessionId: id, Answers: answersTo("c1")},
		"UsageService/RecordUsage":             &statev1.RecordUsageRequest{Tenant: tenant, SessionId: id, Usage: tokens(1)},
		"UsageService/ListUsage":               &statev1.ListUsageRequest{Tenant: tenant, SessionId: id},
		"UsageService/GetUsageRollup":          &statev1.GetUsageRollupRequest{Tenant: tenant, SessionId: id},
		"MemoryService/GetMemory":              &statev1.GetMemoryRequest{Tenant: tenant, MemoryId: "m"},
		"MemoryService/DeleteMemory":           &statev1.DeleteMemoryRequest{Tenant: tenant, MemoryId: "m"},
		"OutboxService/GetSubscription":        &statev1.GetSubscriptionRequest{Tenant: tenant, Id: "w"},
		"OutboxService/DeleteSubscription":     &statev1.DeleteSubscriptionRequest{Tenant: tenant, Id: "w"},
		"OutboxService/TestSubscription":       &statev1.TestSubscriptionRequest{Tenant: tenant, Id: "w"},
		"OutboxService/ReplayDeliveries":       &statev1.ReplayDeliveriesRequest{Tenant: tenant, SubscriptionId: "w"},
		"WorkService/GetDefinition":            &statev1.GetDefinitionRequest{Run: theirs, Hash: clerkHash},
		"StoredAgentService/GetStoredAgent":    &statev1.GetStoredAgentRequest{Tenant: tenant, AgentType: "clerk"},
		"StoredAgentService/DeleteStoredAgent": &statev1.DeleteStoredAgentRequest{Tenant: tenant, AgentType: "clerk"},
	}
}

func TestASessionOfAnotherTenantDoesNotExistWhateverTheCall(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		ref := s.suspend("s", "c1")
		point := b.get("s").GetSession().GetCheckpointId()
		_, err := b.memories.AddMemory(t.Context(), &statev1.AddMemoryRequest{Tenant: "acme", Memory: &statev1.Memory{MemoryId: "m", EntityId: "e", Text: "likes tea"}})
		b.must(err)
		b.subscribe("acme", "w")
		b.putAgent("acme", "clerk", clerk)
		before := b.get("s")

		const tenant, id = "evil", "s"
		refused := requestsOn(tenant, ref, point)
		empty := map[string]proto.Message{
			"SessionService/ListSessions":    &statev1.ListSessionsRequest{Tenant: tenant},
			"SessionService/GrantMethod":     &statev1.GrantMethodRequest{Tenant: tenant, SessionId: id, TtlMs: 1},
			"CallService/ListOpenCalls":      &statev1.ListOpenCallsRequest{Tenant: tenant},
			"UsageService/QueryUsage":        &statev1.QueryUsageRequest{Tenant: tenant, SessionIds: []string{id}},
			"MemoryService/SearchMemories":   &statev1.SearchMemoriesRequest{Tenant: tenant, Query: "tea"},
			"AuditService/ListEvents":        &statev1.ListEventsRequest{Tenant: tenant},
			"ErasureService/ListLogErasures": &statev1.ListLogErasuresRequest{Tenant: tenant},
			"MemoryService/ListEntities":     &statev1.ListEntitiesRequest{Tenant: tenant},

			"OutboxService/ListSubscriptions": &statev1.ListSubscriptionsRequest{Tenant: tenant},
			"OutboxService/ListDeliveries":    &statev1.ListDeliveriesRequest{Tenant: tenant},
		}
		eachMethod(func(method string, _ protoreflect.MethodDescriptor) {
			request := refused[method]
			switch {
			case request != nil:
				_, err := b.call(method, request)
				want := "SESSION_NOT_FOUND"
				switch {
				case strings.HasPrefix(method, "MemoryService/"):
					want = "MEMORY_NOT_FOUND"
				case strings.HasPrefix(method, "StoredAgentService/"):
					want = "AGENT_NOT_FOUND"
				case method == "WorkService/GetDefinition":
					want = "DEFINITION_NOT_FOUND"
				}
				if strings.HasPrefix(method, "OutboxService/") {
					want = "SUBSCRIPTION_NOT_FOUND"
				}
				if f, ok := fault.From(err); !ok || f.Kind != fault.NotFound || f.Reason != want {
					t.Errorf("%s: got %v, want %s", method, err, want)
				}
			case empty[method] != nil:
				answer, err := b.call(method, empty[method])
				want := answerTo(t, method)
				if list, ok := want.(*statev1.ListSessionsResponse); ok {
					list.Limit = 50
				}
				if err != nil || !proto.Equal(answer, want) {
					t.Errorf("%s: got %v, %v; want nothing", method, answer, err)
				}
			case method == "MemoryService/AddMemory", // below
				method == "OutboxService/PutSubscription",     // in outbox_test.go
				method == "StoredAgentService/PutStoredAgent", // in stored_agents_test.go
				method == "ErasureService/Erase":              // in erasure_test.go
			case !ofNoTenant[method]:
				t.Errorf("%s is not among the methods that this test calls", method)
			}
		})
		if after := b.get("s"); !proto.Equal(before, after) {
			t.Errorf("got session\n%v\nwant it as it was\n%v", after, before)
		}
	})
}

func TestTheSameIdsMeanAnotherThingToAnotherTenant(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.start("s")
		theirs := startOf("s")
		theirs.Tenant = "evil"
		got, err := b.runs.StartRun(t.Context(), theirs)
		if err != nil || !got.GetSessionCreated() {
			t.Errorf("got %v, %v; want a session of its own", got, err)
		}
		for _, tenant := range []string{"acme", "evil"} {
			made, err := b.memories.AddMemory(t.Context(), &statev1.AddMemoryRequest{Tenant: tenant, Memory: &statev1.Memory{MemoryId: "m", Text: tenant}})
			if err != nil || !made.GetAdded() {
				t.Errorf("got %v, %v; want a memory of its own", made, err)
			}
		}
		kept, err := b.memories.GetMemory(t.Context(), &statev1.GetMemoryRequest{Tenant: "acme", MemoryId: "m"})
		if err != nil || kept.GetMemory().GetText() != "acme" {
			t.Errorf("got %v, %v", kept, err)
		}
	})
}
