package agents_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// examples has the agents of agents.yaml, with a forecast that needs no network.
func examples(models map[string]agenttest.Model) agenttest.Config {
	return agenttest.Config{
		Files: "agents.yaml", Env: map[string]string{"HOLDFAST_EXECUTOR_TOOL_HOSTS": "api.open-meteo.com"}, Models: models,
		Tools: map[string]func(context.Context, *agent.Call) (any, error){
			"forecast": func(context.Context, *agent.Call) (any, error) { return map[string]int{"max": 25}, nil },
		},
	}
}

func TestTheAssistantAsksTheUserAndWaitsADay(t *testing.T) {
	t.Parallel()
	c := examples(map[string]agenttest.Model{"assistant": agenttest.Replies(
		agenttest.Call("ask_user", `{"question":"Where?"}`),
		agenttest.Call("forecast", `{"latitude":41.9,"longitude":12.5}`),
		agenttest.Text("It will be 25 degrees."),
	)})
	agenttest.Run(t, c, func(s *agenttest.System) {
		chat := s.Chat("assistant")
		chat.Say("How warm will it be?")
		s.Advance(23 * time.Hour)
		chat.Answer("ask_user", "Rome")
		chat.Want(
			"user: How warm will it be?",
			`call: ask_user {"question":"Where?"}`, `result: ask_user "Rome"`,
			`call: forecast {"latitude":41.9,"longitude":12.5}`, `result: forecast {"max":25}`,
			"agent: It will be 25 degrees.",
		)
	})
}

func TestTheTriageEndsWithAFormThatFits(t *testing.T) {
	t.Parallel()
	c := examples(map[string]agenttest.Model{"triage": agenttest.Replies(
		agenttest.Call("__finish__", `{"urgent":true,"topic":"weather","summary":"No heating."}`),
		agenttest.Call("__finish__", `{"urgent":true,"topic":"defect","summary":"No heating."}`),
	)})
	agenttest.Run(t, c, func(s *agenttest.System) {
		chat := s.Chat("triage")
		chat.Say("My heating is broken.")
		if got, want := chat.Output(), `{"urgent":true,"topic":"defect","summary":"No heating."}`; got != want {
			t.Errorf("the output is %s, want %s", got, want)
		}
	})
}

func TestTheTreasurerAsksForLargeSumsAndWhenItIsCareful(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state, sum string
		asks       bool
	}{
		"small":           {`{}`, "12 + 30", false},
		"large":           {`{}`, "1200 + 30", true},
		"small, careful":  {`{"careful":true}`, "12 + 30", true},
		"small, customer": {`{"customer":"Mia"}`, "12 + 30", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := examples(map[string]agenttest.Model{"treasurer": agenttest.Replies(
				agenttest.Call("calculate", `{"expression":"`+c.sum+`"}`), agenttest.Text("Paid."),
			)})
			agenttest.Run(t, config, func(s *agenttest.System) {
				chat := s.Chat("treasurer")
				chat.SayWith(&agentv1.StartRequest{Message: "Pay.", State: c.state})
				if asks := len(chat.Pending()) == 1; asks != c.asks {
					t.Fatalf("it asks: %t, want %t", asks, c.asks)
				}
				if c.asks {
					chat.Approve("calculate")
				}
				chat.Want("user: Pay.", `call: calculate {"expression":"`+c.sum+`"}`, "result: calculate …", "agent: Paid.")
			})
		})
	}
}

func TestTheEchoAnswers(t *testing.T) {
	t.Parallel()
	c := examples(map[string]agenttest.Model{"echo": agenttest.Replies(agenttest.Text("You said: hello"))})
	agenttest.RunWithCrashes(t, c, func(s *agenttest.System) {
		chat := s.Chat("echo")
		chat.Say("hello")
		chat.Want("user: hello", "agent: You said: hello")
	})
}

func TestTheLibrarianWritesOnlyWhenAHumanAgrees(t *testing.T) { // not parallel: it sets PATH
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	written := 0
	c := agenttest.Config{
		Files: "librarian.yaml", Env: map[string]string{"HOLDFAST_EXECUTOR_MCP_COMMANDS": program},
		Models: map[string]agenttest.Model{"librarian": agenttest.Replies(
			agenttest.Call("read_text_file", `{"path":"a.txt"}`), agenttest.Call("write_file", `{"path":"a.txt"}`), agenttest.Text("Done."),
			agenttest.Call("write_file", `{"path":"b.txt"}`), agenttest.Text("Then not."),
		)},
		Tools: map[string]func(context.Context, *agent.Call) (any, error){
			"read_text_file": func(context.Context, *agent.Call) (any, error) { return "old", nil },
			"write_file":     func(context.Context, *agent.Call) (any, error) { written++; return "written", nil },
		},
	}
	agenttest.Run(t, c, func(s *agenttest.System) {
		chat := s.Chat("librarian")
		chat.Say("Renew a.txt.")
		chat.Approve("write_file")
		chat.Say("And b.txt.")
		chat.Deny("write_file", "leave it")
		chat.Want(
			"user: Renew a.txt.",
			`call: read_text_file {"path":"a.txt"}`, `result: read_text_file "old"`,
			`call: write_file {"path":"a.txt"}`, `result: write_file "written"`, "agent: Done.",
			"user: And b.txt.",
			`call: write_file {"path":"b.txt"}`, "failed: write_file …", "agent: Then not.",
		)
	})
	if written != 1 {
		t.Errorf("%d files were written, want 1", written)
	}
}
