package server

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// refusal is a request with its expected fault.
type refusal struct {
	method  string // of a service: RunService/StartRun
	request proto.Message
	kind    fault.Kind
	reason  string
}

func (b *bench) call(method string, request proto.Message) (proto.Message, error) {
	answer := answerTo(b.T, method)
	err := b.conn.Invoke(b.Context(), "/holdfast.state.v1."+method, request, answer)
	return answer, err
}

func (b *bench) refusesAll(refusals []refusal) {
	b.Helper()
	for i, r := range refusals {
		_, err := b.call(r.method, r.request)
		if f, ok := fault.From(err); !ok || f.Kind != r.kind || f.Reason != r.reason {
			b.Errorf("%d: %s(%v): got %v, want %v (%s)", i, r.method, r.request, err, r.kind, r.reason)
		}
	}
}

func TestReasonsOfSessionsTravel(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.Family = 2 })
		s := b.open("e1", 10)
		b.create("s")
		b.create("remote")
		_, err := b.sessions.PutSubSession(t.Context(), &statev1.PutSubSessionRequest{Tenant: "acme", SessionId: "remote", SubSession: &statev1.SubSession{
			SessionId: "far", Status: active, Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE, Remote: `{"url":"x"}`}})
		b.must(err)
		b.create("large")
		b.createChild("large", "large1")
		b.createChild("large", "large2")
		b.start("busy")
		s.execute()
		_, err = b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{said(eventv1.Role_ROLE_SYSTEM, "m1", "be kind")}})
		b.must(err)
		const svc = "SessionService/"
		child := func(c *statev1.SubSession) *statev1.PutSubSessionRequest {
			return &statev1.PutSubSessionRequest{Tenant: "acme", SessionId: "remote", SubSession: c}
		}
		local, remote := statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL, statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE
		list := func(change func(*statev1.ListSessionsRequest)) *statev1.ListSessionsRequest {
			r := &statev1.ListSessionsRequest{Tenant: "acme"}
			change(r)
			return r
		}
		b.refusesAll([]refusal{
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", SessionId: "s", AgentType: "support"}, fault.Conflict, "SESSION_EXISTS"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "nobody"}, fault.NotFound, "AGENT_NOT_FOUND"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support", Parent: &statev1.Parent{SessionId: "nobody"}}, fault.NotFound, "SESSION_NOT_FOUND"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support", Parent: &statev1.Parent{}}, fault.Invalid, "ID_INVALID"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support", Parent: &statev1.Parent{SessionId: "s", Mode: 9}}, fault.Invalid, "SUB_SESSION_INVALID"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support", CustomState: "[]"}, fault.Invalid, "STATE_INVALID"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support", Metadata: map[string]string{"k": "\x00"}}, fault.Invalid, "METADATA_INVALID"},
			{svc + "CreateSession", &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support", Tags: []string{""}}, fault.Invalid, "TAGS_INVALID"},
			{svc + "UpdateSession", &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "s", ExpectedVersion: 99}, fault.Stale, "VERSION_STALE"},
			{svc + "SaveState", &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: "{}", ExpectedVersion: 99}, fault.Stale, "VERSION_STALE"},
			{svc + "SaveState", &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: ""}, fault.Invalid, "STATE_INVALID"},
			{svc + "MergeState", &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", ExpectedVersion: 99}, fault.Stale, "VERSION_STALE"},
			{svc + "MergeState", &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", Ops: []*statev1.StateOp{{Key: "k"}}}, fault.Invalid, "STATE_INVALID"},
			{svc + "SetStatus", &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: active}, fault.Invalid, "STATUS_INVALID"},
			{svc + "SetStatus", &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: waiting}, fault.Invalid, "STATUS_INVALID"},
			{svc + "SetStatus", &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s"}, fault.Invalid, "STATUS_INVALID"},
			{svc + "SetStatus", &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: paused, Expected: []statev1.SessionStatus{0}}, fault.Invalid, "STATUS_INVALID"},
			{svc + "SetStatus", &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: sessionKO}, fault.Invalid, "FAILURE_MISSING"},
			{svc + "AppendMessages", &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s"}, fault.Invalid, "MESSAGE_INVALID"},
			{svc + "AppendMessages", &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{said(0, "", "x")}}, fault.Invalid, "MESSAGE_INVALID"},
			{svc + "AppendMessages", &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{
				said(eventv1.Role_ROLE_USER, "m1", "x"), said(eventv1.Role_ROLE_USER, "m2", "x"),
			}}, fault.Conflict, "MESSAGE_EXISTS"},
			{svc + "TruncateMessages", &statev1.TruncateMessagesRequest{Tenant: "acme", SessionId: "s", Count: 2}, fault.Invalid, "COUNT_INVALID"},
			{svc + "TruncateMessages", &statev1.TruncateMessagesRequest{Tenant: "acme", SessionId: "s", Count: -1}, fault.Invalid, "COUNT_INVALID"},
			{svc + "TruncateMessages", &statev1.TruncateMessagesRequest{Tenant: "acme", SessionId: "busy"}, fault.Conflict, "SESSION_BUSY"},
			{svc + "DeleteSession", &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "large"}, fault.Conflict, "FAMILY_TOO_LARGE"},
			{svc + "PutSubSession", child(&statev1.SubSession{SessionId: "far", Status: active, Location: local}), fault.Conflict, "LOCATION_FIXED"},
			{svc + "PutSubSession", child(&statev1.SubSession{SessionId: "near", Status: active, Location: local}), fault.Conflict, "CHILD_UNKNOWN"},
			{svc + "PutSubSession", child(&statev1.SubSession{SessionId: "near", Status: active}), fault.Invalid, "SUB_SESSION_INVALID"},
			{svc + "PutSubSession", child(&statev1.SubSession{SessionId: "near", Status: active, Location: local, Remote: "{}"}), fault.Invalid, "SUB_SESSION_INVALID"},
			{svc + "PutSubSession", child(&statev1.SubSession{SessionId: "near", Status: active, Location: remote, Remote: "{"}), fault.Invalid, "SUB_SESSION_INVALID"},
			{svc + "PutSubSession", child(&statev1.SubSession{SessionId: "near", Location: remote}), fault.Invalid, "STATUS_INVALID"},
			{svc + "PutSubSession", child(nil), fault.Invalid, "ID_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Limit = -1 }), fault.Invalid, "LIMIT_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Offset = -1 }), fault.Invalid, "LIMIT_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Cursor = "?" }), fault.Invalid, "CURSOR_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Cursor = "AgAAAAAAAAAAcw" }), fault.Invalid, "CURSOR_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Cursor = "AQAAAAAAAAAA" }), fault.Invalid, "CURSOR_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Cursor, r.Offset = "AQAAAAAAAAAAcw", 1 }), fault.Invalid, "CURSOR_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Statuses = []statev1.SessionStatus{99} }), fault.Invalid, "STATUS_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.Family = &statev1.ListSessionsRequest_ParentSessionId{} }), fault.Invalid, "ID_INVALID"},
			{svc + "ListSessions", list(func(r *statev1.ListSessionsRequest) { r.UserId = "\n" }), fault.Invalid, "ID_INVALID"},
			{svc + "ListSessions", &statev1.ListSessionsRequest{}, fault.Invalid, "ID_INVALID"},
		})
		if got := b.get("remote").GetSubSessions(); len(got) != 1 || got[0].GetRemote() != `{"url":"x"}` || got[0].GetMode() != statev1.SubSessionMode_SUB_SESSION_MODE_EPHEMERAL {
			t.Errorf("got %v, want the remote one as it was", got)
		}
	})
}

func TestReasonsOfRunsAndCallsTravel(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1")
		s.suspend("over", "c2")
		_, err := b.sessions.SetStatus(t.Context(), &statev1.SetStatusRequest{Tenant: "acme", SessionId: "over", Status: sessionOK})
		b.must(err)
		interrupt := statev1.StopKind_STOP_KIND_INTERRUPT
		withParent := startOf("child")
		withParent.Parent = &statev1.Parent{SessionId: "nobody"}
		withStatus := startOf("s")
		withStatus.Expect = &statev1.Expectation{Statuses: []statev1.SessionStatus{77}}
		waits := startOf("s")
		b.refusesAll([]refusal{
			{"RunService/StartRun", waits, fault.Conflict, "SESSION_SUSPENDED"},
			{"RunService/StartRun", withParent, fault.NotFound, "SESSION_NOT_FOUND"},
			{"RunService/StartRun", withStatus, fault.Invalid, "STATUS_INVALID"},
			{"RunService/StartRun", &statev1.StartRunRequest{Tenant: "acme", SessionId: "s", Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}}, fault.Conflict, "SESSION_SUSPENDED"},
			{"RunService/RequestStop", &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s"}, fault.Invalid, "STOP_INVALID"},
			{"RunService/RequestStop", &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", Kind: interrupt, Reason: "\x00"}, fault.Invalid, "STOP_INVALID"},
			{"RunService/RequestStop", &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", Kind: interrupt, RunId: "nobody"}, fault.NotFound, "RUN_NOT_FOUND"},
			{"RunService/ListRuns", &statev1.ListRunsRequest{Tenant: "acme", SessionId: "s", BeforeTurn: -1}, fault.Invalid, "LIMIT_INVALID"},
			{"CallService/SubmitCall", submitOf("s", "nobody", result(`1`)), fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{"CallService/SubmitCall", submitOf("s", "c2", result(`1`)), fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{"CallService/SubmitCall", submitOf("over", "c2", result(`1`)), fault.Conflict, "OWNER_NOT_CONTINUABLE"},
			{"CallService/SubmitCall", submitOf("s", "", result(`1`)), fault.Invalid, "ID_INVALID"},
			{"CallService/SubmitCall", submitOf("s", "c1", result(`{`)), fault.Invalid, "ANSWER_INVALID"},
			{"CallService/SubmitCall", submitOf("s", "c1", result(`1 2`)), fault.Invalid, "ANSWER_INVALID"},
			{"CallService/SubmitCall", submitOf("s", "c1", nil), fault.Invalid, "ANSWER_INVALID"},
			{"CallService/SubmitCall", submitOf("s", "c1", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{}}), fault.Invalid, "ANSWER_INVALID"},
			{"CallService/SubmitCall", submitOf("s", "c1", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{}}), fault.Invalid, "ANSWER_INVALID"},
		})
	})
}

func TestReasonsOfStepsTravel(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1", "open")
		b.submit("s", "c1", result(`1`))
		b.submit("s", "open", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "no"}})
		claim := s.execute()
		ref := refTo(claim)
		change := func(f func(*statev1.CommitStepRequest)) *statev1.CommitStepRequest {
			r := suspendingStep(ref, 2, "c3")
			f(r)
			return r
		}
		consume := func(id string, revision int32) *statev1.CommitStepRequest {
			r := step(ref, 2)
			r.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: id, Revision: revision}}
			return r
		}
		call := func(f func(*statev1.Call)) *statev1.CommitStepRequest {
			return change(func(r *statev1.CommitStepRequest) { f(r.Calls[0]) })
		}
		old := step(ref, 2)
		old.Run = proto.CloneOf(ref)
		old.Run.Epoch--
		const commit = "WorkService/CommitStep"
		b.refusesAll([]refusal{
			{commit, old, fault.Stale, "EPOCH_STALE"},
			{commit, step(ref, 3), fault.Stale, "STEP_STALE"},
			{commit, change(func(r *statev1.CommitStepRequest) { r.ExpectedVersion = 99 }), fault.Stale, "VERSION_STALE"},
			{commit, change(func(r *statev1.CommitStepRequest) { r.Messages[0].Id = "m-s-1" }), fault.Conflict, "MESSAGE_EXISTS"},
			{commit, change(func(r *statev1.CommitStepRequest) { r.Outcome.Status = completed }), fault.Invalid, "OUTCOME_INVALID"}, // with a suspension
			{commit, change(func(r *statev1.CommitStepRequest) { r.Outcome.Status = statev1.RunStatus_RUN_STATUS_QUEUED }), fault.Invalid, "OUTCOME_INVALID"},
			{commit, change(func(r *statev1.CommitStepRequest) {
				r.Calls, r.ConsumedCalls = nil, []*statev1.ConsumedCall{{ToolCallId: "c1", Revision: 1}, {ToolCallId: "open", Revision: 1}}
			}), fault.Invalid, "OUTCOME_INVALID"}, // nothing to wait for
			{commit, change(func(r *statev1.CommitStepRequest) {
				r.Outcome.Status = statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN
			}), fault.Invalid, "OUTCOME_INVALID"},
			{commit, change(func(r *statev1.CommitStepRequest) {
				r.Calls = append(r.Calls, &statev1.Call{ToolCallId: "lost", ToolName: "subagent__a", Kind: statev1.CallKind_CALL_KIND_SUB_AGENT})
			}), fault.Conflict, "CHILD_UNKNOWN"},
			{commit, change(func(r *statev1.CommitStepRequest) {
				r.NewSubSessions = []*statev1.NewSubSession{{SessionId: "n", AgentType: "a", ToolCallId: "unknown", Messages: []*eventv1.Message{userMessage("hi")}}}
			}), fault.Invalid, "SUB_SESSION_INVALID"},
			{commit, change(func(r *statev1.CommitStepRequest) { r.Suspension.StepId = "\n" }), fault.Invalid, "ID_INVALID"},
			{commit, change(func(r *statev1.CommitStepRequest) { r.SubSessions = []*statev1.SubSession{{}} }), fault.Invalid, "ID_INVALID"},
			{commit, change(func(r *statev1.CommitStepRequest) { r.Usage = []*eventv1.UsageEntry{{}} }), fault.Invalid, "USAGE_INVALID"},
			{commit, call(func(c *statev1.Call) { c.ToolCallId = "c1" }), fault.Conflict, "CALL_EXISTS"},
			{commit, call(func(c *statev1.Call) { c.ToolCallId = "" }), fault.Invalid, "ID_INVALID"},
			{commit, call(func(c *statev1.Call) { c.ToolName = "" }), fault.Invalid, "CALL_INVALID"},
			{commit, call(func(c *statev1.Call) { c.Kind = 0 }), fault.Invalid, "CALL_INVALID"},
			{commit, call(func(c *statev1.Call) { c.ApprovalId = "a" }), fault.Invalid, "CALL_INVALID"},
			{commit, call(func(c *statev1.Call) { c.Kind = statev1.CallKind_CALL_KIND_APPROVAL }), fault.Invalid, "CALL_INVALID"},
			{commit, call(func(c *statev1.Call) { c.DeadlineAt = -1 }), fault.Invalid, "CALL_INVALID"},
			{commit, call(func(c *statev1.Call) { c.Input = "{" }), fault.Invalid, "CALL_INVALID"},
			{commit, consume("nobody", 1), fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{commit, consume("", 1), fault.Invalid, "ID_INVALID"},
			{commit, consume("c1", 2), fault.Stale, "ANSWER_CHANGED"},
			{"WorkService/FinishRun", &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: suspended}}, fault.Invalid, "OUTCOME_INVALID"},
			{"WorkService/FinishRun", &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: completed}, Usage: []*eventv1.UsageEntry{{}}}, fault.Invalid, "USAGE_INVALID"},
			{"WorkService/ReleaseRun", &statev1.ReleaseRunRequest{Run: ref, DelayMs: -1}, fault.Invalid, "DELAY_INVALID"},
			{"WorkService/ReleaseRun", &statev1.ReleaseRunRequest{Run: ref, Seen: &statev1.LostWork{Step: position.MaxStep}}, fault.Invalid, "LOST_WORK_INVALID"},
			{"WorkService/ReleaseRun", &statev1.ReleaseRunRequest{Run: ref, Seen: &statev1.LostWork{Epoch: -1}}, fault.Invalid, "LOST_WORK_INVALID"},
		})
		b.commit(consume("c1", 1))
		next := func(id string) *statev1.CommitStepRequest {
			r := step(ref, 3)
			r.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: id, Revision: 1}}
			return r
		}
		asks := suspendingStep(ref, 3, "c4")
		asks.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c4", Revision: 1}}
		b.refusesAll([]refusal{
			{commit, next("c1"), fault.Conflict, "CALL_CONSUMED"},
			{commit, asks, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		})
		b.commit(suspendingStep(ref, 3, "c4"))
		b.submit("s", "c4", result(`1`))
		again := refTo(s.execute())
		leave := suspendingStep(again, 4, "c5")
		leave.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "open", Revision: 1}, {ToolCallId: "c4", Revision: 1}}
		b.commit(leave)
		b.refusesAll([]refusal{
			{"WorkService/RecordPlan", &statev1.RecordPlanRequest{Run: again, Step: 5, Plan: said(eventv1.Role_ROLE_ASSISTANT, "p", "x")}, fault.Stale, "RUN_FINISHED"},
		})
		r := startOf("s")
		resumeOf(r)
		r.Messages = nil
		_, err := b.sessions.SetStatus(t.Context(), &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: statev1.SessionStatus_SESSION_STATUS_INTERRUPTED})
		b.must(err)
		_, err = b.runs.StartRun(t.Context(), r)
		b.must(err)
		unanswered := step(refTo(s.execute()), 5)
		unanswered.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c5", Revision: 0}}
		b.refusesAll([]refusal{{commit, unanswered, fault.Conflict, "CALL_UNANSWERED"}})
	})
}

func TestReasonsOfLooksBackAndSumsTravel(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.UsageSums = 2 })
		s := b.open("e1", 10)
		b.start("s")
		ref := refTo(s.execute())
		point := b.commit(step(ref, 1)).GetCheckpointId()
		b.create("other")
		b.must(func() error {
			_, err := b.usage.RecordUsage(t.Context(), &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Usage: []*eventv1.UsageEntry{
				tool("a", true, 1), tool("b", true, 1), tool("c", true, 1)}})
			return err
		}())
		query := func(change func(*statev1.QueryUsageRequest)) *statev1.QueryUsageRequest {
			r := &statev1.QueryUsageRequest{Tenant: "acme"}
			change(r)
			return r
		}
		b.refusesAll([]refusal{
			{"CheckpointService/GetCheckpoint", &statev1.GetCheckpointRequest{Tenant: "acme", SessionId: "other", CheckpointId: point}, fault.NotFound, "CHECKPOINT_NOT_FOUND"},
			{"CheckpointService/GetCheckpoint", &statev1.GetCheckpointRequest{Tenant: "acme", SessionId: "other"}, fault.NotFound, "CHECKPOINT_NOT_FOUND"},
			{"CheckpointService/GetCheckpoint", &statev1.GetCheckpointRequest{Tenant: "acme", SessionId: "s", CheckpointId: xs(500)}, fault.Invalid, "ID_INVALID"},
			{"CheckpointService/Rewind", &statev1.RewindRequest{Tenant: "acme", SessionId: "other", CheckpointId: point}, fault.NotFound, "CHECKPOINT_NOT_FOUND"},
			{"CheckpointService/Rewind", &statev1.RewindRequest{Tenant: "acme", SessionId: "s", CheckpointId: point}, fault.Conflict, "SESSION_BUSY"},
			{"CheckpointService/Branch", &statev1.BranchRequest{Tenant: "acme", SessionId: "other", CheckpointId: point}, fault.NotFound, "CHECKPOINT_NOT_FOUND"},
			{"CheckpointService/Branch", &statev1.BranchRequest{Tenant: "acme", SessionId: "s", CheckpointId: point, NewSessionId: "other"}, fault.Conflict, "SESSION_EXISTS"},
			{"CheckpointService/Branch", &statev1.BranchRequest{Tenant: "acme", SessionId: "s", CheckpointId: point, NewSessionId: "s"}, fault.Conflict, "SESSION_EXISTS"},
			{"CheckpointService/ListCheckpoints", &statev1.ListCheckpointsRequest{Tenant: "acme", SessionId: "s", BeforeStep: -1}, fault.Invalid, "LIMIT_INVALID"},
			{"UsageService/GetUsageRollup", &statev1.GetUsageRollupRequest{Tenant: "acme", SessionId: "s"}, fault.Exhausted, "QUERY_TOO_LARGE"},
			{"UsageService/QueryUsage", query(func(*statev1.QueryUsageRequest) {}), fault.Exhausted, "QUERY_TOO_LARGE"},
			{"UsageService/QueryUsage", query(func(r *statev1.QueryUsageRequest) { r.BucketMs = 999 }), fault.Invalid, "QUERY_INVALID"},
			{"UsageService/QueryUsage", query(func(r *statev1.QueryUsageRequest) { r.RecordedFrom, r.RecordedBefore = 5, 5 }), fault.Invalid, "QUERY_INVALID"},
			{"UsageService/QueryUsage", query(func(r *statev1.QueryUsageRequest) { r.Kinds = []eventv1.UsageKind{0} }), fault.Invalid, "QUERY_INVALID"},
			{"UsageService/QueryUsage", query(func(r *statev1.QueryUsageRequest) { r.SessionIds = []string{""} }), fault.Invalid, "ID_INVALID"},
			{"UsageService/ListUsage", &statev1.ListUsageRequest{Tenant: "acme", SessionId: "s", Kinds: []eventv1.UsageKind{9}}, fault.Invalid, "QUERY_INVALID"},
			{"UsageService/ListUsage", &statev1.ListUsageRequest{Tenant: "acme", SessionId: "s", Offset: -1}, fault.Invalid, "LIMIT_INVALID"},
			{"UsageService/RecordUsage", &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Usage: []*eventv1.UsageEntry{tool("", true, 1)}}, fault.Invalid, "USAGE_INVALID"},
			{"UsageService/RecordUsage", &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Usage: []*eventv1.UsageEntry{tool("a", true, -1)}}, fault.Invalid, "USAGE_INVALID"},
			{"UsageService/RecordUsage", &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Usage: []*eventv1.UsageEntry{custom("t", "", 1)}}, fault.Invalid, "USAGE_INVALID"},
			{"MemoryService/AddMemory", &statev1.AddMemoryRequest{Tenant: "acme", Memory: &statev1.Memory{Text: " "}}, fault.Invalid, "MEMORY_INVALID"},
			{"MemoryService/AddMemory", &statev1.AddMemoryRequest{Tenant: "acme"}, fault.Invalid, "MEMORY_INVALID"},
			{"MemoryService/AddMemory", &statev1.AddMemoryRequest{Tenant: "acme", Memory: &statev1.Memory{Text: "x", Metadata: map[string]string{"": "v"}}}, fault.Invalid, "METADATA_INVALID"},
			{"MemoryService/GetMemory", &statev1.GetMemoryRequest{Tenant: "acme", MemoryId: "nobody"}, fault.NotFound, "MEMORY_NOT_FOUND"},
			{"MemoryService/DeleteMemory", &statev1.DeleteMemoryRequest{Tenant: "acme", MemoryId: "nobody"}, fault.NotFound, "MEMORY_NOT_FOUND"},
			{"MemoryService/SearchMemories", &statev1.SearchMemoriesRequest{Tenant: "acme", MinScore: 1.1}, fault.Invalid, "MEMORY_INVALID"},
			{"MemoryService/SearchMemories", &statev1.SearchMemoriesRequest{Tenant: "acme", Limit: 201}, fault.Invalid, "LIMIT_INVALID"},
			{"MemoryService/ListEntities", &statev1.ListEntitiesRequest{Tenant: "acme", Limit: -1}, fault.Invalid, "LIMIT_INVALID"},
			{"OperatorService/ExpireSessions", &statev1.ExpireSessionsRequest{Limit: -1}, fault.Invalid, "LIMIT_INVALID"},
		})
	})
}
