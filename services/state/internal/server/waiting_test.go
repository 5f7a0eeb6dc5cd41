package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	enqueues    = statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
	interrupted = statev1.RunStatus_RUN_STATUS_INTERRUPTED
	runWaits    = statev1.RunStatus_RUN_STATUS_WAITING
	runQueued   = statev1.RunStatus_RUN_STATUS_QUEUED
)

// sending returns a StartRun with a policy for a busy session.
func sending(sessionID, messageID string, policy statev1.BusyPolicy) *statev1.StartRunRequest {
	r := startOf(sessionID)
	r.Messages[0].Id, r.OnBusy = messageID, policy
	return r
}

func (b *bench) send(r *statev1.StartRunRequest) *statev1.StartRunResponse {
	b.Helper()
	started, err := b.runs.StartRun(b.Context(), r)
	b.must(err)
	return started
}

// conversation returns the ids of the session's messages.
func (b *bench) conversation(sessionID string) (ids string) {
	b.Helper()
	got, err := b.sessions.ListMessages(b.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: sessionID})
	b.must(err)
	for _, m := range got.GetMessages() {
		ids += m.GetMessage().GetId() + " "
	}
	return ids
}

func TestAMessageToABusySessionWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.send(sending("s", "m1", 0))
		ref := refTo(s.execute())
		first := sending("s", "m2", enqueues)
		first.RequestKey, first.TimeoutMs = "k", 60_000
		waits := b.send(first)
		if run := waits.GetRun(); !waits.GetWaiting() || run.GetStatus() != runWaits || run.GetOnBusy() != enqueues || run.GetTurn() != 0 || run.GetDeadlineAt() != run.GetCreatedAt()+60_000 {
			t.Errorf("got %v, want it to wait", waits)
		}
		if got := waits.GetSession(); got.GetStatus() != active || got.GetMessageCount() != 1 || got.GetCurrentRunId() != ref.GetRunId() {
			t.Errorf("got %v, want the session as it is", got)
		}
		second := b.send(sending("s", "m3", enqueues))
		if again := b.send(first); !again.GetRepeated() || !again.GetWaiting() || again.GetRun().GetRunId() != waits.GetRun().GetRunId() {
			t.Errorf("got %v, want the first one again", again)
		}
		if got := b.get("s").GetWaiting(); len(got) != 2 || got[0].GetRunId() != waits.GetRun().GetRunId() || got[1].GetRunId() != second.GetRun().GetRunId() || got[0].GetStatus() != runWaits {
			t.Errorf("got %v, want both in their order", got)
		}
		page, err := b.runs.ListRuns(t.Context(), &statev1.ListRunsRequest{Tenant: "acme", SessionId: "s", Limit: 1})
		b.must(err)
		if list := page.GetRuns(); len(list) != 3 || list[0].GetRunId() != second.GetRun().GetRunId() || list[2].GetRunId() != ref.GetRunId() || page.GetHasMore() {
			t.Errorf("got %v, want those that wait first", page)
		}
		got, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: waits.GetRun().GetRunId()})
		if err != nil || !proto.Equal(got.GetRun(), waits.GetRun()) {
			t.Errorf("got %v, %v; want %v", got, err, waits.GetRun())
		}
		b.commit(endingStep(ref, 1, completed))
		if run := b.get("s").GetCurrentRun(); run.GetRunId() != waits.GetRun().GetRunId() || run.GetTurn() != 2 || run.GetStartMessageCount() != 2 || run.GetTurnMessageCount() != 2 {
			t.Errorf("got %v, want the first of those that wait", run)
		}
		claim := s.execute()
		if claim.GetRun().GetRunId() != waits.GetRun().GetRunId() || claim.GetMessages()[2].GetMessage().GetId() != "m2" {
			t.Errorf("got %v, want the run with its message", claim)
		}
		b.finish(refTo(claim))
		if last := s.execute(); last.GetRun().GetRunId() != second.GetRun().GetRunId() {
			t.Errorf("got %v, want the last one", last)
		}
		if got := b.conversation("s"); got != "m1 m-s-1 m2 m3 " {
			t.Errorf("got the conversation %q", got)
		}
	})
}

func TestCallsOpenedDespiteAStopAreAbandoned(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.send(sending("s", "m1", 0))
		ref := refTo(s.execute())
		waits := b.send(sending("s", "m2", statev1.BusyPolicy_BUSY_POLICY_INTERRUPT)).GetRun().GetRunId()
		b.commit(suspendingStep(ref, 1, "c1"))
		claim := s.execute()
		if claim.GetRun().GetRunId() != waits || len(claim.GetCalls()) != 1 {
			t.Fatalf("got %v, want the run that has waited, with the call", claim)
		}
		answer := claim.GetCalls()[0].GetAnswer()
		if answer.GetSource() != statev1.AnswerSource_ANSWER_SOURCE_ABANDONED || !strings.HasPrefix(answer.GetError(), "client_tool_abandoned") {
			t.Errorf("got %v", answer)
		}
	})
}

func TestAMessageThatInterruptsStopsTheLiveRunAndBeginsAfterIt(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		for policy, conversation := range map[statev1.BusyPolicy]string{
			statev1.BusyPolicy_BUSY_POLICY_INTERRUPT: "m1 m-s-1 m2 ",
			statev1.BusyPolicy_BUSY_POLICY_ROLLBACK:  "m1 m2 ",
		} {
			b := open(noStopPoll)
			_, _ = b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s"})
			s := b.open("e1", 10)
			b.send(sending("s", "m1", 0))
			ref := refTo(s.execute())
			waits := b.send(sending("s", "m2", policy)).GetRun().GetRunId()
			if got := s.stopped(); got.GetRunId() != ref.GetRunId() || got.GetStop().GetKind() != interrupts || got.GetStop().GetReason() != "superseded by run "+waits {
				t.Errorf("%s: got %v, want the live run stopped", policy, got)
			}
			b.commit(endingStep(ref, 1, interrupted))
			if got := s.execute().GetRun().GetRunId(); got != waits {
				t.Errorf("%s: got run %s, want %s", policy, got, waits)
			}
			if got := b.conversation("s"); got != conversation {
				t.Errorf("%s: got the conversation %q, want %q", policy, got, conversation)
			}
		}
	})
}

func TestAnAnnouncedPolicyLetsMessagesWait(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		s.execute()
		_, err := b.runs.StartRun(t.Context(), startOf("s"))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
		hello, err := b.work.ClaimRuns(t.Context())
		b.must(err)
		b.must(hello.Send(&statev1.ClaimRunsRequest{ExecutorId: "e2", Agents: []*statev1.Agent{{AgentType: "support", OnBusy: enqueues}}}))
		b.eventually("the policy is known", func() bool {
			got, err := b.sessions.ListAgents(t.Context(), &statev1.ListAgentsRequest{})
			b.must(err)
			return len(got.GetAgents()) == 1 && got.GetAgents()[0].GetOnBusy() == enqueues
		})
		unnamed := startOf("s")
		unnamed.AgentType = ""
		if got := b.send(unnamed); !got.GetWaiting() || got.GetRun().GetOnBusy() != enqueues {
			t.Errorf("got %v, want it to wait", got)
		}
		_, err = b.runs.StartRun(t.Context(), sending("s", "", statev1.BusyPolicy_BUSY_POLICY_REJECT))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
	})
}

func TestARepeatedRequestToABusySessionWaitsOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 100)
		b.send(sending("s", "m0", 0))
		ref := refTo(s.execute())
		const requests, copies = 5, 3
		var wg sync.WaitGroup
		runs := make([][copies]string, requests)
		for i := range requests {
			for j := range copies {
				wg.Go(func() {
					r := sending("s", fmt.Sprint("m", i+1), enqueues)
					r.RequestKey = fmt.Sprint("k", i)
					got, err := b.runs.StartRun(t.Context(), r)
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					}
					runs[i][j] = got.GetRun().GetRunId()
				})
			}
		}
		b.finish(ref) // while they come
		wg.Wait()
		for range requests {
			claim := s.execute()
			b.finish(refTo(claim))
		}
		seen := map[string]int{}
		got, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s"})
		b.must(err)
		for _, m := range got.GetMessages() {
			seen[m.GetMessage().GetId()]++
		}
		for i := range requests {
			if runs[i][0] == "" || runs[i][0] != runs[i][1] || runs[i][1] != runs[i][2] || seen[fmt.Sprint("m", i+1)] != 1 {
				t.Errorf("request %d: got the runs %v, and its message %d times", i, runs[i], seen[fmt.Sprint("m", i+1)])
			}
		}
		if got := b.get("s"); got.GetSession().GetTurn() != requests+1 || len(got.GetWaiting()) != 0 {
			t.Errorf("got %v", got)
		}
	})
}

func TestARequestKeyCoversTheWholeRequest(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ref := refTo(s.execute())
		b.commit(endingStep(ref, 1, completed))
		request := func(change func(*statev1.StartRunRequest)) *statev1.StartRunRequest {
			r := sending("s", "m2", 0)
			r.RequestKey, resumeOf(r).CheckpointId = "k", b.get("s").GetSession().GetCheckpointId()
			resumeOf(r).StateOps = []*statev1.StateOp{{Key: "n", Op: &statev1.StateOp_Replace{Replace: "1"}}}
			resumeOf(r).AppendMessages = []*eventv1.Message{said(eventv1.Role_ROLE_SYSTEM, "note", "be brief")}
			change(r)
			return r
		}
		first := request(func(*statev1.StartRunRequest) {})
		if got := b.send(first); got.GetSession().GetCustomState() != `{"n":1}` || got.GetRun().GetStartMessageCount() != 3 || got.GetWaiting() {
			t.Errorf("got %v", got)
		}
		later := proto.CloneOf(first)
		later.TimeoutMs = 7 // a repetition may have another timeout
		if got := b.send(later); !got.GetRepeated() {
			t.Errorf("got %v, want the first one", got)
		}
		for _, change := range []func(*statev1.StartRunRequest){
			func(r *statev1.StartRunRequest) { resumeOf(r).CheckpointId = "" },
			func(r *statev1.StartRunRequest) { resumeOf(r).StateOps[0].Key = "o" },
			func(r *statev1.StartRunRequest) { resumeOf(r).AppendMessages = nil },
		} {
			other := proto.CloneOf(first)
			change(other)
			_, err := b.runs.StartRun(t.Context(), other)
			b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		}
		if got := b.conversation("s"); got != b.conversation("s") || len(got) == 0 {
			t.Errorf("got the conversation %q", got)
		}
	})
}

func TestReasonsOfStartsTravel(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(small)
		s := b.open("e1", 10)
		b.start("s")
		ref := refTo(s.execute())
		b.start("over")
		over := refTo(s.execute())
		b.commit(endingStep(over, 1, completed))
		point := b.get("over").GetSession().GetCheckpointId()
		start := func(sessionID string, change func(*statev1.StartRunRequest)) *statev1.StartRunRequest {
			r := sending(sessionID, "", enqueues)
			change(r)
			return r
		}
		replace := []*statev1.StateOp{{Key: "n", Op: &statev1.StateOp_Replace{Replace: text(50)}}}
		b.must(func() error {
			_, err := b.sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "over", CustomState: `{"k":` + text(100) + `}`})
			return err
		}())
		const rpc = "RunService/StartRun"
		b.refusesAll([]refusal{
			{rpc, start("s", func(r *statev1.StartRunRequest) { r.OnBusy = 99 }), fault.Invalid, "BUSY_POLICY_INVALID"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { r.TimeoutMs = -1 }), fault.Invalid, "TIMEOUT_INVALID"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { resumeOf(r).CheckpointId = "\n" }), fault.Invalid, "ID_INVALID"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { resumeOf(r).CheckpointId = point }), fault.NotFound, "CHECKPOINT_NOT_FOUND"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { resumeOf(r) }), fault.Conflict, "SESSION_BUSY"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { r.Expect = &statev1.Expectation{Version: 1} }), fault.Conflict, "SESSION_BUSY"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { resumeOf(r).StateOps = []*statev1.StateOp{{Key: "k"}} }), fault.Invalid, "STATE_INVALID"},
			{rpc, start("over", func(r *statev1.StartRunRequest) {
				resumeOf(r).StateOps, resumeOf(r).CheckpointId = append(replace, &statev1.StateOp{Key: "m", Op: &statev1.StateOp_Replace{Replace: text(200)}}), point
			}), fault.TooLarge, "STATE_SIZE_EXCEEDED"},
			{rpc, start("new", func(r *statev1.StartRunRequest) { resumeOf(r).StateOps = replace }), fault.NotFound, "SESSION_NOT_FOUND"},
			{rpc, start("new", func(r *statev1.StartRunRequest) { resumeOf(r).CheckpointId = point }), fault.NotFound, "SESSION_NOT_FOUND"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { r.Messages = nil }), fault.Invalid, "MESSAGE_INVALID"},
			{rpc, start("s", func(r *statev1.StartRunRequest) { resumeOf(r).AppendMessages = []*eventv1.Message{said(0, "", "x")} }), fault.Invalid, "MESSAGE_INVALID"},
			{rpc, start("s", func(r *statev1.StartRunRequest) {
				resumeOf(r).CheckpointId, resumeOf(r).AppendMessages = point, []*eventv1.Message{said(eventv1.Role_ROLE_USER, "twice", "x")}
				r.SessionId, r.Messages[0].Id = "over", "twice"
			}), fault.Conflict, "MESSAGE_EXISTS"},
		})
		for i := range b.config.Limits.Waiting {
			b.send(sending("s", fmt.Sprint("w", i), enqueues))
		}
		_, err := b.runs.StartRun(t.Context(), sending("s", "", enqueues))
		b.refuses(err, fault.Exhausted, "TOO_MANY_WAITING")
		b.commit(endingStep(ref, 1, completed))
		b.send(sending("s", "one more", enqueues))
		last := b.get("s").GetWaiting()
		given, err := b.runs.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", RunId: last[0].GetRunId(), Kind: interrupts})
		if err != nil || given.GetEffect() != statev1.RequestStopResponse_EFFECT_DONE {
			t.Errorf("got %v, %v; want it given up", given, err)
		}
		got, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: last[0].GetRunId()})
		if err != nil || got.GetRun().GetStatus() != interrupted || len(b.get("s").GetWaiting()) != len(last)-1 {
			t.Errorf("got %v, %v; want it interrupted", got, err)
		}
	})
}
