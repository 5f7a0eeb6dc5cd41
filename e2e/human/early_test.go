package human_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// earlyRounds is the number of rounds with early or repeated requests.
	earlyRounds = 6
	// slowTool is the ledger's delay where answers must overtake a tool.
	slowTool = 1500 * time.Millisecond
)

// newSlowWorld starts a world whose server tools take slowTool.
func newSlowWorld(t *testing.T) *world {
	t.Helper()
	w := &world{model: startModel(t), ledger: harness.StartLedger(t, func() time.Duration { return slowTool / 2 })}
	w.System = harness.Start(t, harness.Options{
		Agents: strings.NewReplacer("MODEL", w.model.URL, "LEDGER", w.ledger.URL, "WITHIN", answerWithin.String(), "&ask", "").Replace(agentsFile),
		States: 2, Gateways: 2, Executors: 2, LogLevel: "warn",
		ExecutorEnv: []string{
			"FAKE_KEY=a-key", "HOLDFAST_EXECUTOR_TOOL_HOSTS=127.0.0.1", "HOLDFAST_EXECUTOR_TOOL_PRIVATE_HOSTS=127.0.0.1",
		},
	})
	return w
}

// awaitToolCall sends "mixed" and reads the answer until the client receives its own tool call, while a server tool runs.
func (r *round) awaitToolCall() *harness.UIStream {
	r.Helper()
	r.said = []harness.UIMessage{harness.UserMessage("user-1", "mixed "+r.session)}
	stream, err := r.At(r.number%2).Post(r.ctx, harness.ChatPost{Session: r.session, Agent: r.agent, Messages: r.said})
	for err == nil {
		if p := stream.Message.Call("ask"); p != nil && p.State == "input-available" {
			break
		}
		err = stream.Next()
	}
	if err != nil {
		r.Fatalf("the first message: %v", err)
	}
	if p := stream.Message.Call("record"); p != nil && p.State == "output-available" {
		r.Fatalf("the server tool has ended before the client's was told:\n%s", stream.Dump())
	}
	r.said = append(r.said, stream.Message.Clone())
	return stream
}

const early = "what the client was quick to say"

// TestAnAnswerBeforeTheSuspensionIsTakenOnce answers a client tool while a server tool of the same step runs,
// long before the run suspends.
func TestAnAnswerBeforeTheSuspensionIsTakenOnce(t *testing.T) {
	t.Parallel()
	w := newSlowWorld(t)
	for name, answer := range map[string]func(r *round) string{
		"by the routes": func(r *round) string {
			count := map[string]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, door := range []string{"route 0", "route 1", "connect 0", "connect 1"} {
				wg.Go(func() {
					was := routeNamed(door).answer(r, r.result("ask", early))
					mu.Lock()
					defer mu.Unlock()
					count[was.status]++
				})
			}
			wg.Wait()
			if count["accepted"] != 1 || count["already_completed"] != 3 {
				r.Errorf("four early answers were told %v, want one accepted and three already_completed", count)
			}
			return "taken"
		},
		"by chat": func(r *round) string {
			was := r.send(1, r.result("ask", early))
			if p := was.message.Call("pay"); was.status != "streamed" || p == nil || p.State != "approval-requested" {
				r.Errorf("told %+v, want a stream to the suspension", was)
			}
			return "taken"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.rounds(t, earlyRounds, func(r *round) string {
				stream := r.awaitToolCall()
				happened := answer(r)
				if err := whole(stream); err != nil {
					r.Fatalf("the first stream: %v", err)
				}
				r.said[1] = stream.Message
				if was := r.submit(0, r.verdict("pay", true, "")); was.status != "accepted" {
					r.Errorf("the last answer was told %+v", was)
				}
				stored := r.settled("completed")
				if seen, n := r.last(2).result("call_ask"); n != 1 || !strings.Contains(seen, early) {
					r.Errorf("the model saw %d results, %q; want the answer", n, seen)
				}
				if p := stored[1].Call("ask"); p == nil || p.State != "output-available" || !strings.Contains(string(p.Output), early) {
					r.Errorf("the conversation has %+v, want the answer", p)
				}
				return happened
			})
		})
	}
	t.Run("in a message that waits", func(t *testing.T) {
		t.Parallel()
		w.rounds(t, earlyRounds, func(r *round) string {
			stream := r.awaitToolCall()
			r.said = r.answered(harness.ToolAnswer{ToolCallID: "call_ask", Result: json.RawMessage(fmt.Sprintf("%q", early))})
			reply, refusal := r.sendUnrelated(1, "enqueue")
			if refusal != "" {
				r.Fatalf("the message was refused: %s", refusal)
			}
			stream.Close()
			stored := r.settled("completed")
			q := r.last(2)
			if seen, n := q.result("call_ask"); n != 1 || !strings.Contains(seen, early) {
				r.Errorf("the model saw %d results, %q; want the answer", n, seen)
			}
			if seen, n := q.result("call_pay"); n != 1 || !strings.Contains(seen, abandoned) {
				r.Errorf("the model saw %d results of what nobody answered, %q; want it abandoned", n, seen)
			}
			if count(stored, "user") != 2 || !strings.Contains(reply.Text(), "You say never .") {
				r.Errorf("the message was answered with %q; the conversation is\n%s", reply.Text(), harness.Transcript(stored))
			}
			return "taken with the message"
		})
	})
}

// TestEqualRequestsThatComeAtOnceAreOneRun sends edits, regenerations and continuations many times.
func TestEqualRequestsThatComeAtOnceAreOneRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, posts := range []int{2, 12} {
		for name, play := range map[string]func(r *round) harness.ChatPost{
			"edits": func(r *round) harness.ChatPost {
				r.suspend("say")
				return harness.ChatPost{MessageID: "user-1", Messages: []harness.UIMessage{harness.UserMessage("user-1", "go "+r.session)}}
			},
			"regenerates with the id of the answer": func(r *round) harness.ChatPost {
				r.suspend("say")
				return harness.ChatPost{Trigger: "regenerate-message", MessageID: r.said[1].ID, Messages: r.said[:1]}
			},
			"regenerates with a key and the id of the answer alone": func(r *round) harness.ChatPost {
				r.suspend("say")
				return harness.ChatPost{Trigger: "regenerate-message", MessageID: r.said[1].ID, RequestKey: "the same of all"}
			},
			"answers": func(r *round) harness.ChatPost {
				r.suspend("ask")
				return harness.ChatPost{Messages: r.answered(r.result("ask", early))}
			},
		} {
			t.Run(fmt.Sprint(posts, " ", name), func(t *testing.T) {
				t.Parallel()
				w.rounds(t, earlyRounds, func(r *round) string {
					q := play(r)
					q.Session, q.Agent = r.session, r.agent
					got := r.postAtOnce(q, posts)
					stored := r.settled("completed")
					if q.RequestKey != "" { // a key remains valid after the end
						got = append(got, r.postAtOnce(q, posts)...)
					}
					if n := len(r.model.requests(r.session)); n != 2 || len(stored) != 2 {
						r.Errorf("the model was asked %d times, want twice; the conversation is\n%s", n, harness.Transcript(stored))
					}
					for _, m := range got {
						r.same("one of those who have sent it", m, stored[1])
					}
					return "one run"
				})
			})
		}
		t.Run(fmt.Sprint(posts, " regenerates"), func(t *testing.T) {
			t.Parallel()
			w.rounds(t, earlyRounds, func(r *round) string { return r.regenerates(posts) })
		})
	}
}

// regenerates sends many concurrent regenerate requests without a message id. A request during the new answer
// attaches to it.
func (r *round) regenerates(posts int) string {
	r.suspend("say")
	q := harness.ChatPost{Session: r.session, Agent: r.agent, Trigger: "regenerate-message", Messages: r.said[:1]}
	pace := r.model.pace(r.session)
	streams := make([]*harness.UIStream, posts)
	var wg sync.WaitGroup
	for i := range posts {
		wg.Go(func() {
			stream, err := r.At(i%2).Post(r.ctx, q)
			if err != nil && harness.RefusalCode(err) != "SESSION_BUSY" {
				r.Errorf("post %d: %v", i, err)
			}
			streams[i] = stream
		})
	}
	wg.Wait()
	pace.change(func() { pace.late = true })
	var got []harness.UIMessage
	for _, stream := range streams {
		if stream == nil {
			continue
		}
		if err := whole(stream); err != nil {
			r.Errorf("the stream of one: %v", err)
		}
		got = append(got, stream.Message)
	}
	stored := r.settled("completed")
	if n := len(r.model.requests(r.session)); n != 2 || len(stored) != 2 || len(got) == 0 {
		r.Errorf("the model was asked %d times, want twice; %d have a stream; the conversation is\n%s", n, len(got), harness.Transcript(stored))
	}
	for _, m := range got {
		r.same("one of those who have sent it", m, stored[1])
	}
	return fmt.Sprintf("one run, told to %d of %d", len(got), posts)
}
