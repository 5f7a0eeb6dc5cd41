package gateway_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// rpcCase has the requests for one RPC.
type rpcCase struct {
	// good returns a request that succeeds for the session with the id, which has a completed run
	// and the given checkpoint.
	good func(id, run, checkpoint string) proto.Message
	// invalid is refused with the reason, ID_INVALID if empty; nil if the RPC takes any request.
	invalid proto.Message
	reason  string
	// foreign is the reason for another tenant: SESSION_NOT_FOUND if empty. "none" means that the
	// request succeeds, without anything of this tenant.
	foreign string
	// admin: the request needs the scope admin.
	admin bool
}

var longID = strings.Repeat("x", 257)

// rpcCases has a case for each RPC of the service.
var rpcCases = map[string]rpcCase{
	"Start": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.StartRequest{SessionId: id, Message: "again"} },
		invalid: &agentv1.StartRequest{SessionId: longID, AgentType: "demo", Message: "hi"}, foreign: "none", // begins a session of its own
	},
	"Stream": {
		good:    func(id, run, _ string) proto.Message { return &agentv1.StreamRequest{SessionId: id, RunId: run} },
		invalid: &agentv1.StreamRequest{SessionId: longID},
	},
	"GetRun": {
		good:    func(id, run, _ string) proto.Message { return &agentv1.GetRunRequest{SessionId: id, RunId: run} },
		invalid: &agentv1.GetRunRequest{SessionId: longID, RunId: "run_1"},
	},
	"ListRuns": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.ListRunsRequest{SessionId: id} },
		invalid: &agentv1.ListRunsRequest{},
	},
	"WaitRun": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.WaitRunRequest{SessionId: id, WaitMs: 60_000} },
		invalid: &agentv1.WaitRunRequest{SessionId: "a\nb"},
	},
	"Resume": {
		good: func(id, _, checkpoint string) proto.Message {
			return &agentv1.ResumeRequest{SessionId: id, Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT, CheckpointId: checkpoint, Message: "again"}
		},
		invalid: &agentv1.ResumeRequest{SessionId: longID},
	},
	"CanResume": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.CanResumeRequest{SessionId: id} },
		invalid: &agentv1.CanResumeRequest{SessionId: longID},
	},
	"Interrupt": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.InterruptRequest{SessionId: id} },
		invalid: &agentv1.InterruptRequest{SessionId: longID},
	},
	"Abort": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.AbortRequest{SessionId: id} },
		invalid: &agentv1.AbortRequest{},
	},
	"Get": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.GetRequest{SessionId: id} },
		invalid: &agentv1.GetRequest{},
	},
	"GetSession": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.GetSessionRequest{SessionId: id} },
		invalid: &agentv1.GetSessionRequest{SessionId: "\x7f"},
	},
	"ListSessions": {
		good: func(_, _, _ string) proto.Message {
			return &agentv1.ListSessionsRequest{AgentType: "demo", Statuses: []string{"completed", "active"}, Family: &agentv1.ListSessionsRequest_Roots{Roots: true}}
		},
		invalid: &agentv1.ListSessionsRequest{UserId: longID}, foreign: "none",
	},
	"UpdateSession": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.UpdateSessionRequest{SessionId: id, Title: proto.String("A title"), Tags: &agentv1.Tags{Tags: []string{"a"}}}
		},
		invalid: &agentv1.UpdateSessionRequest{SessionId: "s1", UserId: &longID},
	},
	"MergeState": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.MergeStateRequest{SessionId: id, Ops: []*agentv1.StateOp{{Key: "plan", Op: &agentv1.StateOp_Replace{Replace: `"free"`}}}}
		},
		invalid: &agentv1.MergeStateRequest{SessionId: "s1", Ops: []*agentv1.StateOp{{Key: longID, Op: &agentv1.StateOp_Delete{Delete: true}}}},
	},
	"ReadStore": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.ReadStoreRequest{SessionId: id, Prefix: "a/"} },
		invalid: &agentv1.ReadStoreRequest{SessionId: longID},
	},
	"DeleteStoreEntries": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.DeleteStoreEntriesRequest{SessionId: id, Keys: []string{"a"}}
		},
		invalid: &agentv1.DeleteStoreEntriesRequest{SessionId: longID, Keys: []string{"a"}},
	},
	"SetStatus": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.SetStatusRequest{SessionId: id, Status: "paused"} },
		invalid: &agentv1.SetStatusRequest{SessionId: longID, Status: "paused"},
	},
	"PutSubSession": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.PutSubSessionRequest{SessionId: id, SubSession: &agentv1.SubSession{SessionId: "elsewhere", Status: "active", Remote: true}}
		},
		invalid: &agentv1.PutSubSessionRequest{SessionId: "s1", SubSession: &agentv1.SubSession{SessionId: longID, Status: "active", Remote: true}},
	},
	"RecordUsage": {
		good: func(id, run, _ string) proto.Message {
			return &agentv1.RecordUsageRequest{SessionId: id, RunId: run, Usage: []*eventv1.UsageEntry{customUsage("pages", 3)}}
		},
		invalid: &agentv1.RecordUsageRequest{SessionId: longID, Usage: []*eventv1.UsageEntry{customUsage("pages", 3)}},
	},
	"EraseUser": {
		good:    func(string, string, string) proto.Message { return &agentv1.EraseUserRequest{UserId: "nobody"} },
		invalid: &agentv1.EraseUserRequest{}, foreign: "none", admin: true,
	},
	"EraseTenant": {good: func(string, string, string) proto.Message { return &agentv1.EraseTenantRequest{} }, foreign: "none", admin: true},
	"ListAuditEvents": {
		good:    func(string, string, string) proto.Message { return &agentv1.ListAuditEventsRequest{} },
		invalid: &agentv1.ListAuditEventsRequest{SessionId: longID}, foreign: "none", admin: true,
	},
	"DeleteSession": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.DeleteSessionRequest{SessionId: id} },
		invalid: &agentv1.DeleteSessionRequest{},
	},
	"ListMessages": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.ListMessagesRequest{SessionId: id} },
		invalid: &agentv1.ListMessagesRequest{},
	},
	"AppendMessages": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.AppendMessagesRequest{SessionId: id, Messages: []*agentv1.InputMessage{{Role: "system", Text: "Be brief."}}}
		},
		invalid: &agentv1.AppendMessagesRequest{SessionId: "s1", Messages: []*agentv1.InputMessage{{Id: longID, Text: "x"}}},
	},
	"AddContext": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.AddContextRequest{SessionId: id, Rows: []*eventv1.ContextRow{{Kind: "notice", Text: "It is noon."}}}
		},
		invalid: &agentv1.AddContextRequest{SessionId: longID},
	},
	"TruncateMessages": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.TruncateMessagesRequest{SessionId: id, Count: 1} },
		invalid: &agentv1.TruncateMessagesRequest{SessionId: longID},
	},
	"ListCheckpoints": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.ListCheckpointsRequest{SessionId: id} },
		invalid: &agentv1.ListCheckpointsRequest{},
	},
	"GetCheckpoint": {
		good: func(id, _, checkpoint string) proto.Message {
			return &agentv1.GetCheckpointRequest{SessionId: id, CheckpointId: checkpoint}
		},
		invalid: &agentv1.GetCheckpointRequest{SessionId: "s1", CheckpointId: strings.Repeat("x", 400)},
	},
	"Branch": {
		good: func(id, _, checkpoint string) proto.Message {
			return &agentv1.BranchRequest{SessionId: id, CheckpointId: checkpoint}
		},
		invalid: &agentv1.BranchRequest{SessionId: "s1"},
	},
	"Rewind": {
		good: func(id, _, checkpoint string) proto.Message {
			return &agentv1.RewindRequest{SessionId: id, CheckpointId: checkpoint}
		},
		invalid: &agentv1.RewindRequest{SessionId: "s1"},
	},
	"SubmitToolResult": {
		good: func(_, _, _ string) proto.Message {
			return &agentv1.SubmitToolResultRequest{SessionId: "asking", ToolCallId: "c1", Answer: &agentv1.SubmitToolResultRequest_Result{Result: "1"}}
		},
		invalid: &agentv1.SubmitToolResultRequest{SessionId: "asking", ToolCallId: longID, Answer: &agentv1.SubmitToolResultRequest_Result{Result: "1"}},
		foreign: "SESSION_NOT_FOUND",
	},
	"ListPendingCalls": {
		good:    func(_, _, _ string) proto.Message { return &agentv1.ListPendingCallsRequest{Limit: 1} },
		invalid: &agentv1.ListPendingCallsRequest{UserId: longID}, foreign: "none",
	},
	"GetUsage": {
		good:    func(id, run, _ string) proto.Message { return &agentv1.GetUsageRequest{SessionId: id, RunId: run} },
		invalid: &agentv1.GetUsageRequest{},
	},
	"ListUsage": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.ListUsageRequest{SessionId: id} },
		invalid: &agentv1.ListUsageRequest{},
	},
	"QueryUsage": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.QueryUsageRequest{SessionIds: []string{id}} },
		invalid: &agentv1.QueryUsageRequest{SessionIds: []string{longID}}, foreign: "none",
	},
	"CreateToken": {
		good:    func(_, _, _ string) proto.Message { return &agentv1.CreateTokenRequest{Subject: "ann"} },
		invalid: &agentv1.CreateTokenRequest{Subject: longID}, foreign: "none",
	},
	"ListKeys": {
		good:    func(_, _, _ string) proto.Message { return &agentv1.ListKeysRequest{} },
		foreign: "none",
	},
	"PutAgent": {
		good: func(id, _, _ string) proto.Message {
			return &agentv1.PutAgentRequest{AgentType: id, Definition: `{"model":"anthropic/x"}`}
		},
		invalid: &agentv1.PutAgentRequest{AgentType: longID}, foreign: "none", // stores an agent of its own
	},
	"GetAgent": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.GetAgentRequest{AgentType: id} },
		invalid: &agentv1.GetAgentRequest{AgentType: longID}, foreign: "AGENT_NOT_FOUND",
	},
	"DeleteAgent": {
		good:    func(id, _, _ string) proto.Message { return &agentv1.DeleteAgentRequest{AgentType: id} },
		invalid: &agentv1.DeleteAgentRequest{AgentType: longID}, foreign: "AGENT_NOT_FOUND",
	},
	"ListAgents": {
		good:    func(_, _, _ string) proto.Message { return &agentv1.ListAgentsRequest{} },
		foreign: "none",
	},
}

func customUsage(name string, value float64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: "host", Name: name, Value: value}}}
}

// protocols returns clients of each protocol with the key.
func protocols(t *testing.T, h *fixture, key string) map[string]agentv1connect.AgentServiceClient {
	all := callers(t, h, key, nil)
	return map[string]agentv1connect.AgentServiceClient{"connect": all["connect"], "json": all["connect over HTTP/2"], "grpc": all["grpc"], "grpc-web": all["grpc-web"]}
}

// call calls the RPC and returns its answer, the first frame of a stream.
func call(ctx context.Context, client agentv1connect.AgentServiceClient, rpcName string, request proto.Message) (proto.Message, error) {
	out := reflect.ValueOf(client).MethodByName(rpcName).Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(request)})
	if err, failed := out[1].Interface().(error); failed {
		return nil, err
	}
	if stream, streams := out[0].Interface().(*connect.ServerStreamForClient[agentv1.StreamResponse]); streams {
		defer func() { _ = stream.Close() }()
		stream.Receive()
		return stream.Msg(), stream.Err()
	}
	return out[0].Interface().(proto.Message), nil
}

func TestEveryRPCOfTheServiceAnswersOverEveryProtocol(t *testing.T) {
	t.Parallel()
	methods := agentv1.File_holdfast_agent_v1_agent_proto.Services().Get(0).Methods()
	if methods.Len() != len(rpcCases) {
		t.Errorf("the service has %d RPCs and %d have a case; add one to rpcCases", methods.Len(), len(rpcCases))
	}
	for _, protocol := range []string{"connect", "json", "grpc", "grpc-web"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			h, acme, other := openWithKeys(t)
			playAsking(t, h, "asking")
			own, foreign, keyless := protocols(t, h, acme)[protocol], protocols(t, h, other)[protocol], protocols(t, h, "")[protocol]
			operator := protocols(t, h, operatorToken(t, own))[protocol]
			for _, name := range eraseLast(methods) {
				c, known := rpcCases[name]
				if !known {
					t.Errorf("%s has no case", name)
					continue
				}
				run := playTurn(t, h, "acme", name)
				h.State.RecordTokens(t, "acme", name, 7)
				checkpoint := h.State.Get("acme", name).GetSession().GetCheckpointId()
				if name == "GetAgent" || name == "DeleteAgent" {
					if _, err := own.PutAgent(t.Context(), &agentv1.PutAgentRequest{AgentType: name, Definition: `{"model":"anthropic/x"}`}); err != nil {
						t.Fatal(err)
					}
				}
				good := c.good(name, run.GetRunId(), checkpoint)
				_, err := call(t.Context(), keyless, name, good)
				wantRefusal(t, name+" without a key", err, connect.CodeUnauthenticated, "API_KEY_MISSING")
				if c.invalid != nil {
					_, err = call(t.Context(), own, name, c.invalid)
					wantRefusal(t, name+" with an invalid id", err, connect.CodeInvalidArgument, orElse(c.reason, "ID_INVALID"))
				}
				if c.admin {
					_, err = call(t.Context(), operator, name, good)
					wantRefusal(t, name+" without the scope", err, connect.CodePermissionDenied, "SCOPE_MISSING")
				}
				answer, err := call(t.Context(), foreign, name, good)
				if c.foreign == "none" {
					wantNothingOf(t, name, name, answer, err)
				} else {
					wantRefusal(t, name+" of another tenant", err, connect.CodeNotFound, orElse(c.foreign, "SESSION_NOT_FOUND"))
				}
				if answer, err = call(t.Context(), own, name, good); err != nil || answer == nil || isEmptyList(answer) {
					t.Errorf("%s: got %v, %v", name, answer, err)
				}
			}
		})
	}
}

// operatorToken mints a token with the scope operate, for all users.
func operatorToken(t *testing.T, client agentv1connect.AgentServiceClient) string {
	t.Helper()
	minted, err := client.CreateToken(t.Context(), &agentv1.CreateTokenRequest{Subject: "ann", Scopes: []string{"operate"}})
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + minted.GetToken()
}

// eraseLast returns the names of the methods, with the one that leaves nothing for the others at the end.
func eraseLast(methods protoreflect.MethodDescriptors) []string {
	const last = "EraseTenant"
	var names []string
	for i := range methods.Len() {
		if name := string(methods.Get(i).Name()); name != last {
			names = append(names, name)
		}
	}
	return append(names, last)
}

func orElse(reason, fallback string) string {
	if reason == "" {
		return fallback
	}
	return reason
}

// wantRefusal checks an error's code and reason.
func wantRefusal(t *testing.T, what string, err error, code connect.Code, reason string) {
	t.Helper()
	if got := fault.ReasonOf(rpc.FromConnect(err)); got != reason || connect.CodeOf(err) != code {
		t.Errorf("%s: got %v, want %s (%s)", what, err, code, reason)
	}
}

// wantNothingOf checks that another tenant's answer is one without the session. A started session of
// the same name is the other tenant's own.
func wantNothingOf(t *testing.T, what, session string, answer proto.Message, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s of another tenant: got %v", what, err)
		return
	}
	if put, ok := answer.(*agentv1.PutAgentResponse); ok {
		if put.GetOutcome() != "created" {
			t.Errorf("%s of another tenant: got %v, want an agent of its own", what, answer)
		}
		return
	}
	if started, ok := answer.(*agentv1.StartResponse); ok {
		if !started.GetSessionCreated() {
			t.Errorf("%s of another tenant: got %v, want a new session", what, answer)
		}
		return
	}
	switch answer.(type) {
	case *agentv1.ListPendingCallsResponse, *agentv1.QueryUsageResponse: // they do not name the session
		if !isEmptyList(answer) {
			t.Errorf("%s of another tenant: got %v, want nothing", what, answer)
		}
	}
	answer.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if strings.Contains(fmt.Sprint(v), session) {
			t.Errorf("%s of another tenant: got %v", what, answer)
		}
		return true
	})
}

// isEmptyList reports whether an answer about all sessions has no entries.
func isEmptyList(answer proto.Message) bool {
	switch a := answer.(type) {
	case *agentv1.ListPendingCallsResponse:
		return len(a.GetCalls()) == 0
	case *agentv1.QueryUsageResponse:
		return len(a.GetBuckets()) == 0
	case *agentv1.ListSessionsResponse:
		return len(a.GetSessions()) == 0
	default:
		return false
	}
}

// playTurn plays a run of one step in a session of the tenant.
func playTurn(t *testing.T, h *fixture, tenant, session string) *Run {
	t.Helper()
	if _, err := h.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: tenant, SessionId: session, AgentType: "demo"}); err != nil {
		t.Fatal(err)
	}
	run := h.AwaitRun(t, tenant, session, nil)
	run.Show(1, Started(), Text("One"))
	run.Complete(AssistantMessage(1, "One"))
	return run
}

// playAsking plays a run that waits for a client tool, c1, and an approval, y1.
func playAsking(t *testing.T, h *fixture, session string) {
	t.Helper()
	if _, err := h.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "acme", SessionId: session, AgentType: "demo"}); err != nil {
		t.Fatal(err)
	}
	playAsk(h.AwaitRun(t, "acme", session, nil), 1, "c1", "y1")
}

func TestListsHaveUpTo200Entries(t *testing.T) {
	t.Parallel()
	h, acme, _ := openWithKeys(t)
	playTurn(t, h, "acme", "s1")
	client := protocols(t, h, acme)["connect"]
	for name, list := range map[string]func(limit int32) proto.Message{
		"ListSessions":     func(n int32) proto.Message { return &agentv1.ListSessionsRequest{Limit: n} },
		"ListRuns":         func(n int32) proto.Message { return &agentv1.ListRunsRequest{SessionId: "s1", Limit: n} },
		"ListMessages":     func(n int32) proto.Message { return &agentv1.ListMessagesRequest{SessionId: "s1", Limit: n} },
		"ListCheckpoints":  func(n int32) proto.Message { return &agentv1.ListCheckpointsRequest{SessionId: "s1", Limit: n} },
		"ReadStore":        func(n int32) proto.Message { return &agentv1.ReadStoreRequest{SessionId: "s1", Limit: n} },
		"ListPendingCalls": func(n int32) proto.Message { return &agentv1.ListPendingCallsRequest{Limit: n} },
		"ListUsage":        func(n int32) proto.Message { return &agentv1.ListUsageRequest{SessionId: "s1", Limit: n} },
	} {
		for limit, refused := range map[int32]bool{0: false, 1: false, 200: false, 201: true, -1: true} {
			_, err := call(t.Context(), client, name, list(limit))
			if got := fault.ReasonOf(rpc.FromConnect(err)); (err != nil) != refused || refused && got != "LIMIT_INVALID" {
				t.Errorf("%s with the limit %d: got %v", name, limit, err)
			}
		}
	}
	for wait, refused := range map[int64]bool{0: false, 60_000: false, 60_001: true, -1: true} {
		_, err := client.WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "s1", WaitMs: wait})
		if got := fault.ReasonOf(rpc.FromConnect(err)); (err != nil) != refused || refused && got != "WAIT_INVALID" {
			t.Errorf("a wait of %d ms: got %v", wait, err)
		}
	}
}
