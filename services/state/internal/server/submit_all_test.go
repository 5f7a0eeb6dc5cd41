package server

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

const (
	taken      = statev1.SubmittedCall_OUTCOME_ACCEPTED
	takenEarly = statev1.SubmittedCall_OUTCOME_ALREADY_COMPLETED
	takenLate  = statev1.SubmittedCall_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT
	unknown    = statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL
	ownerOver  = statev1.SubmittedCall_OUTCOME_OWNER_NOT_CONTINUABLE
)

// answersTo returns the same result for each call.
func answersTo(callIDs ...string) (list []*statev1.SubmittedAnswer) {
	for _, id := range callIDs {
		list = append(list, &statev1.SubmittedAnswer{ToolCallId: id, Answer: result(`"` + id + `"`)})
	}
	return list
}

func submitsOf(sessionID string, answers ...*statev1.SubmittedAnswer) *statev1.SubmitCallsRequest {
	return &statev1.SubmitCallsRequest{Tenant: "acme", SessionId: sessionID, Answers: answers}
}

func (b *bench) submits(sessionID string, answers ...*statev1.SubmittedAnswer) *statev1.SubmitCallsResponse {
	b.Helper()
	got, err := b.calls.SubmitCalls(b.Context(), submitsOf(sessionID, answers...))
	b.must(err)
	return got
}

// became lists the outcomes of answers, as "call outcome owner run".
func (b *bench) became(got *statev1.SubmitCallsResponse, want ...*statev1.SubmittedCall) {
	b.Helper()
	if !proto.Equal(&statev1.SubmitCallsResponse{Calls: got.GetCalls()}, &statev1.SubmitCallsResponse{Calls: want}) {
		b.Errorf("got %v,\nwant %v", got.GetCalls(), want)
	}
}

func outcome(callID string, of statev1.SubmittedCall_Outcome, owner, run string) *statev1.SubmittedCall {
	return &statev1.SubmittedCall{ToolCallId: callID, Outcome: of, OwnerSessionId: owner, RunId: run}
}

func TestAnswersOfOneRequestContinueTheSessionOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		run := s.suspend("s", "c1", "c2", "c3").GetRunId()
		got := b.submits("s", answersTo("c1", "server tool")...)
		b.became(got, outcome("c1", taken, "s", run), outcome("server tool", unknown, "", ""))
		if got.GetSession().GetStatus() != waiting || got.GetRun().GetRunId() != run || got.GetOpenCalls() != 2 {
			t.Errorf("got %v, want it to wait for two", got)
		}
		got = b.submits("s", answersTo("c2", "c1", "c3", "c2")...)
		b.became(got, outcome("c2", taken, "s", run), outcome("c1", takenEarly, "s", run), outcome("c3", taken, "s", run), outcome("c2", takenEarly, "s", run))
		next := got.GetRun()
		if got.GetSession().GetStatus() != active || got.GetSession().GetTurn() != 2 || next.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION ||
			got.GetSession().GetCurrentRunId() != next.GetRunId() || got.GetOpenCalls() != 0 {
			t.Errorf("got %v, want the continuation", got)
		}
		if claim := s.execute(); claim.GetRun().GetRunId() != next.GetRunId() || len(claim.GetCalls()) != 3 { // found without the poll
			t.Errorf("got %v, want the continuation with all calls", claim)
		}
		b.became(b.submits("s", answersTo("c1")...), outcome("c1", takenEarly, "s", run))
		if nobody := b.submits("s"); len(nobody.GetCalls()) != 0 || nobody.GetRun().GetRunId() != next.GetRunId() {
			t.Errorf("got %v, want what the session is", nobody)
		}
	})
}

func TestAnswersFindTheSessionsOfTheFamilyThatWaitForThem(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("root")
		root := refTo(s.execute())
		runs := map[string]string{}
		waits := endingStep(root, 1, statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN)
		for _, id := range []string{"one", "two"} {
			child := startOf(id)
			child.Parent = &statev1.Parent{SessionId: "root", ToolCallId: "call_of_" + id}
			_, err := b.runs.StartRun(t.Context(), child)
			b.must(err)
			ref := refTo(s.execute())
			b.commit(suspendingStep(ref, 1, id+"1", id+"2"))
			runs[id] = ref.GetRunId()
			waits.Calls = append(waits.Calls, &statev1.Call{ToolCallId: "call_of_" + id, ToolName: "subagent__" + id, Kind: statev1.CallKind_CALL_KIND_SUB_AGENT})
		}
		b.commit(waits)
		got := b.submits("root", answersTo("two1", "one1", "two2")...)
		b.became(got, outcome("two1", taken, "two", runs["two"]), outcome("one1", taken, "one", runs["one"]), outcome("two2", taken, "two", runs["two"]))
		if got.GetSession().GetSessionId() != "root" || got.GetRun().GetRunId() != root.GetRunId() || got.GetOpenCalls() != 1 {
			t.Errorf("got %v, want the root, with one call of its family open", got)
		}
		if b.get("two").GetSession().GetStatus() != active || b.get("one").GetSession().GetStatus() != waiting {
			t.Error("want the one continued whose calls are all answered")
		}
		if below := b.submits("two"); below.GetSession().GetSessionId() != "two" || below.GetOpenCalls() != 1 {
			t.Errorf("got %v, want the sub-session, with the family's open call", below)
		}
		mixed := append(answersTo("one2"), &statev1.SubmittedAnswer{ToolCallId: "two1", Answer: approval("a")})
		b.became(b.submits("two", mixed...), outcome("one2", taken, "one", runs["one"]), outcome("two1", takenEarly, "two", runs["two"]))
	})
}

func approval(id string) *statev1.CallAnswer {
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: id, Approved: true}}}
}

func TestAnAnswerOfTheWrongKindRefusesAllOfItsSession(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1", "c2")
		before := b.get("s")
		wrong := append(answersTo("c1"), &statev1.SubmittedAnswer{ToolCallId: "c2", Answer: approval("a")})
		_, err := b.calls.SubmitCalls(t.Context(), submitsOf("s", wrong...))
		b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		if after := b.get("s"); !proto.Equal(before, after) {
			t.Errorf("got %v, want it as it was", after)
		}
	})
}

func TestLateAnswersReportTheirOutcome(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ask := suspendingStep(refTo(s.execute()), 1, "c1")
		ask.Calls[0].DeadlineAt = b.now().Add(time.Minute).UnixMilli()
		b.commit(ask)
		run := ask.GetRun().GetRunId()
		b.advance(2 * time.Minute)
		b.overdue("s")
		done := endingStep(refTo(s.execute()), 2, completed)
		done.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c1", Revision: 1}}
		b.commit(done)
		for range 2 {
			b.became(b.submits("s", answersTo("c1")...), outcome("c1", takenLate, "s", run))
		}
		over := s.suspend("over", "c2").GetRunId()
		_, err := b.sessions.SetStatus(t.Context(), &statev1.SetStatusRequest{Tenant: "acme", SessionId: "over", Status: sessionOK})
		b.must(err)
		b.became(b.submits("over", answersTo("c2", "c1")...), outcome("c2", ownerOver, "over", over), outcome("c1", unknown, "", ""))
	})
}

func TestTheLastAnswerToAnInterruptedSessionSaysThatTheCallerResumes(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1", "c2")
		_, err := b.runs.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", Kind: statev1.StopKind_STOP_KIND_INTERRUPT})
		b.must(err)
		if got := b.submit("s", "c1", result(`1`)); got.GetOutcome() != accepted || got.GetContinuation() != nothing {
			t.Errorf("got %v, want it to wait for the other one", got)
		}
		got := b.submit("s", "c2", result(`1`))
		if got.GetOutcome() != accepted || got.GetContinuation() != statev1.SubmitCallResponse_CONTINUATION_CALLER_RESUMES || got.GetRunId() != "" {
			t.Errorf("got %v, want the caller to resume", got)
		}
		all := b.submits("s", answersTo("c1")...)
		if all.GetOpenCalls() != 0 || all.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_INTERRUPTED {
			t.Errorf("got %v, want it interrupted with nothing open", all)
		}
		resumed, err := b.runs.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "acme", SessionId: "s", Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}, Expect: &statev1.Expectation{CurrentRunId: proto.String(all.GetRun().GetRunId())}})
		b.must(err)
		if claim := s.execute(); claim.GetRun().GetRunId() != resumed.GetRun().GetRunId() || len(claim.GetCalls()) != 2 {
			t.Errorf("got %v, want both answers with the resumed run", claim)
		}
	})
}

func TestAStartBringsAnswersAndAbandonsTheRest(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1", "c2", "c3")
		b.submit("s", "c3", result(`"c3"`))
		r := startOf("s")
		r.AbandonCalls, r.RequestKey, r.Answers = true, "k", answersTo("c1", "c2", "c3", "nobody", "c2")
		r.Answers[0].Answer = approval("a") // the wrong kind: ignored, and the message is sent
		started, err := b.runs.StartRun(t.Context(), r)
		b.must(err)
		if got := started.GetAbandonedCalls(); len(got) != 1 || got[0] != "c1" {
			t.Errorf("got %v abandoned, want c1", got)
		}
		r.Answers = nil
		again, err := b.runs.StartRun(t.Context(), r)
		b.must(err)
		if !again.GetRepeated() || again.GetRun().GetRunId() != started.GetRun().GetRunId() {
			t.Errorf("got %v, want the first run", again)
		}
		claim := s.execute()
		for _, call := range claim.GetCalls() {
			want := statev1.AnswerSource_ANSWER_SOURCE_CLIENT
			if call.GetToolCallId() == "c1" {
				want = statev1.AnswerSource_ANSWER_SOURCE_ABANDONED
			}
			if call.GetAnswer().GetSource() != want {
				t.Errorf("got %v", call)
			}
		}
		if got := b.submits("s", answersTo("c1")...); got.GetCalls()[0].GetOutcome() != takenEarly {
			t.Errorf("got %v, want the abandoned one completed", got)
		}
	})
}

func TestReasonsOfSubmitsTravel(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1")
		const submits, start = "CallService/SubmitCalls", "RunService/StartRun"
		answer := func(id string, a *statev1.CallAnswer) *statev1.SubmitCallsRequest {
			return submitsOf("s", answersTo("c1")[0], &statev1.SubmittedAnswer{ToolCallId: id, Answer: a})
		}
		starting := func(change func(*statev1.StartRunRequest)) *statev1.StartRunRequest {
			r := startOf("s")
			r.AbandonCalls = true
			change(r)
			return r
		}
		b.refusesAll([]refusal{
			{submits, submitsOf("nobody", answersTo("c1")...), fault.NotFound, "SESSION_NOT_FOUND"},
			{submits, submitsOf("nobody"), fault.NotFound, "SESSION_NOT_FOUND"},
			{submits, submitsOf("", answersTo("c1")...), fault.Invalid, "ID_INVALID"},
			{submits, answer("", result(`1`)), fault.Invalid, "ID_INVALID"},
			{submits, answer("\n", result(`1`)), fault.Invalid, "ID_INVALID"},
			{submits, answer("c2", result(`{`)), fault.Invalid, "ANSWER_INVALID"},
			{submits, answer("c2", nil), fault.Invalid, "ANSWER_INVALID"},
			{submits, submitsOf("s", nil), fault.Invalid, "ID_INVALID"},
			{submits, submitsOf("s", &statev1.SubmittedAnswer{ToolCallId: "c1", Answer: result(text(1_000_001))}), fault.TooLarge, "RESULT_TOO_LARGE"},
			{start, starting(func(r *statev1.StartRunRequest) { r.Answers = answersTo("") }), fault.Invalid, "ID_INVALID"},
			{start, starting(func(r *statev1.StartRunRequest) { r.Answers, r.AbandonCalls = answersTo("c1"), false }), fault.Invalid, "ANSWER_INVALID"},
			{start, starting(func(r *statev1.StartRunRequest) { r.Intent = &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{}} }), fault.Invalid, "ID_INVALID"},
			{start, editing("s", nil), fault.Invalid, "MESSAGE_INVALID"},
			{start, regenerating("s", ""), fault.Invalid, "ID_INVALID"},
			{start, regenerating("s", "m"), fault.NotFound, "MESSAGE_NOT_FOUND"},
			{start, regenerating("nobody", "m"), fault.NotFound, "SESSION_NOT_FOUND"},
		})
		if got := b.get("s"); got.GetSession().GetStatus() != waiting || got.GetCalls()[0].GetAnswer() != nil {
			t.Errorf("got %v, want it to wait", got)
		}
	})
}

// The results of server tools look like answers, and have limits of their own.
func TestAnAnswerThatIsTooLargeIsRefusedOnlyWhereItWouldBeTaken(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		run := s.suspend("s", "c1", "c2").GetRunId()
		large := func(id string) *statev1.SubmittedAnswer {
			return &statev1.SubmittedAnswer{ToolCallId: id, Answer: result(text(1_000_001))}
		}
		b.became(b.submits("s", large("server"), answersTo("c1")[0], large("c1")),
			outcome("server", unknown, "", ""), outcome("c1", taken, "s", run), outcome("c1", takenEarly, "s", run))
		_, err := b.calls.SubmitCalls(t.Context(), submitsOf("s", large("c2")))
		b.refuses(err, fault.TooLarge, "RESULT_TOO_LARGE")
		r := startOf("s")
		r.AbandonCalls, r.Answers = true, []*statev1.SubmittedAnswer{large("server"), large("c1"), large("c2")}
		started, err := b.runs.StartRun(t.Context(), r)
		if err != nil || !slices.Equal(started.GetAbandonedCalls(), []string{"c2"}) {
			t.Errorf("got %v, %v; want the message taken, and c2 abandoned", started, err)
		}
	})
}

func TestAsManyAnswersAsTheContractSaysAreTaken(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c 0", "c 999")
		answers := func(n int) (list []*statev1.SubmittedAnswer) {
			for i := range n {
				list = append(list, answersTo(fmt.Sprint("c ", i))...)
			}
			return list
		}
		_, err := b.calls.SubmitCalls(t.Context(), submitsOf("s", answers(1001)...))
		b.refuses(err, fault.Invalid, "TOO_MANY_ANSWERS")
		r := startOf("s")
		r.AbandonCalls, r.Answers = true, answers(1001)
		_, err = b.runs.StartRun(t.Context(), r)
		b.refuses(err, fault.Invalid, "TOO_MANY_ANSWERS")
		got := b.submits("s", answers(1000)...)
		if len(got.GetCalls()) != 1000 || got.GetCalls()[0].GetOutcome() != taken || got.GetCalls()[1].GetOutcome() != unknown || got.GetCalls()[999].GetOutcome() != taken {
			t.Errorf("got %v", got)
		}
		if got.GetSession().GetStatus() != active || got.GetSession().GetTurn() != 2 {
			t.Errorf("got %v, want it continued", got.GetSession())
		}
	})
}

func TestTheAnswersOfOneRequestAreBoundedTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, small)
	s := b.open("e1", 10)
	var ids []string
	var most []*statev1.SubmittedAnswer
	b.start("s")
	ref := refTo(s.execute())
	for n := int32(1); n <= 4; n++ { // three calls in a step
		ask := suspendingStep(ref, n)
		if n < 4 {
			ask.Outcome, ask.Suspension = nil, nil
		}
		for i := range 3 {
			id := fmt.Sprint("c", n, i)
			ids = append(ids, id)
			most = append(most, &statev1.SubmittedAnswer{ToolCallId: id, Answer: result(text(100))})
			ask.Calls = append(ask.Calls, &statev1.Call{ToolCallId: id, ToolName: "ask", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, StepId: "s"})
		}
		b.commit(ask)
	}
	_, err := b.calls.SubmitCalls(t.Context(), submitsOf("s", most...))
	b.refuses(err, fault.TooLarge, "RESULT_TOO_LARGE")
	if got := b.submits("s", most[:9]...); got.GetOpenCalls() != 3 {
		t.Errorf("got %v, want nine of them taken", got)
	}
	if got := b.submits("s", answersTo(ids[9:]...)...); got.GetSession().GetStatus() != active {
		t.Errorf("got %v, want smaller ones taken", got)
	}
}

func TestTheSessionsThatOneRequestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	if err := checkOwners(make([]ownerGroup, maxOwners)); err != nil {
		t.Errorf("got %v, want as many as the limit taken", err)
	}
	if err := checkOwners(make([]ownerGroup, maxOwners+1)); fault.ReasonOf(err) != "TOO_MANY_ANSWERS" {
		t.Errorf("got %v", err)
	}
}

func TestSubmitCallsReturnsTheContinuingRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 10)
	asked := s.suspend("s", "c1").GetRunId()
	next := b.submits("s", answersTo("c1")...).GetRun().GetRunId()
	for _, named := range []string{asked, next, ""} {
		out := &statev1.SubmitCallsResponse{}
		b.must(describeSession(t.Context(), b.server.calls.store, session.Key{Tenant: "acme", SessionID: "s"}, submittedGroup{runID: named}, out))
		if got, want := out.GetRun().GetRunId(), cmp.Or(named, next); got != want || out.GetSession().GetCurrentRunId() != next {
			t.Errorf("got run %q of %v, want %q", got, out.GetSession(), want)
		}
	}
}

// describes compares the response to answers with what the stores have.
func (b *bench) describes(got *statev1.SubmitCallsResponse) {
	b.Helper()
	stored := &statev1.SubmitCallsResponse{Calls: got.GetCalls()}
	b.must(describeSession(b.Context(), b.server.calls.store, session.Key{Tenant: "acme", SessionID: got.GetSession().GetSessionId()}, submittedGroup{}, stored))
	claimed := stored.GetSession().GetEpoch() != got.GetSession().GetEpoch() // by a loop in between
	if !claimed && !proto.Equal(got, stored) {
		b.Errorf("the response is\n%v,\nwant what is stored:\n%v", got, stored)
	}
}

func TestTheResponseToAnswersIsWhatIsStored(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		step := startOf("s")
		step.CustomState = `{"cart":["tea"]}`
		_, err := b.runs.StartRun(t.Context(), step)
		b.must(err)
		b.commit(suspendingStep(refTo(s.execute()), 1, "c1", "c2"))
		b.describes(b.submits("s", answersTo("c1", "nobody")...)) // one call is still open
		last := b.submits("s", answersTo("c2")...)
		b.describes(last)
		if runs := last.GetMessageRuns(); len(runs) != 2 || last.GetSession().GetCustomState() == "" {
			t.Errorf("got %v, want two runs and the custom state", last)
		}
		b.describes(b.submits("s", answersTo("c1", "c2")...)) // repeated
		b.commit(suspendingStep(refTo(s.execute()), 2, "c3"))
		third := b.submits("s", answersTo("c3")...)
		b.describes(third)
		if runs := third.GetMessageRuns(); len(runs) != 3 || runs[2].GetRunId() != third.GetRun().GetRunId() {
			t.Errorf("got the runs %v, want three", runs)
		}
		b.describes(b.submits("s"))
		b.commit(suspendingStep(refTo(s.execute()), 3, "c4"))
		s.suspend("interrupted", "c")
		b.requestStop("interrupted", statev1.StopKind_STOP_KIND_INTERRUPT)
		resumed := submitsOf("interrupted", answersTo("c")...)
		resumed.GoOn = statev1.GoOn_GO_ON_ASKED
		got, err := b.calls.SubmitCalls(t.Context(), resumed)
		b.must(err)
		if b.describes(got); got.GetRun().GetEntry() != statev1.RunEntry_RUN_ENTRY_RESUME {
			t.Errorf("got %v, want it resumed", got.GetRun())
		}
	})
}

// Two replicas receive the same last answer at once: one continues the session, and both name its run.
func TestTheSameAnswerAtTwoReplicasContinuesOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		for _, id := range []string{"s1", "s2", "s3", "s4"} {
			s.suspend(id, "c")
			var wg sync.WaitGroup
			responses := make([]*statev1.SubmitCallsResponse, 3)
			for i := range responses {
				wg.Go(func() {
					got, err := b.calls.SubmitCalls(t.Context(), submitsOf(id, answersTo("c")...))
					if err != nil {
						t.Errorf("%s: %v", id, err)
					}
					responses[i] = got
				})
			}
			wg.Wait()
			accepted := 0
			for _, got := range responses {
				if got.GetCalls()[0].GetOutcome() == taken {
					accepted++
				}
				if runs := got.GetMessageRuns(); len(runs) != 2 || got.GetRun().GetRunId() != responses[0].GetRun().GetRunId() || got.GetSession().GetStatus() != active {
					t.Errorf("%s: got %v, want the same continuation", id, got)
				}
			}
			if accepted != 1 {
				t.Errorf("%s: %d answers were accepted, want one", id, accepted)
			}
			s.execute()
		}
	})
}
