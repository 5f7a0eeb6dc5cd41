package server

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

const (
	accepted = statev1.SubmitCallResponse_OUTCOME_ACCEPTED
	already  = statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED
	late     = statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT
	nothing  = statev1.SubmitCallResponse_CONTINUATION_NOTHING
	newRun   = statev1.SubmitCallResponse_CONTINUATION_NEW_RUN
	liveRun  = statev1.SubmitCallResponse_CONTINUATION_LIVE_RUN
)

func TestASuspendedSessionGoesOnWhenItsLastCallIsAnswered(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		first := s.suspend("s", "c1", "c2")
		waits := b.get("s")
		if got := waits.GetSession(); got.GetStatus() != waiting || got.GetSuspension().GetStepId() != "the-step" || got.GetSuspension().GetTraceId() != "t" || got.GetExpiresAt() == 0 {
			t.Errorf("got %v, want it suspended at the step, with an expiry", got)
		}
		if calls := waits.GetCalls(); len(calls) != 2 || calls[0].GetToolCallId() != "c1" || calls[0].GetRunId() != first.GetRunId() || calls[0].GetInput() != `{"q":1}` || calls[0].GetAnswer() != nil {
			t.Errorf("got calls %v, want both open", calls)
		}
		if got := b.submit("s", "c2", result(`{"n":2}`)); got.GetOutcome() != accepted || got.GetContinuation() != nothing || got.GetOwnerSessionId() != "s" {
			t.Errorf("got %v, want it to wait on", got)
		}
		got := b.submit("s", "c1", result(`1`))
		if got.GetOutcome() != accepted || got.GetContinuation() != newRun {
			t.Fatalf("got %v, want a new run", got)
		}
		claim := s.execute() // found without the poll
		if claim.GetRun().GetRunId() != got.GetRunId() || claim.GetRun().GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION || len(claim.GetCalls()) != 2 {
			t.Fatalf("got %v, want the continuation with both calls", claim)
		}
		answer := claim.GetCalls()[1].GetAnswer()
		if answer.GetResult() != `{"n":2}` || answer.GetSource() != statev1.AnswerSource_ANSWER_SOURCE_CLIENT || claim.GetCalls()[1].GetRevision() != 1 {
			t.Errorf("got %v", claim.GetCalls()[1])
		}
		commit := endingStep(refTo(claim), 2, completed)
		commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c1", Revision: 1}, {ToolCallId: "c2", Revision: 1}}
		b.commit(commit)
		done := b.get("s")
		if done.GetSession().GetStatus() != sessionOK || len(done.GetCalls()) != 0 || done.GetSession().GetResumeCount() != 1 || done.GetSession().GetSuspension() != nil {
			t.Errorf("got %v, want it completed without calls", done)
		}
		if got := b.submit("s", "c1", result(`3`)); got.GetOutcome() != already {
			t.Errorf("got %v, want already completed", got)
		}
	})
}

func TestOfTwoSubmitsThatRaceOneCounts(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1")
		var wg sync.WaitGroup
		answers := make([]*statev1.SubmitCallResponse, 2)
		for i := range answers {
			wg.Go(func() {
				answers[i], _ = b.calls.SubmitCall(t.Context(), submitOf("s", "c1", result(`1`)))
			})
		}
		wg.Wait()
		won := 0
		for _, a := range answers {
			if a.GetOutcome() == accepted && a.GetContinuation() == newRun {
				won++
			}
		}
		if won != 1 {
			t.Errorf("got %v, want one of them accepted", answers)
		}
		if claim := s.execute(); claim.GetRun().GetTurn() != 2 {
			t.Errorf("got %v, want one continuation", claim)
		}
		if got := b.submit("s", "c1", result(`1`)); got.GetOutcome() != already || got.GetContinuation() != liveRun {
			t.Errorf("got %v, want it completed, with the live run", got)
		}
	})
}

func TestAnApprovalIsAnsweredByItsIdAndAnErrorFitsEveryCall(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ask := suspendingStep(refTo(s.execute()), 1, "tool")
		ask.Calls = append(ask.Calls, &statev1.Call{ToolCallId: "ok", ToolName: "pay", Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a1"},
			&statev1.Call{ToolCallId: "no", ToolName: "pay", Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a2", EntryInput: userMessage("waits")})
		b.commit(ask)
		approve := func(id string) *statev1.CallAnswer {
			return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: id, Approved: true, Reason: "fine"}}}
		}
		for call, answer := range map[string]*statev1.CallAnswer{"tool": approve("a1"), "ok": approve("a2"), "no": result(`1`)} {
			_, err := b.calls.SubmitCall(t.Context(), submitOf("s", call, answer))
			b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		}
		b.submit("s", "ok", approve("a1"))
		b.submit("s", "no", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "not today"}})
		if got := b.submit("s", "tool", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "closed"}}); got.GetContinuation() != newRun {
			t.Errorf("got %v, want the continuation", got)
		}
		for _, call := range b.get("s").GetCalls() {
			switch call.GetToolCallId() {
			case "ok":
				if a := call.GetAnswer().GetApproval(); !a.GetApproved() || a.GetReason() != "fine" {
					t.Errorf("got %v", call)
				}
			case "no":
				if call.GetAnswer().GetError() != "not today" || !proto.Equal(call.GetEntryInput(), userMessage("waits")) {
					t.Errorf("got %v", call)
				}
			}
		}
	})
}

// overdue times out the session's calls, as the sweep does.
func (b *bench) overdue(want ...string) {
	b.Helper()
	keys, err := b.store.Overdue(b.Context(), session.Millis(b.now().UnixMilli()), 10)
	b.must(err)
	if len(keys) != len(want) {
		b.Fatalf("got overdue %v, want %v", keys, want)
	}
	for _, key := range keys {
		b.must(b.server.TimeOut(b.Context(), key))
	}
}

func TestADeadlineContinuesTheSessionAndALateAnswerIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ask := suspendingStep(refTo(s.execute()), 1, "c1")
		ask.Calls[0].DeadlineAt = b.now().Add(time.Minute).UnixMilli()
		b.commit(ask)
		b.overdue()
		b.advance(2 * time.Minute)
		b.overdue("s")
		b.overdue()
		claim := s.execute()
		call := claim.GetCalls()[0]
		if call.GetAnswer().GetError() != "The call was not answered in time." || call.GetAnswer().GetSource() != statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT {
			t.Errorf("got %v, want the timeout", call)
		}
		commit := endingStep(refTo(claim), 2, completed)
		commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c1", Revision: 1}}
		b.commit(commit)
		for range 2 {
			if got := b.submit("s", "c1", result(`"late"`)); got.GetOutcome() != late || got.GetContinuation() != nothing {
				t.Errorf("got %v, want it kept as late", got)
			}
		}
		b.start("s")
		claim = s.execute()
		if len(claim.GetCalls()) != 1 || claim.GetCalls()[0].GetLateAnswer().GetResult() != `"late"` || claim.GetCalls()[0].GetLateAt() == 0 {
			t.Fatalf("got calls %v, want the late answer", claim.GetCalls())
		}
		told := endingStep(refTo(claim), 3, completed)
		told.ToldCalls = []string{"c1"}
		b.commit(told)
		b.start("s")
		if claim = s.execute(); len(claim.GetCalls()) != 0 {
			t.Errorf("got calls %v, want it told once", claim.GetCalls())
		}
	})
}

func TestAnAnswerReplacesAnUnreadTimeout(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ask := suspendingStep(refTo(s.execute()), 1, "c1", "c2")
		ask.Calls[0].DeadlineAt = b.now().Add(time.Minute).UnixMilli()
		b.commit(ask)
		b.advance(2 * time.Minute)
		b.overdue("s")
		b.submit("s", "c2", result(`2`))
		claim := s.execute()
		if got := b.submit("s", "c1", result(`"real"`)); got.GetOutcome() != accepted || got.GetContinuation() != liveRun || got.GetRunId() != claim.GetRun().GetRunId() {
			t.Errorf("got %v, want it accepted by the live run", got)
		}
		commit := step(refTo(claim), 2)
		commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c1", Revision: 1}}
		_, err := b.work.CommitStep(t.Context(), commit)
		b.refuses(err, fault.Stale, "ANSWER_CHANGED")
		commit.ConsumedCalls[0].Revision = 2
		b.commit(commit)
	})
}

func TestAnAnswerMayArriveBeforeTheSuspension(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1", "c2")
		b.submit("s", "c1", result(`1`))
		b.submit("s", "c2", result(`2`))
		claim := s.execute()
		// It suspends again, on calls with answers only.
		again := endingStep(refTo(claim), 2, statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL)
		b.commit(again)
		if next := s.execute(); next.GetRun().GetTurn() != 3 || len(next.GetCalls()) != 2 {
			t.Errorf("got %v, want it continued at once", next)
		}
	})
}

func TestANewMessageAbandonsTheOpenCalls(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1")
		_, err := b.runs.StartRun(t.Context(), startOf("s"))
		b.refuses(err, fault.Conflict, "SESSION_SUSPENDED")
		r := startOf("s")
		r.AbandonCalls = true
		_, err = b.runs.StartRun(t.Context(), r)
		b.must(err)
		claim := s.execute()
		if a := claim.GetCalls()[0].GetAnswer(); a.GetSource() != statev1.AnswerSource_ANSWER_SOURCE_ABANDONED || a.GetError() != "client_tool_abandoned: a new message came instead." {
			t.Errorf("got %v, want it abandoned", a)
		}
		if got := b.submit("s", "c1", result(`1`)); got.GetOutcome() != already {
			t.Errorf("got %v, want already completed", got)
		}
	})
}

func TestAChildThatEndsWakesItsParent(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("parent")
		parent := refTo(s.execute())
		start := startOf("child")
		start.Parent = &statev1.Parent{SessionId: "parent", ToolCallId: "c1"}
		_, err := b.runs.StartRun(t.Context(), start)
		b.must(err)
		child := refTo(s.execute())
		wait := endingStep(parent, 1, statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN)
		wait.Calls = []*statev1.Call{{ToolCallId: "c1", ToolName: "subagent__child", Kind: statev1.CallKind_CALL_KIND_SUB_AGENT}}
		b.commit(wait)
		if got := b.get("parent"); len(got.GetSubSessions()) != 1 || got.GetSubSessions()[0].GetStatus() != active ||
			got.GetSubSessions()[0].GetLocation() != statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL || got.GetCalls()[0].GetToolCallId() != "c1" {
			t.Errorf("got %v, want it to wait for the child", got)
		}
		b.commit(suspendingStep(child, 1, "deep"))
		if got := b.submit("parent", "deep", result(`1`)); got.GetOwnerSessionId() != "child" || got.GetContinuation() != newRun {
			t.Errorf("got %v, want the child to go on", got)
		}
		end := endingStep(refTo(s.execute()), 2, completed)
		end.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "deep", Revision: 1}}
		b.commit(end)
		claim := s.execute()
		if claim.GetSession().GetSessionId() != "parent" || claim.GetRun().GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
			t.Errorf("got %v, want the parent to go on", claim)
		}
		if got := b.get("parent").GetSubSessions()[0]; got.GetStatus() != sessionOK || got.GetCompletedAt() == 0 {
			t.Errorf("got %v, want the child completed", got)
		}
	})
}

func TestAStepBeginsSubSessionsWhoseEndsAnswerItsCalls(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("parent")
		parent := refTo(s.execute())
		wait := endingStep(parent, 1, statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN)
		for _, id := range []string{"good", "bad"} {
			wait.Calls = append(wait.Calls, &statev1.Call{ToolCallId: "call_" + id, ToolName: "subagent__x", Kind: statev1.CallKind_CALL_KIND_SUB_AGENT})
			wait.NewSubSessions = append(wait.NewSubSessions, &statev1.NewSubSession{
				SessionId: id, AgentType: "support", ToolCallId: "call_" + id, Messages: []*eventv1.Message{userMessage("do " + id)}, TimeoutMs: 60_000,
			})
		}
		b.commit(wait)
		claims := map[string]*statev1.Claim{}
		for range 2 {
			claim := s.execute()
			claims[claim.GetSession().GetSessionId()] = claim
		}
		for _, id := range []string{"good", "bad"} {
			c := claims[id]
			if c.GetSession().GetParentSessionId() != "parent" || c.GetSession().GetDepth() != 1 || len(c.GetMessages()) != 1 || c.GetRun().GetDeadlineAt() != c.GetRun().GetCreatedAt()+60_000 {
				t.Errorf("%s: got %v", id, c)
			}
		}
		if _, err := b.calls.SubmitCall(t.Context(), submitOf("parent", "call_good", result(`"forged"`))); fault.ReasonOf(err) != "KIND_MISMATCH" {
			t.Errorf("a client's answer: got %v", err)
		}
		end := endingStep(refTo(claims["good"]), 1, completed)
		end.Outcome.Output = `"found"`
		b.commit(end)
		fails := endingStep(refTo(claims["bad"]), 1, statev1.RunStatus_RUN_STATUS_FAILED)
		fails.Outcome.Failure = &statev1.Failure{Error: "no luck", Code: "framework_max_steps"}
		b.commit(fails)
		next := s.execute()
		if next.GetSession().GetSessionId() != "parent" || next.GetRun().GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION || len(next.GetCalls()) != 2 {
			t.Fatalf("got %v, want the parent's continuation with both answers", next)
		}
		for _, call := range next.GetCalls() {
			a := call.GetAnswer().GetChild()
			if a.GetSessionId() == "good" && (a.GetStatus() != sessionOK || a.GetOutput() != `"found"` || call.GetToolCallId() != "call_good") ||
				a.GetSessionId() == "bad" && (a.GetFailure().GetError() != "no luck" || a.GetFailure().GetCode() != "framework_max_steps") ||
				a.GetSessionId() == "" || call.GetAnswer().GetSource() != statev1.AnswerSource_ANSWER_SOURCE_CHILD {
				t.Errorf("got %v", call)
			}
		}
	})
}

func TestAStopReachesTheExecutorByItsHeartbeatAndItsCommit(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		started := b.start("s")
		ref := refTo(s.execute())
		stop := func(kind statev1.StopKind, runID string) *statev1.RequestStopResponse {
			got, err := b.runs.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", RunId: runID, Kind: kind, Reason: "enough"})
			b.must(err)
			return got
		}
		if got := stop(statev1.StopKind_STOP_KIND_INTERRUPT, ""); got.GetEffect() != statev1.RequestStopResponse_EFFECT_REQUESTED || got.GetRunId() != started.GetRun().GetRunId() {
			t.Errorf("got %v, want it requested", got)
		}
		beat, err := b.work.Heartbeat(t.Context(), &statev1.HeartbeatRequest{ExecutorId: "e1"})
		if err != nil || len(beat.GetStops()) != 1 || beat.GetStops()[0].GetRunId() != ref.GetRunId() || beat.GetStops()[0].GetStop().GetReason() != "enough" {
			t.Errorf("got %v, %v; want the stop", beat, err)
		}
		if got := b.commit(step(ref, 1)).GetStop(); got.GetKind() != statev1.StopKind_STOP_KIND_INTERRUPT {
			t.Errorf("got %v, want the interrupt", got)
		}
		stop(statev1.StopKind_STOP_KIND_ABORT, ref.GetRunId())
		if got := b.commit(step(ref, 2)).GetStop(); got.GetKind() != statev1.StopKind_STOP_KIND_ABORT || got.GetRequestedAt() == 0 {
			t.Errorf("got %v, want the abort", got)
		}
		b.commit(endingStep(ref, 3, statev1.RunStatus_RUN_STATUS_INTERRUPTED))
		if got := b.get("s").GetSession().GetInterruption(); got.GetReason() != "enough" || got.GetRunId() != ref.GetRunId() || got.GetInterruptedAt() == 0 {
			t.Errorf("got %v, want the reason", got)
		}
		if got := stop(statev1.StopKind_STOP_KIND_INTERRUPT, ref.GetRunId()); got.GetEffect() != statev1.RequestStopResponse_EFFECT_NONE {
			t.Errorf("got %v, want nothing to stop", got)
		}
		s.suspend("s", "c1")
		if got := stop(statev1.StopKind_STOP_KIND_ABORT, ""); got.GetEffect() != statev1.RequestStopResponse_EFFECT_DONE {
			t.Errorf("got %v, want it done", got)
		}
		if got := b.get("s"); got.GetSession().GetStatus() != sessionKO || got.GetSession().GetFailure().GetCode() != "framework_cancelled" || len(got.GetCalls()) != 0 {
			t.Errorf("got %v, want it failed", got)
		}
	})
}

func TestADelayedReleaseIsClaimedAfterItsTime(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Scheduler.Poll = time.Millisecond })
		s := b.open("e1", 1)
		b.start("s")
		ref := refTo(s.execute())
		_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: ref, DelayMs: 3_600_000})
		b.must(err)
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		if run := b.get("s").GetCurrentRun(); run.GetDueAt() == 0 || run.GetStatus() != statev1.RunStatus_RUN_STATUS_QUEUED {
			t.Errorf("got %v, want it queued for later", run)
		}
		b.advance(2 * time.Hour)
		if again := s.execute(); again.GetRun().GetRunId() != ref.GetRunId() || again.GetRun().GetAttempt() != 2 {
			t.Errorf("got %v, want it again", again)
		}
	})
}

func TestAResumeGoesOnWithoutAMessage(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		r := &statev1.StartRunRequest{Tenant: "acme", SessionId: "s", Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}}
		_, err := b.runs.StartRun(t.Context(), r)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.start("s")
		end := endingStep(refTo(s.execute()), 1, failed)
		b.commit(end)
		got, err := b.runs.StartRun(t.Context(), r)
		if err != nil || got.GetRun().GetEntry() != statev1.RunEntry_RUN_ENTRY_RESUME || got.GetSession().GetResumeCount() != 1 {
			t.Errorf("got %v, %v; want a resume", got, err)
		}
		claim := s.execute()
		b.commit(endingStep(refTo(claim), 2, completed))
		_, err = b.runs.StartRun(t.Context(), r)
		b.refuses(err, fault.Conflict, "SESSION_COMPLETED")
	})
}

func TestAFailedExpectationReportsTheState(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		started := b.start("s")
		b.finish(refTo(s.execute()))
		version := b.get("s").GetSession().GetVersion()
		other := "another"
		for name, expect := range map[string]*statev1.Expectation{
			"status":  {Statuses: []statev1.SessionStatus{paused, waiting}},
			"version": {Version: version + 1},
			"run":     {CurrentRunId: &other},
			"no run":  {CurrentRunId: new(string)},
		} {
			r := startOf("s")
			r.Expect = expect
			_, err := b.runs.StartRun(t.Context(), r)
			f := b.refuses(err, fault.Conflict, "SESSION_CHANGED")
			if f.Meta["currentStatus"] != "completed" || f.Meta["currentRunId"] != started.GetRun().GetRunId() || f.Meta["currentVersion"] == "" {
				t.Errorf("%s: got metadata %v", name, f.Meta)
			}
		}
		r := startOf("s")
		id := started.GetRun().GetRunId()
		r.Expect = &statev1.Expectation{Statuses: []statev1.SessionStatus{sessionOK}, Version: version, CurrentRunId: &id}
		_, err := b.runs.StartRun(t.Context(), r)
		b.must(err)
	})
}
