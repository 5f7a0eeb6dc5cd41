package human_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// equalRounds is the number of rounds with concurrent equal messages.
const equalRounds = 8

func equalMessagesAreOneRun(t *testing.T, w *world) {
	for _, posts := range []int{2, 20} {
		for _, key := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, with a key: %v", posts, key), func(t *testing.T) {
				w.rounds(t, equalRounds, func(r *round) string {
					// Every other message goes to an existing session.
					if r.number%2 == 1 {
						r.suspend("say")
					}
					before := len(r.model.requests(r.session))
					message := harness.UserMessage("user-equal", "go "+r.session)
					q := harness.ChatPost{Session: r.session, Agent: r.agent, Messages: append(r.said, message)}
					if key {
						q.RequestKey = "the same of all"
					}
					got := r.postAtOnce(q, posts)
					stored := r.settled("completed")
					if n := len(r.model.requests(r.session)) - before; n != 1 {
						r.Errorf("the model was asked %d times for %d equal messages, want once", n, posts)
					}
					if n := len(stored); n != 2+len(r.said) {
						r.Errorf("the conversation has %d messages, want %d:\n%s", n, 2+len(r.said), harness.Transcript(stored))
					}
					for _, m := range got {
						r.same("one of those who have sent it", m, stored[len(stored)-1])
					}
					return "one run"
				})
			})
		}
	}
}

// postAtOnce sends the same request concurrently through both gateways and returns each received answer.
func (r *round) postAtOnce(q harness.ChatPost, posts int) []harness.UIMessage {
	r.Helper()
	got := make([]harness.UIMessage, posts)
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for i := range posts {
		wg.Go(func() {
			<-ready
			stream, err := r.At(i%2).Post(r.ctx, q)
			if err == nil {
				err = whole(stream)
			}
			if err != nil {
				r.Errorf("post %d: %v", i, err)
				return
			}
			got[i] = stream.Message
		})
	}
	close(ready)
	wg.Wait()
	return got
}
