package server

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// withCallbacks configures a secret for callbacks.
func withCallbacks(c *Config) {
	keys, err := grant.NewCallbackKeys(strings.Repeat("k", grant.MinSecret))
	if err != nil {
		panic(err)
	}
	c.Callbacks = keys
}

// callbackOf returns the token that an executor gives to a call of the claim.
func callbackOf(b *bench, claim *statev1.Claim, callID string, expires time.Time) string {
	b.Helper()
	if len(claim.GetCallbackKey()) == 0 {
		b.Fatal("the claim has no key for callbacks")
	}
	s := claim.GetSession()
	return grant.SignCallback(claim.GetCallbackKey(), grant.Callback{
		Tenant: s.GetTenant(), Session: s.GetSessionId(), Run: claim.GetRun().GetRunId(), Call: callID, Expires: expires,
	})
}

// posting returns the request of a gateway for a post.
func posting(token, sessionID, callID string, answer *statev1.CallAnswer) *statev1.SubmitCallRequest {
	r := submitOf(sessionID, callID, answer)
	r.CallbackToken = token
	r.Caller = &statev1.Caller{Actor: "callback"}
	return r
}

// firstPoint returns the first checkpoint of a session.
func (b *bench) firstPoint(sessionID string) string {
	b.Helper()
	points, err := b.points.ListCheckpoints(b.Context(), &statev1.ListCheckpointsRequest{Tenant: "acme", SessionId: sessionID})
	b.must(err)
	list := points.GetCheckpoints() // the newest first
	return list[len(list)-1].GetCheckpointId()
}

// awaitCallback commits a step that waits for callbacks until a time.
func (b *bench) awaitCallback(claim *statev1.Claim, until time.Time, callIDs ...string) {
	b.Helper()
	commit := suspendingStep(refTo(claim), claim.GetSession().GetStepCount()+1, callIDs...)
	for _, call := range commit.GetCalls() {
		call.Kind, call.DeadlineAt = statev1.CallKind_CALL_KIND_CALLBACK, until.UnixMilli()
	}
	b.commit(commit)
}

func TestAPostAnswersOneCallOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withCallbacks)
		s := b.open("e1", 10)
		b.start("s")
		claim := s.execute()
		until := b.now().Add(time.Hour)
		token := callbackOf(b, claim, "c", until)
		post := func(token string, answer *statev1.CallAnswer) (*statev1.SubmitCallResponse, error) {
			return b.calls.SubmitCall(t.Context(), posting(token, "s", "c", answer))
		}
		refused := func(kind fault.Kind, reason string, token string, answer *statev1.CallAnswer) {
			t.Helper()
			_, err := post(token, answer)
			b.refuses(err, kind, reason)
		}
		// Before the step: the call is planned, and then its "later" is recorded.
		b.planning(refTo(claim), 1, "c")
		refused(fault.Unavailable, "CALL_NOT_OPEN", token, result(`1`))
		_, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: refTo(claim), Step: 1, Result: &statev1.CallResult{
			Result: &eventv1.ToolResultPart{ToolCallId: "c", ToolName: "ask", LaterUntil: until.UnixMilli()},
		}})
		b.must(err)
		refused(fault.Unavailable, "CALL_NOT_OPEN", token, result(`1`))
		b.awaitCallback(claim, until, "c")

		refused(fault.NotFound, "CALLBACK_UNKNOWN", token+"A", result(`1`))
		refused(fault.NotFound, "CALLBACK_UNKNOWN", token+"A", nil)
		refused(fault.Invalid, "ANSWER_INVALID", token, nil)
		refused(fault.NotFound, "CALLBACK_UNKNOWN", callbackOf(b, claim, "d", until), result(`1`))
		refused(fault.Conflict, "CALLBACK_EXPIRED", callbackOf(b, claim, "c", b.now()), result(`1`))
		other := posting(token, "s", "c", result(`1`))
		other.Tenant = "other"
		_, err = b.calls.SubmitCall(t.Context(), other)
		b.refuses(err, fault.NotFound, "CALLBACK_UNKNOWN")
		// Nobody but the token and an operator may answer.
		_, err = b.calls.SubmitCall(t.Context(), submitOf("s", "c", result(`1`)))
		b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		_, err = b.calls.SubmitCall(t.Context(), submitOf("s", "c", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "no"}}))
		b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		_, err = b.calls.SubmitCalls(t.Context(), &statev1.SubmitCallsRequest{Tenant: "acme", SessionId: "s", Answers: []*statev1.SubmittedAnswer{
			{ToolCallId: "c", Answer: result(`1`)},
		}})
		b.refuses(err, fault.Invalid, "KIND_MISMATCH")

		got, err := post(token, result(`{"paid":true}`))
		b.must(err)
		if got.GetOutcome() != accepted || got.GetContinuation() != newRun {
			t.Errorf("the first post: got %v", got)
		}
		next := s.execute()
		if call := next.GetCalls()[0]; call.GetKind() != statev1.CallKind_CALL_KIND_CALLBACK || call.GetAnswer().GetResult() != `{"paid":true}` {
			t.Errorf("the continuation got %v", call)
		}
		end := endingStep(refTo(next), 2, completed)
		end.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c", Revision: 1}}
		b.commit(end)
		for answer, repeated := range map[*statev1.CallAnswer]bool{result(`{"paid":true}`): true, result(`{"paid":false}`): false} {
			got, err := post(token, answer)
			if err != nil || got.GetOutcome() != already || got.GetRepeated() != repeated {
				t.Errorf("%v again: got %v, %v", answer, got, err)
			}
		}
		log, err := b.audit.ListEvents(t.Context(), &statev1.ListEventsRequest{Tenant: "acme", Limit: 10})
		if err != nil || len(log.GetEvents()) != 1 || log.GetEvents()[0].GetAction() != "call.answered" || log.GetEvents()[0].GetActor() != "callback" {
			t.Errorf("got the audit log %v, %v, want the post in it", log, err)
		}
	})
}

func TestAnOperatorEndsTheWaitForACallback(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withCallbacks)
		s := b.open("e1", 10)
		b.start("s")
		claim := s.execute()
		until := b.now().Add(time.Hour)
		b.awaitCallback(claim, until, "c")
		listed, err := b.calls.ListOpenCalls(t.Context(), &statev1.ListOpenCallsRequest{Tenant: "acme", Kind: statev1.CallKind_CALL_KIND_CALLBACK})
		if err != nil || len(listed.GetCalls()) != 1 || listed.GetCalls()[0].GetCall().GetDeadlineAt() != until.UnixMilli() {
			t.Errorf("got %v, %v, want the call with its deadline", listed, err)
		}
		answer := submitOf("s", "c", result(`"by hand"`))
		answer.Operates = true
		got, err := b.calls.SubmitCall(t.Context(), answer)
		if err != nil || got.GetOutcome() != accepted {
			t.Errorf("got %v, %v", got, err)
		}
		got, err = b.calls.SubmitCall(t.Context(), posting(callbackOf(b, claim, "c", until), "s", "c", result(`"late"`)))
		if err != nil || got.GetOutcome() != already || got.GetRepeated() {
			t.Errorf("the post after it: got %v, %v", got, err)
		}
	})
}

// The result of a call that was undone, or whose session is gone, is refused for good.
func TestAPostToACallThatIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withCallbacks)
		s := b.open("e1", 10)
		gone := map[string]struct {
			undo   func(id string)
			kind   fault.Kind
			reason string
		}{
			"deleted": {func(id string) {
				_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: id})
				b.must(err)
			}, fault.NotFound, "SESSION_NOT_FOUND"},
			"aborted": {func(id string) { b.requestStop(id, statev1.StopKind_STOP_KIND_ABORT) }, fault.Conflict, "OWNER_NOT_CONTINUABLE"},
			"rewound": {func(id string) {
				_, err := b.points.Rewind(t.Context(), &statev1.RewindRequest{Tenant: "acme", SessionId: id, CheckpointId: b.firstPoint(id)})
				b.must(err)
			}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		}
		for id, g := range gone {
			b.start(id)
			first := s.execute()
			b.commit(endingStep(refTo(first), 1, completed))
			b.start(id)
			claim := s.execute()
			until := b.now().Add(time.Hour)
			b.awaitCallback(claim, until, "c of "+id)
			g.undo(id)
			_, err := b.calls.SubmitCall(t.Context(), posting(callbackOf(b, claim, "c of "+id, until), id, "c of "+id, result(`1`)))
			if f, ok := fault.From(err); !ok || f.Kind != g.kind || f.Reason != g.reason {
				t.Errorf("%s: got %v, want %s", id, err, g.reason)
			}
		}
	})
}

// After a rewind another run may make a call with the same id: the URL of the first one does not answer it.
func TestAPostDoesNotAnswerAnotherCallOfTheSameID(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withCallbacks)
		s := b.open("e1", 10)
		b.start("s")
		b.commit(endingStep(refTo(s.execute()), 1, completed))
		b.start("s")
		first := s.execute()
		until := b.now().Add(time.Hour)
		b.awaitCallback(first, until, "c")
		_, err := b.points.Rewind(t.Context(), &statev1.RewindRequest{Tenant: "acme", SessionId: "s", CheckpointId: b.firstPoint("s")})
		b.must(err)
		b.start("s")
		second := s.execute()
		post := func(of *statev1.Claim) error {
			_, err := b.calls.SubmitCall(t.Context(), posting(callbackOf(b, of, "c", until), "s", "c", result(`1`)))
			return err
		}
		b.refuses(post(first), fault.NotFound, "UNKNOWN_TOOL_CALL")
		b.refuses(post(second), fault.Unavailable, "CALL_NOT_OPEN")
		b.awaitCallback(second, until, "c")
		b.refuses(post(first), fault.NotFound, "UNKNOWN_TOOL_CALL")
		b.must(post(second))
	})
}

// An approved call may answer later: its row waits again.
func TestAnApprovedCallWaitsForACallback(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withCallbacks)
		s := b.open("e1", 10)
		b.start("s")
		asks := suspendingStep(refTo(s.execute()), 1, "c")
		asks.Calls[0].Kind, asks.Calls[0].ApprovalId = statev1.CallKind_CALL_KIND_APPROVAL, "a"
		b.commit(asks)
		b.submit("s", "c", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "a", Approved: true}}})
		claim := s.execute()
		until := b.now().Add(time.Hour)
		token := callbackOf(b, claim, "c", until)
		b.planning(refTo(claim), 2, "c")
		_, err := b.calls.SubmitCall(t.Context(), posting(token, "s", "c", result(`1`)))
		b.refuses(err, fault.Unavailable, "CALL_NOT_OPEN")
		later := suspendingStep(refTo(claim), 2, "c")
		later.Calls[0].Kind, later.Calls[0].DeadlineAt = statev1.CallKind_CALL_KIND_CALLBACK, until.UnixMilli()
		later.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c", Revision: 1}}
		b.commit(later)
		b.commit(later) // a repeat
		call := b.get("s").GetCalls()[0]
		if call.GetKind() != statev1.CallKind_CALL_KIND_CALLBACK || call.GetAnswer() != nil || call.GetApprovalId() != "a" ||
			call.GetStep() != 2 || call.GetRunId() != claim.GetRun().GetRunId() {
			t.Errorf("got %v, want it open for a callback", call)
		}
		_, err = b.calls.SubmitCall(t.Context(), posting(token, "s", "c", result(`1`)))
		b.must(err)
		next := s.execute()
		if call := next.GetCalls()[0]; call.GetAnswer().GetResult() != `1` || call.GetRevision() != 2 {
			t.Errorf("the continuation got %v", call)
		}
	})
}
