package human_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// meanwhileRounds is the number of rounds of an answer against another event.
const meanwhileRounds = 18

// abandoned begins the model's result of a call replaced by a message.
const abandoned = "client_tool_abandoned"

func anAnswerIsTakenOrAbandoned(t *testing.T, w *world) {
	for _, way := range []struct{ door, onBusy string }{{"route 0", ""}, {"route 0", "enqueue"}, {"chat 0", ""}, {"chat 0", "enqueue"}} {
		t.Run(strings.TrimSpace(way.door+" "+way.onBusy), func(t *testing.T) {
			count := w.rounds(t, meanwhileRounds, func(r *round) string {
				r.suspend("ask")
				const answer = "what the user has answered"
				var was response
				var reply harness.UIMessage
				var refusal string
				r.both(
					func() { was = routeNamed(way.door).answer(r, r.result("ask", answer)) },
					func() { reply, refusal = r.sendUnrelated(1, way.onBusy) },
				)
				stored := r.settled("completed")
				all := r.model.requests(r.session)
				seen, n := all[len(all)-1].result("call_ask")
				taken := strings.Contains(seen, answer)
				if n != 1 || !taken && !strings.Contains(seen, abandoned) {
					r.Errorf("the model saw %d results, %q; want the answer, or that it was abandoned", n, seen)
				}
				happened := r.checkAnswered(way.door, was, taken, stored)
				// The message is stored and answered in order.
				users := count(stored, "user")
				switch {
				case refusal != "" && (refusal != "SESSION_BUSY" || way.onBusy != "" || !taken):
					r.Errorf("the message was refused (%s), onBusy %q, the answer taken: %v", refusal, way.onBusy, taken)
				case refusal != "" && (users != 1 || len(all) != 2):
					r.Errorf("the message was refused, and the model was asked %d times; the conversation is\n%s", len(all), harness.Transcript(stored))
				case refusal != "":
					happened += ", and the message refused"
				case users != 2 || !strings.Contains(reply.Text(), "You say never ."):
					r.Errorf("the message was answered with %q; the conversation is\n%s", reply.Text(), harness.Transcript(stored))
				default:
					r.same("who has sent the message", reply, stored[len(stored)-1])
					if want := map[bool]int{true: 3, false: 2}[taken]; len(all) != want {
						r.Errorf("the model was asked %d times, want %d", len(all), want)
					}
				}
				return happened
			})
			first := 0
			for what, n := range count {
				if strings.HasPrefix(what, "taken") {
					first += n
				}
			}
			if first < meanwhileRounds/3 || meanwhileRounds-first < meanwhileRounds/3 {
				t.Errorf("the answer was taken in %d of %d rounds, want it in the %d in which it came first and not in the %[3]d in which the message did",
					first, meanwhileRounds, meanwhileRounds/3)
			}
		})
	}
}

// checkAnswered compares the response to an answer with its effect.
func (r *round) checkAnswered(door string, was response, taken bool, stored []harness.UIMessage) string {
	r.Helper()
	happened, want := "not taken", "already_completed"
	if taken {
		happened, want = "taken", "accepted"
	}
	switch was.status {
	case "streamed":
		at := 1 // the answer to the first message
		r.same("who has answered by chat", was.message, stored[at])
		if !taken {
			r.Errorf("an answer that was not taken was answered with a stream:\n%s", was.message.Content())
		}
	case "RUN_STALE":
		// The chat reloads a conversation with a newer answer.
		if !strings.HasPrefix(door, "chat") {
			r.Errorf("%s was told %+v", door, was)
		}
		happened += " (reload)"
	case want:
	default:
		r.Errorf("%s was told %+v, want %s", door, was, want)
	}
	return happened
}

func count(messages []harness.UIMessage, role string) (n int) {
	for _, m := range messages {
		if m.Role == role {
			n++
		}
	}
	return n
}

func anAnswerIsTakenOrLate(t *testing.T, w *world) {
	for _, door := range []string{"route 0", "route 1", "chat 1"} {
		t.Run(door, func(t *testing.T) {
			count := w.rounds(t, meanwhileRounds, func(r *round) string {
				r.suspend("hurry")
				const answer = "what came in a hurry"
				switch r.number % 3 {
				case 0:
				case 1:
					r.WaitStatus(r, r.session, "completed")
				default: // the deadline counts from the suspension, a little later
					time.Sleep(answerWithin - 100*time.Millisecond + rand.N(300*time.Millisecond))
				}
				was := routeNamed(door).answer(r, r.result("hurry", answer))
				stored := r.settled("completed")
				seen, n := r.last(2).result("call_hurry")
				taken := strings.Contains(seen, answer)
				if n != 1 || !taken && !strings.Contains(seen, "no answer to this call arrived in time") {
					r.Errorf("the model saw %d results, %q; want the answer, or that none arrived in time", n, seen)
				}
				happened := "late"
				switch {
				case was.status == "streamed":
					r.same("who has answered by chat", was.message, stored[len(stored)-1])
				case taken && was.status != "accepted", !taken && was.status != "late_answer_after_timeout":
					r.Errorf("told %+v, and the model saw %q", was, seen)
				}
				if taken {
					happened = "in time"
				}
				// Late or not, the model sees it once after the next message.
				r.said = stored
				if _, code := r.sendUnrelated(0, ""); code != "" {
					r.Errorf("the next message was refused: %s", code)
				}
				r.settled("completed")
				if n := strings.Count(r.last(3).String(), answer); n != 1 {
					r.Errorf("the model was told %d times of the answer, want once:\n%v", n, r.last(3))
				}
				return happened
			})
			// A client that waits is late; a client on a fast machine is in time.
			if count["late"] < meanwhileRounds/3 || count["in time"] == 0 {
				t.Errorf("%v, want it late in the %d rounds in which that is sure, and in time in some", count, meanwhileRounds/3)
			}
		})
	}
}

// notContinuable is the reason for an answer to a call of an ended session.
const notContinuable = "OWNER_NOT_CONTINUABLE"

// sessionLife is how long a suspended session lives in expiry tests.
const sessionLife = 4 * time.Second

func TestAnAnswerAtTheEndOfItsSessionIsTakenOrRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.PatientState, "HOLDFAST_STATE_SUSPENDED_TTL="+sessionLife.String(), "HOLDFAST_STATE_EXPIRE_EVERY=100ms")
	for _, door := range []string{"route 1", "chat 0"} {
		t.Run(door, func(t *testing.T) {
			count := w.rounds(t, meanwhileRounds, func(r *round) string {
				r.suspend("pay")
				switch r.number % 3 {
				case 0:
				case 1:
					r.WaitStatus(r, r.session, "failed")
				default:
					time.Sleep(sessionLife - 400*time.Millisecond + rand.N(500*time.Millisecond))
				}
				was := routeNamed(door).answer(r, r.verdict("pay", true, ""))
				taken := was.status == "accepted" || was.status == "streamed" && was.message.Call("pay").State == "output-available"
				if taken {
					stored := r.settled("completed")
					r.once("pay")
					seen, _ := r.last(2).result("call_pay")
					if !strings.Contains(seen, "pay "+r.session) {
						r.Errorf("told %+v, and the model saw %q", was, seen)
					}
					if was.status == "streamed" {
						r.same("who has answered by chat", was.message, stored[len(stored)-1])
					}
					return "taken"
				}
				// A chat may have begun before the session ended, and then streams that end.
				if was.status != notContinuable && (was.status != "streamed" || door != "chat 0") {
					r.Errorf("told %+v, want it taken, or %s", was, notContinuable)
				}
				r.settled("failed")
				r.last(1)
				if there := r.ledger.Entry("pay " + r.session); there.Posts != 0 {
					r.Errorf("the answer was refused, and it was paid: %+v", there)
				}
				return "refused: " + was.status
			})
			if taken := count["taken"]; taken == 0 || meanwhileRounds-taken < meanwhileRounds/3 {
				t.Errorf("%v, want it refused in the %d rounds in which that is sure, and taken in some", count, meanwhileRounds/3)
			}
		})
	}
}

func anAnswerAndAStopLoseNothing(t *testing.T, w *world) {
	for _, kind := range []string{"interrupt", "abort"} {
		for _, door := range []string{"route 0", "chat 0"} {
			t.Run(kind+" and "+door, func(t *testing.T) {
				w.rounds(t, meanwhileRounds, func(r *round) string {
					r.suspend("pay")
					var was response
					r.both(
						func() { was = r.despite(door, r.verdict("pay", true, "")) },
						func() { r.stop(1, kind) },
					)
					if kind == "abort" {
						return r.afterAbort(was)
					}
					return r.afterInterrupt(was)
				})
			})
		}
	}
}

// despite answers although a stop may interrupt the response.
func (r *round) despite(name string, a harness.ToolAnswer) response {
	if name != "chat 0" {
		return routeNamed(name).answer(r, a)
	}
	stream, err := r.At(0).Post(r.ctx, harness.ChatPost{Session: r.session, Agent: r.agent, Messages: r.answered(a)})
	if code := harness.RefusalCode(err); code != "" {
		return response{status: code}
	}
	if err != nil {
		r.Errorf("POST /chat with an answer: %v", err)
		return response{status: "failed"}
	}
	defer stream.Close()
	if err := stream.Rest(); err != nil {
		r.Errorf("the stream of the answer: %v\n%s", err, stream.Dump())
	}
	return response{status: "streamed", message: stream.Message}
}

// stop stops the session through its route.
func (r *round) stop(gateway int, kind string) {
	path := "/chat/" + url.PathEscape(r.session) + "/" + kind
	if a := r.At(gateway).Do(r, http.MethodPost, path, []byte(`{"reason": "enough"}`)); a.Code != http.StatusAccepted {
		r.Errorf("POST %s: got %d %s, want 202", path, a.Code, a.Body)
	}
}

// awaitEnd waits until no run is live and returns the session's status.
func (r *round) awaitEnd() (status string) {
	r.Helper()
	harness.WaitFor(r, roundLimit, "nothing to run in "+r.session, func() (bool, string) {
		s := r.Status(r, r.session)
		status = s.Status
		return !s.IsExecuting && status != "active", fmt.Sprint(s)
	})
	return status
}

// afterAbort checks the session after an abort: the run ended before, or it failed. Unapproved calls had no
// effect.
func (r *round) afterAbort(was response) string {
	r.Helper()
	status := r.awaitEnd()
	if status == "completed" {
		r.settled(status)
		r.once("pay")
		return "taken, and over before the abort"
	}
	stored := r.settled("failed")
	there := r.ledger.Entry("pay " + r.session)
	p := stored[len(stored)-1].Call("pay")
	if was.status == notContinuable && there.Posts > 0 {
		r.Errorf("the answer was refused, and it was paid: %+v", there)
	}
	if there.Posts > 1 {
		r.Errorf("it was paid %d times", there.Posts)
	}
	if p != nil && p.State == "output-available" && there.Posts != 1 {
		r.Errorf("the conversation says that it was paid, and the ledger has %+v", there)
	}
	if was.status == "accepted" {
		return "taken, and aborted behind it"
	}
	return "aborted: " + was.status
}

// afterInterrupt resumes the interrupted run and checks that the answer was not lost.
func (r *round) afterInterrupt(was response) string {
	r.Helper()
	happened := was.status
	if was.got.Continuation != "" {
		happened += " " + was.got.Continuation
	}
	status := r.awaitEnd()
	happened += ", " + status
	if status == "interrupted" {
		if _, err := r.AgentService(r).Resume(r.ctx, &agentv1.ResumeRequest{SessionId: r.session}); err != nil {
			r.Fatalf("resume: %v", err)
		}
	}
	stored := r.settled("completed")
	all := r.model.requests(r.session)
	seen, n := all[len(all)-1].result("call_pay")
	state := "output-available"
	began := was.got.Continuation == "new_run" || was.status == "streamed"
	if began && strings.Contains(seen, "run_stopped") {
		state = "output-error" // the interrupt arrived during the payment
		happened += ", while it was paid"
	} else {
		if !strings.Contains(seen, "pay "+r.session) {
			r.Errorf("told %+v, and the model saw %q; want what was paid", was, seen)
		}
		r.once("pay")
	}
	if there := r.ledger.Entry("pay " + r.session); n != 1 || there.Posts > 1 {
		r.Errorf("told %+v, the model saw %d results, and the ledger has %+v", was, n, there)
	}
	r.onceShown(stored, state)
	return happened
}

// onceShown checks that the conversation shows the payment once, in the requesting message, with its input and
// its end.
func (r *round) onceShown(stored []harness.UIMessage, state string) {
	r.Helper()
	var parts []string
	for _, m := range stored {
		if p := m.Call("pay"); p != nil {
			parts = append(parts, p.State+" "+string(p.Input))
		}
	}
	if len(parts) != 1 || !strings.HasPrefix(parts[0], state) || !strings.Contains(parts[0], r.session) {
		r.Errorf("the conversation shows the call as %q, want it once, %s, with its input:\n%s", parts, state, harness.Transcript(stored))
	}
}
