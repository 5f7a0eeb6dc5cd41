package loop_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestCallsAboveTheLimitOfAReplyAreFailedResultsAndTheOthersAreMade(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ limit, calls, made, kept int }{
		{0, 127, 127, 127}, {0, 128, 128, 128}, {0, 129, 128, 129}, {2, 2, 2, 2}, {2, 3, 2, 3},
		{1024, 1024, 1024, 1024}, {1024, 1025, 1024, 1024}, {1, 3000, 1, 1024},
	} {
		p := loop.New(loop.Start{
			Agent:      agent.Agent{Model: "t/m", Tools: []agent.Tool{tool("look:safe")}},
			Transcript: []agent.Message{userSays("u", "Hi")}, MaxCalls: test.limit,
		})
		p.Next()
		r := p.NewReply()
		for i := range test.calls {
			add(t, r, model.CallStart{Index: i, ID: fmt.Sprintf("c%d", i), Name: "look"}, model.CallDelta{Index: i, Text: `{"q":1}`}, model.CallEnd{Index: i})
		}
		add(t, r, model.Finish{Reason: model.FinishToolCalls})
		p.Replied(r)
		p.Recorded()
		made, refused := 0, 0
		for _, call := range p.Next().(loop.RunCalls).Calls {
			if call.Tool != nil {
				made++
			} else if p.IsRefused(call.ID) {
				refused++
			}
		}
		if made != test.made || made+refused != test.kept {
			t.Errorf("limit %d, %d calls: %d are made and %d refused, want %d and %d", test.limit, test.calls, made, refused, test.made, test.kept-test.made)
		}
	}
}
