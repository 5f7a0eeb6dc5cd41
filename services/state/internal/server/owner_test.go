package server

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// confined returns the request on behalf of a user who reaches only its own sessions.
func confined[M proto.Message](user string, request M) M {
	asked := proto.CloneOf(request)
	field := asked.ProtoReflect().Descriptor().Fields().ByName("caller")
	caller := &statev1.Caller{Actor: "user:" + user, Owner: user}
	asked.ProtoReflect().Set(field, protoreflect.ValueOfMessage(caller.ProtoReflect()))
	return asked
}

// give gives the family of a root to a user.
func (b *bench) give(user string, roots ...string) {
	b.Helper()
	for _, id := range roots {
		_, err := b.sessions.UpdateSession(b.Context(), &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: id, UserId: &user})
		b.must(err)
	}
}

// ofClients are the services whose requests name a caller.
var ofClients = map[string]bool{"RunService": true, "SessionService": true, "CallService": true, "CheckpointService": true, "UsageService": true}

func TestASessionOfAnotherUserDoesNotExistWhateverTheCall(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		eachMethod(func(method string, m protoreflect.MethodDescriptor) {
			service, _, _ := strings.Cut(method, "/")
			fields := m.Input().Fields()
			if !ofClients[service] || method == "SessionService/ListAgents" {
				return
			}
			if fields.ByName("caller") == nil {
				t.Errorf("%s has no caller", method)
				return
			}
			if fields.ByName("session_id") == nil {
				return // a list, see below
			}
			id := "s " + strings.ReplaceAll(method, "/", " ")
			ref := b.open("e of "+id, 1).suspend(id, "c1")
			requests := requestsOn("acme", ref, b.get(id).GetSession().GetCheckpointId())
			requests["SessionService/GrantMethod"] = &statev1.GrantMethodRequest{Tenant: "acme", SessionId: id, TtlMs: 1} // also for a new session
			request := requests[method]
			if request == nil {
				t.Errorf("%s is not among the methods that this test calls", method)
				return
			}
			before := b.get(id)
			for _, owner := range []string{"", "alice"} {
				if owner != "" {
					b.give(owner, id)
					before = b.get(id)
				}
				_, err := b.call(method, confined("bob", request))
				if f, ok := fault.From(err); !ok || f.Kind != fault.NotFound || f.Reason != "SESSION_NOT_FOUND" {
					t.Errorf("%s on a session of %q: got %v, want SESSION_NOT_FOUND", method, owner, err)
				}
			}
			if after := b.get(id); !proto.Equal(before, after) {
				t.Errorf("%s: got session\n%v\nwant it as it was\n%v", method, after, before)
			}
			if _, err := b.call(method, confined("alice", request)); err != nil {
				t.Errorf("%s for the owner: got %v", method, err)
			}
			_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: id})
			if method != "SessionService/DeleteSession" {
				b.must(err) // with the runs that the owner has started
			}
		})
	})
}

func TestAUserListsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		for _, id := range []string{"of alice", "of bob", "of nobody"} {
			s.suspend(id, "c1")
			_, err := b.usage.RecordUsage(t.Context(), &statev1.RecordUsageRequest{Tenant: "acme", SessionId: id, Usage: tokens(1)})
			b.must(err)
		}
		b.give("alice", "of alice")
		b.give("bob", "of bob")
		list, err := b.sessions.ListSessions(t.Context(), confined("bob", &statev1.ListSessionsRequest{Tenant: "acme"}))
		if err != nil || len(list.GetSessions()) != 1 || list.GetTotal() != 1 || list.GetSessions()[0].GetSessionId() != "of bob" {
			t.Errorf("got %v, %v; want the session of bob", list, err)
		}
		calls, err := b.calls.ListOpenCalls(t.Context(), confined("bob", &statev1.ListOpenCallsRequest{Tenant: "acme"}))
		if err != nil || len(calls.GetCalls()) != 1 || calls.GetCalls()[0].GetRootSessionId() != "of bob" {
			t.Errorf("got %v, %v; want the call of bob", calls, err)
		}
		for _, ids := range [][]string{nil, {"of alice", "of bob", "of nobody"}} {
			sums, err := b.usage.QueryUsage(t.Context(), confined("bob", &statev1.QueryUsageRequest{Tenant: "acme", SessionIds: ids}))
			if got := sums.GetBuckets(); err != nil || len(got) != 1 || got[0].GetRollup().GetTokens().GetTotalTokens() != 1 {
				t.Errorf("got %v, %v; want the usage of bob", sums, err)
			}
		}
		b.refusesAll([]refusal{
			{"SessionService/ListSessions", confined("bob", &statev1.ListSessionsRequest{Tenant: "acme", UserId: "alice"}), fault.Denied, "OWNER_REFUSED"},
			{"CallService/ListOpenCalls", confined("bob", &statev1.ListOpenCallsRequest{Tenant: "acme", UserId: "alice"}), fault.Denied, "OWNER_REFUSED"},
			{"UsageService/QueryUsage", confined("bob", &statev1.QueryUsageRequest{Tenant: "acme", UserId: "alice"}), fault.Denied, "OWNER_REFUSED"},
		})
	})
}

func TestANewSessionBelongsToItsCaller(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 10)
	create := func(id, user string) *statev1.CreateSessionRequest {
		return &statev1.CreateSessionRequest{Tenant: "acme", SessionId: id, AgentType: "support", UserId: user}
	}
	start := func(id, user string) *statev1.StartRunRequest {
		r := startOf(id)
		r.UserId = user
		return r
	}
	ref := s.suspend("a3", "c1")
	b.give("alice", "a3")
	_, err := b.sessions.CreateSession(t.Context(), confined("alice", create("a1", "")))
	b.must(err)
	_, err = b.runs.StartRun(t.Context(), confined("alice", start("a2", "alice")))
	b.must(err)
	point := b.get("a3").GetSession().GetCheckpointId()
	branch := func(to string) *statev1.StartRunRequest {
		r := startOf(to)
		r.Intent = &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{FromSessionId: ref.GetSessionId(), CheckpointId: point}}
		return r
	}
	_, err = b.runs.StartRun(t.Context(), confined("alice", branch("a4")))
	b.must(err)
	_, err = b.points.Branch(t.Context(), confined("alice", &statev1.BranchRequest{Tenant: "acme", SessionId: "a3", CheckpointId: point, NewSessionId: "a5"}))
	b.must(err)
	below := create("a6", "")
	below.Parent = &statev1.Parent{SessionId: "a1"}
	_, err = b.sessions.CreateSession(t.Context(), below) // of a caller for all users
	b.must(err)
	for _, id := range []string{"a1", "a2", "a3", "a4", "a5", "a6"} {
		if user := b.get(id).GetSession().GetUserId(); user != "alice" {
			t.Errorf("%s belongs to %q, want alice", id, user)
		}
	}
	below = create("a7", "bob")
	below.Parent = &statev1.Parent{SessionId: "a1"}
	stray := create("b1", "")
	stray.Parent = &statev1.Parent{SessionId: "a1"}
	strayRun := startOf("b2")
	strayRun.Parent = &statev1.Parent{SessionId: "a1"}
	known := startOf("a2")
	known.Messages = start("a2", "").GetMessages()
	user := "bob"
	b.refusesAll([]refusal{
		{"SessionService/CreateSession", confined("bob", create("b3", "alice")), fault.Denied, "OWNER_REFUSED"},
		{"RunService/StartRun", confined("bob", start("b3", "alice")), fault.Denied, "OWNER_REFUSED"},
		{"SessionService/UpdateSession", confined("alice", &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "a1", UserId: &user}), fault.Denied, "OWNER_REFUSED"},
		{"SessionService/UpdateSession", &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "a6", UserId: &user}, fault.Conflict, "OWNER_INHERITED"},
		{"SessionService/CreateSession", below, fault.Conflict, "OWNER_INHERITED"},
		{"SessionService/CreateSession", confined("bob", stray), fault.NotFound, "SESSION_NOT_FOUND"},
		{"RunService/StartRun", confined("bob", strayRun), fault.NotFound, "SESSION_NOT_FOUND"},
		{"SessionService/CreateSession", confined("bob", create("a1", "")), fault.NotFound, "SESSION_NOT_FOUND"},
		{"RunService/StartRun", confined("bob", known), fault.NotFound, "SESSION_NOT_FOUND"},
		{"RunService/StartRun", confined("bob", branch("b4")), fault.NotFound, "SESSION_NOT_FOUND"},
		{"CheckpointService/Branch", confined("bob", &statev1.BranchRequest{Tenant: "acme", SessionId: "a3", CheckpointId: point, NewSessionId: "b5"}), fault.NotFound, "SESSION_NOT_FOUND"},
	})
	_, err = b.runs.StartRun(t.Context(), confined("bob", startOf("b6")))
	b.must(err)
	b.refusesAll([]refusal{
		{"RunService/StartRun", confined("bob", branch("a1")), fault.NotFound, "SESSION_NOT_FOUND"},
		{"RunService/StartRun", confined("alice", branch("b6")), fault.NotFound, "SESSION_NOT_FOUND"},
		{"CheckpointService/GetCheckpoint", confined("bob", &statev1.GetCheckpointRequest{Tenant: "acme", SessionId: "b6", CheckpointId: point}), fault.NotFound, "CHECKPOINT_NOT_FOUND"},
	})
}

func TestTwoUsersMayChooseTheSameRequestKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	request := startOf("")
	request.RequestKey = "k"
	sessions := map[string]string{}
	for _, user := range []string{"alice", "bob", "alice", "bob"} {
		got, err := b.runs.StartRun(t.Context(), confined(user, request))
		b.must(err)
		id, again := got.GetSession().GetSessionId(), sessions[user] != ""
		if got.GetRepeated() != again || again && id != sessions[user] || got.GetSession().GetUserId() != user {
			t.Errorf("%s got %v", user, got)
		}
		sessions[user] = id
	}
}

func TestANewUserReachesTheWholeFamily(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.Family = 3 })
		b.announce()
		b.create("root")
		b.createChild("root", "child")
		b.createChild("child", "grandchild")
		b.give("alice", "root")
		b.give("alice", "root")
		for _, id := range []string{"root", "child", "grandchild"} {
			if got, err := b.sessions.GetSession(t.Context(), confined("alice", &statev1.GetSessionRequest{Tenant: "acme", SessionId: id})); err != nil || got.GetSession().GetUserId() != "alice" {
				t.Errorf("%s: got %v, %v", id, got, err)
			}
		}
		list, err := b.sessions.ListSessions(t.Context(), confined("alice", &statev1.ListSessionsRequest{Tenant: "acme"}))
		if err != nil || len(list.GetSessions()) != 3 {
			t.Errorf("got %v, %v; want the family", list, err)
		}
		b.createChild("child", "another")
		user := "bob"
		b.refusesAll([]refusal{{"SessionService/UpdateSession", &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "root", UserId: &user}, fault.Conflict, "FAMILY_TOO_LARGE"}})
		if got := b.get("grandchild").GetSession().GetUserId(); got != "alice" {
			t.Errorf("got user %q after a refused change, want alice", got)
		}
	})
}

// waitForOthers runs a session of the user up to calls that others must approve.
func (s *stream) waitForOthers(user, sessionID string, callIDs ...string) {
	s.Helper()
	_, err := s.runs.StartRun(s.Context(), confined(user, startOf(sessionID)))
	s.must(err)
	claim := s.execute()
	step := suspendingStep(refTo(claim), claim.GetSession().GetStepCount()+1, callIDs...)
	for _, c := range step.GetCalls() {
		c.Kind, c.ApprovalId, c.Approvers = statev1.CallKind_CALL_KIND_APPROVAL, "approval", statev1.Approvers_APPROVERS_OTHERS
	}
	s.commit(step)
}

func decision(approved bool) *statev1.CallAnswer {
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "approval", Approved: approved}}}
}

func TestAnotherUserApprovesWhatTheStarterMayNot(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.waitForOthers("alice", "s", "c1", "c2")
		approval := submitOf("s", "c1", decision(true))
		known := startOf("s")
		known.Answers, known.AbandonCalls = []*statev1.SubmittedAnswer{{ToolCallId: "c1", Answer: decision(true)}}, true
		key := proto.CloneOf(approval)
		key.Caller = &statev1.Caller{Actor: "local"}
		alice := b.get("s").GetCurrentRun().GetStartedBy()
		b.refusesAll([]refusal{
			{"CallService/SubmitCall", confined("alice", approval), fault.Denied, "APPROVER_REFUSED"},
			{"CallService/SubmitCall", approval, fault.Denied, "APPROVER_REFUSED"},
			{"CallService/SubmitCall", key, fault.Denied, "APPROVER_REFUSED"},
			{"CallService/SubmitCalls", confined("alice", submitsOf("s", known.GetAnswers()...)), fault.Denied, "APPROVER_REFUSED"},
			{"CallService/SubmitCalls", confined("bob", submitsOf("s", known.GetAnswers()...)), fault.NotFound, "SESSION_NOT_FOUND"},
			{"RunService/StartRun", confined("alice", known), fault.Denied, "APPROVER_REFUSED"},
			{"RunService/StartRun", confined("bob", known), fault.NotFound, "SESSION_NOT_FOUND"},
			{"CallService/SubmitCall", confined("bob", submitOf("s", "unknown", decision(true))), fault.NotFound, "SESSION_NOT_FOUND"},
			{"SessionService/GetSession", confined("bob", &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"}), fault.NotFound, "SESSION_NOT_FOUND"},
		})
		for _, want := range []statev1.SubmitCallResponse_Outcome{statev1.SubmitCallResponse_OUTCOME_ACCEPTED, statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED} {
			if got, err := b.calls.SubmitCall(t.Context(), confined("bob", approval)); err != nil || got.GetOutcome() != want {
				t.Errorf("got %v, %v; want %v", got, err, want)
			}
		}
		_, err := b.calls.SubmitCall(t.Context(), confined("carol", approval))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = b.calls.SubmitCall(t.Context(), confined("alice", submitOf("s", "c2", decision(false))))
		b.must(err)
		now := b.get("s")
		by := map[string]string{}
		for _, c := range now.GetCalls() {
			by[c.GetToolCallId()] = c.GetAnsweredBy() + " for " + c.GetStartedBy()
		}
		if by["c1"] != "user:bob for user:alice" || by["c2"] != "user:alice for user:alice" {
			t.Errorf("got %v", by)
		}
		if next := now.GetCurrentRun(); alice != "user:alice" || next.GetTurn() != 2 || next.GetStartedBy() != alice {
			t.Errorf("got %v, want a continuation of alice's run", next)
		}
	})
}

func TestTheApprovalOfASubAgentsCallGoesByTheSameRule(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 10)
	_, err := b.runs.StartRun(t.Context(), confined("alice", startOf("root")))
	b.must(err)
	above := refTo(s.execute())
	step := endingStep(above, 1, statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN)
	step.Suspension = &statev1.Suspension{StepId: "the-step"}
	step.Calls = []*statev1.Call{{ToolCallId: "ask", ToolName: "agent", Kind: statev1.CallKind_CALL_KIND_SUB_AGENT, StepId: "the-step"}}
	step.NewSubSessions = []*statev1.NewSubSession{{SessionId: "child", AgentType: "support", ToolCallId: "ask", Messages: startOf("child").GetMessages()}}
	b.commit(step)
	below := suspendingStep(refTo(s.execute()), 1, "c1")
	below.Calls[0].Kind, below.Calls[0].ApprovalId, below.Calls[0].Approvers = statev1.CallKind_CALL_KIND_APPROVAL, "approval", statev1.Approvers_APPROVERS_OTHERS
	b.commit(below)
	for _, id := range []string{"root", "child"} {
		_, err = b.calls.SubmitCall(t.Context(), confined("alice", submitOf(id, "c1", decision(true))))
		b.refuses(err, fault.Denied, "APPROVER_REFUSED")
	}
	list, err := b.calls.ListOpenCalls(t.Context(), confined("bob", &statev1.ListOpenCallsRequest{Tenant: "acme"}))
	if err != nil || len(list.GetCalls()) != 1 || list.GetCalls()[0].GetCall().GetSessionId() != "child" || list.GetCalls()[0].GetUserId() != "alice" {
		t.Fatalf("got %v, %v; want the call of the sub-agent", list, err)
	}
	_, err = b.calls.SubmitCall(t.Context(), confined("bob", submitOf("root", "c1", decision(true))))
	b.must(err)
	if run := b.get("child").GetCurrentRun(); run.GetStartedBy() != "user:alice" || run.GetTurn() != 2 {
		t.Errorf("got %v, want a continuation of alice's run", run)
	}
}

func TestAUserListsItsCallsAndThoseThatItMayApprove(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		var want []string
		for _, id := range []string{"alice 1", "bob 1", "alice 2", "carol 1", "bob 2"} {
			user, _, _ := strings.Cut(id, " ")
			b.open("e of "+id, 1).waitForOthers(user, id, "c1", "c2")
			want = append(want, id+" c1", id+" c2")
		}
		b.open("e of s", 1).suspend("of nobody", "c1")
		_, err := b.calls.SubmitCall(t.Context(), confined("carol", submitOf("bob 2", "c2", decision(true))))
		b.must(err)
		want = want[:len(want)-1]
		for _, limit := range []int32{1, 2, 3, 50} {
			var got []string
			cursor := ""
			for {
				page, err := b.calls.ListOpenCalls(t.Context(), confined("bob", &statev1.ListOpenCallsRequest{Tenant: "acme", Limit: limit, Cursor: cursor}))
				b.must(err)
				for _, c := range page.GetCalls() {
					got = append(got, c.GetRootSessionId()+" "+c.GetCall().GetToolCallId())
				}
				if cursor = page.GetNext(); cursor == "" {
					break
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("by %d: got %q, want %q", limit, got, want)
			}
		}
	})
}
