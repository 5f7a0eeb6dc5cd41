package server

import (
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// planning records a plan with the calls.
func (b *bench) planning(ref *statev1.RunRef, n int32, callIDs ...string) {
	b.Helper()
	plan := said(eventv1.Role_ROLE_ASSISTANT, "plan", "x")
	for _, id := range callIDs {
		plan.Parts = append(plan.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id, ToolName: "ask", Arguments: "{}"}}})
	}
	_, err := b.work.RecordPlan(b.Context(), &statev1.RecordPlanRequest{Run: ref, Step: n, Plan: plan})
	b.must(err)
}

func TestAnEarlyAnswerMustBeSentAgain(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ref := refTo(s.execute())
		submit := func(id string) error {
			_, err := b.calls.SubmitCall(t.Context(), submitOf("s", id, result(`"`+id+`"`)))
			return err
		}
		b.refuses(submit("c"), fault.Unavailable, "CALL_NOT_OPEN") // not planned yet
		b.planning(ref, 1, "server", "c")
		b.refuses(submit("c"), fault.Unavailable, "CALL_NOT_OPEN")
		b.refuses(submit("nobody"), fault.NotFound, "UNKNOWN_TOOL_CALL")
		message := startOf("s")
		message.AbandonCalls, message.OnBusy, message.Answers = true, statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, answersTo("former", "c")
		_, err := b.runs.StartRun(t.Context(), message)
		b.refuses(err, fault.Unavailable, "CALL_NOT_OPEN")
		if got := b.get("s"); len(got.GetWaiting()) != 0 {
			t.Errorf("got %v, want nothing to wait", got.GetWaiting())
		}
		b.commit(suspendingStep(ref, 1, "c"))
		b.must(submit("c"))
		b.refuses(submit("nobody"), fault.Unavailable, "CALL_NOT_OPEN") // the continuing run may open it
	})
}

func TestAnAnswerToACallThatEndedWithItsSessionSaysSo(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.open("e1", 10).suspend("s", "c")
		b.requestStop("s", statev1.StopKind_STOP_KIND_ABORT)
		_, err := b.calls.SubmitCall(t.Context(), submitOf("s", "c", result(`1`)))
		b.refuses(err, fault.Conflict, "OWNER_NOT_CONTINUABLE")
	})
}

// An answer races with the step that opens its call: it is stored or must be sent again, but
// never refused permanently.
func TestAnAnswerThatMeetsItsSuspensionIsNotLost(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		for _, id := range []string{"s1", "s2", "s3", "s4", "s5"} {
			b.start(id)
			ref := refTo(s.execute())
			var wg sync.WaitGroup
			ready := make(chan struct{})
			wg.Go(func() {
				<-ready
				if _, err := b.work.CommitStep(t.Context(), suspendingStep(ref, 1, "c of "+id)); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
			for range 4 {
				wg.Go(func() {
					<-ready
					for {
						_, err := b.calls.SubmitCall(t.Context(), submitOf(id, "c of "+id, result(`1`)))
						if fault.ReasonOf(err) == "CALL_NOT_OPEN" {
							continue
						}
						if err != nil {
							t.Errorf("%s: %v", id, err)
						}
						return
					}
				})
			}
			close(ready)
			wg.Wait()
			if got := b.get(id).GetSession(); got.GetStatus() != active {
				t.Errorf("%s: got %v, want it continued", id, got)
			}
			s.execute() // its continuation
		}
	})
}
