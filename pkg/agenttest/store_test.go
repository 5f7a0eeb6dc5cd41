package agenttest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
)

type number struct {
	N int64 `json:"n"`
}

// librarian counts in its private store. The tool note is safe to repeat, once is not, and fail fails after it has written.
func librarian() agent.Agent {
	note := func(ctx context.Context, call *agent.Call, in number) (string, error) {
		var last int64
		if _, err := call.Store().Get(ctx, "last", &last); err != nil {
			return "", err
		}
		for _, err := range []error{
			call.Store().Add("sum", in.N), call.Store().Put("last", in.N), call.Store().Put("calls/"+call.ID, in.N),
		} {
			if err != nil {
				return "", err
			}
		}
		return "noted", nil
	}
	show := func(ctx context.Context, call *agent.Call, _ struct{}) (string, error) {
		var lines []string
		for e, err := range call.Store().List(ctx, agent.StoreRange{}) {
			if err != nil {
				return "", err
			}
			if !strings.HasPrefix(e.Key, "calls/") {
				lines = append(lines, fmt.Sprintf("%s=%s", e.Key, e.Value))
			}
		}
		calls := 0
		for _, err := range call.Store().List(ctx, agent.StoreRange{Prefix: "calls/"}) {
			if err != nil {
				return "", err
			}
			calls++
		}
		return fmt.Sprint(strings.Join(lines, " "), " calls=", calls), nil
	}
	return agent.Agent{
		Name: "librarian", Model: "test/librarian",
		Tools: []agent.Tool{
			agent.NewTool("note", "Notes a number.", note, agent.Safe()),
			agent.NewTool("once", "Notes a number.", note),
			agent.NewTool("fail", "Fails.", func(ctx context.Context, call *agent.Call, in number) (string, error) {
				if _, err := note(ctx, call, in); err != nil {
					return "", err
				}
				return "", errors.New("no")
			}),
			agent.NewTool("show", "Shows the store.", show, agent.ReadOnly()),
		},
	}
}

func TestAStoreHasExactlyTheWritesOfCallsThatSucceeded(t *testing.T) {
	t.Parallel()
	config := agenttest.Config{Agents: []agent.Agent{librarian()}, Models: map[string]agenttest.Model{"librarian": agenttest.Replies(
		agenttest.Call("note", `{"n":1}`).And("fail", `{"n":100}`).And("note", `{"n":2}`),
		agenttest.Call("note", `{"n":4}`),
		agenttest.Call("show", `{}`),
		agenttest.Text("Done."),
	)}}
	agenttest.RunWithCrashes(t, config, func(s *agenttest.System) {
		c := s.Chat("librarian")
		c.Say("Note.")
		transcript := c.Transcript()
		if want := `result: show "last=4 sum=7 calls=3"`; !slices.Contains(transcript, want) {
			t.Errorf("got %q, want %s", transcript, want)
		}
	})
}

// A crash leaves a call that is not safe with an unknown outcome. Its writes are in the store exactly if its result is in
// the conversation.
func TestAStoreHasNoWriteOfACallWithoutAResult(t *testing.T) {
	t.Parallel()
	config := agenttest.Config{Agents: []agent.Agent{librarian()}, Models: map[string]agenttest.Model{"librarian": agenttest.Replies(
		agenttest.Call("once", `{"n":1}`).And("once", `{"n":2}`).And("note", `{"n":4}`),
		agenttest.Call("show", `{}`),
		agenttest.Text("Done."),
	)}}
	agenttest.RunWithCrashes(t, config, func(s *agenttest.System) {
		c := s.Chat("librarian")
		c.Say("Note.")
		transcript := c.Transcript()
		var numbers []int64
		sum, calls, last := int64(0), 0, int64(0)
		for _, line := range transcript {
			var n int64
			tool := ""
			if _, err := fmt.Sscanf(line, `call: %s {"n":%d}`, &tool, &n); err == nil {
				numbers = append(numbers, n)
			}
			noted := strings.HasSuffix(line, ` "noted"`)
			if noted {
				sum, calls, last = sum+numbers[0], calls+1, numbers[0]
			}
			if noted || strings.HasPrefix(line, "failed: ") {
				numbers = numbers[1:]
			}
		}
		want := fmt.Sprintf(`result: show "last=%d sum=%d calls=%d"`, last, sum, calls)
		if calls == 0 || !slices.Contains(transcript, want) {
			t.Errorf("got %q, want %s", transcript, want)
		}
	})
}
