package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// tool returns a puppet with options.
func (o outside) tool(name string, change func(*agent.Tool)) agent.Tool {
	t := agent.Tool{Name: name, Description: "Does what it is told.", InputSchema: programSchema, Execute: o.act}
	if change != nil {
		change(&t)
	}
	return t
}

// question is the input of the client tools.
type question struct {
	Question string `json:"question" jsonschema:"what the user is asked"`
}

// booking is the input of the tool book.
type booking struct {
	City string `json:"city" jsonschema:"where to"`
	Days int    `json:"days"`
}

// puppet has a tool for each option.
func (o outside) puppet() agent.Agent {
	return agent.Agent{Name: "puppet", Description: "Does what it is told.", SystemPrompt: "You are a puppet.", Tools: []agent.Tool{
		o.tool("act", nil),
		o.tool("act_safe", func(t *agent.Tool) { t.Retry = agent.RetrySafe }),
		o.tool("act_read", func(t *agent.Tool) { t.ReadOnly = true }),
		o.tool("act_quick", func(t *agent.Tool) { t.Timeout = 3 * time.Second }),
		o.tool("act_out", func(t *agent.Tool) {
			t.OutputSchema = json.RawMessage(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}`)
		}),
		o.tool("act_asked", func(t *agent.Tool) { t.Approval = true }),
		o.tool("act_ruled", func(t *agent.Tool) { t.ApproveWhen = needsApproval }),
		o.tool("act_others", func(t *agent.Tool) { t.Approval, t.Approvers = true, agent.Others }),
		o.tool("act_within", func(t *agent.Tool) { t.Approval, t.AnswerWithin = true, time.Second }),
		agent.NewTool("book", "Books a trip.", func(_ context.Context, _ *agent.Call, in booking) (string, error) {
			return fmt.Sprintf("%d days in %s", in.Days, in.City), nil
		}, agent.StrictArguments()),
		agent.ClientTool[question]("ask", "Asks the user."),
		agent.ClientTool[question]("ask_within", "Asks the user.", agent.AnswerWithin(time.Second)),
		agent.SubAgent[agent.Task]("worker", "Does a part."),
	}}
}

// needsApproval asks for amounts above the limit in the state, and for all calls of the user mallory. The amount 13 makes
// it fail.
func needsApproval(_ context.Context, call *agent.Call) (bool, error) {
	var in program
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return true, err
	}
	if in.Amount == 13 {
		return false, errors.New("nobody approves thirteen")
	}
	limit := 100.0
	if n, ok := call.State()["limit"].(json.Number); ok {
		limit, _ = n.Float64()
	}
	return in.Amount > limit || call.UserID == "mallory", nil
}

// worker is the sub-agent of puppet.
func (o outside) worker() agent.Agent {
	return agent.Agent{Name: "worker", Description: "Does a part.", SystemPrompt: "You are a worker.", Tools: []agent.Tool{
		o.tool("act", nil), o.tool("act_asked", func(t *agent.Tool) { t.Approval = true }),
	}}
}

// schemed has a schema for its state.
func (o outside) schemed() agent.Agent {
	return agent.Agent{Name: "schemed", Tools: []agent.Tool{o.tool("act", nil)}, StateSchema: json.RawMessage(`{
		"type": "object",
		"properties": {"count": {"type": "integer", "default": 7}, "items": {"type": "array", "items": {"type": "string"}}},
		"additionalProperties": false
	}`)}
}

// prompter writes its prompt from the state and the user.
func (o outside) prompter() agent.Agent {
	prompt := func(_ context.Context, run *agent.RunView) (string, error) {
		if text, ok := run.State["broken"].(string); ok {
			return "", errors.New(text)
		}
		return fmt.Sprintf("You serve %s in mode %v, step %d.", run.UserID, run.State["mode"], run.Step), nil
	}
	return agent.Agent{Name: "prompter", Tools: []agent.Tool{o.tool("act", nil)}, Prompt: prompt}
}

// stopper ends its run when the state, the reply or a result says so.
func (o outside) stopper() agent.Agent {
	stopWhen := func(_ context.Context, p *agent.Progress) (bool, error) {
		if text, ok := p.State["broken"].(string); ok {
			return false, errors.New(text)
		}
		for _, r := range p.Results {
			if r.Name == "act" && r.Success && string(r.Result) == `"stop"` {
				return true, nil
			}
		}
		return p.State["stop"] == true || strings.Contains(p.Reply.Text(), "stop here") || p.Steps >= 3, nil
	}
	return agent.Agent{Name: "stopper", Tools: []agent.Tool{o.tool("act", nil)}, StopWhen: stopWhen}
}

// advised gets rows of context: of itself, by its state, and of its tool remember.
func (o outside) advised() agent.Agent {
	type note struct {
		Text string `json:"text"`
	}
	remember := agent.NewTool("remember", "Remembers.", func(_ context.Context, call *agent.Call, in note) (string, error) {
		return "done", call.AddContext(agent.ContextRow{Kind: agent.ContextMemory, Text: in.Text})
	})
	advise := func(_ context.Context, h *agent.HookCall, v agent.StepView) ([]agent.ContextRow, error) {
		if text, ok := h.State()["broken"].(string); ok {
			return nil, errors.New(text)
		}
		rows := []agent.ContextRow{{Kind: agent.ContextInstruction, Key: "mode", Text: fmt.Sprintf("Be %v.", h.State()["mode"])}}
		if v.Steps > 0 {
			rows = append(rows, agent.ContextRow{Kind: agent.ContextTools, Key: "hours", Disable: []string{"act"}})
		}
		return rows, nil
	}
	return agent.Agent{Name: "advised", Tools: []agent.Tool{o.tool("act", nil), remember}, StepContext: advise}
}

// answer is the output of finisher and guarded-output.
var answerSchema = json.RawMessage(`{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}`)

// finisher ends its run with an output.
func (o outside) finisher() agent.Agent {
	return agent.Agent{Name: "finisher", OutputSchema: answerSchema, Tools: []agent.Tool{
		o.tool("act", nil), o.tool("finish", func(t *agent.Tool) { t.FinishWith = true }),
	}}
}

// verdict decides about a text: bad is revised, fatal fails, broken breaks the guard.
func verdict(text string) (agent.Verdict, error) {
	switch {
	case strings.HasPrefix(text, "bad"):
		return agent.Verdict{Revise: "Say it better than " + text + "."}, nil
	case strings.HasPrefix(text, "fatal"):
		return agent.Verdict{Fail: "We do not say that."}, nil
	case strings.HasPrefix(text, "broken"):
		return agent.Verdict{}, errors.New("the guard is broken")
	case strings.HasPrefix(text, "swap"):
		return agent.Verdict{Replace: json.RawMessage(`{"answer": "swapped"}`)}, nil
	}
	return agent.Verdict{}, nil
}

// guarded checks its replies.
func (o outside) guarded() agent.Agent {
	return agent.Agent{Name: "guarded", Guard: agent.Guard{OnReply: func(_ context.Context, end agent.Ending) (agent.Verdict, error) {
		return verdict(end.Reply.Text())
	}}}
}

// guardedOutput checks its outputs.
func (o outside) guardedOutput() agent.Agent {
	return agent.Agent{Name: "guarded-output", OutputSchema: answerSchema, Guard: agent.Guard{
		OnOutput: func(_ context.Context, end agent.Ending) (agent.Verdict, error) {
			var output struct{ Answer string }
			if err := json.Unmarshal(end.Output, &output); err != nil {
				return agent.Verdict{}, err
			}
			return verdict(output.Answer)
		},
	}}
}

// compacting summarizes what its budget does not allow.
func (o outside) compacting() agent.Agent {
	return agent.Agent{Name: "compacting", Context: agent.ContextPolicy{
		MaxTokens: 300, KeepTokens: 100, Compaction: agent.CompactSummary,
		Compact: func(_ context.Context, _ *agent.RunView, older []agent.Message) (string, error) {
			return fmt.Sprintf("SUMMARY of %d messages from %s, the first says %.20s", len(older), older[0].Role, older[0].Text()), nil
		},
	}}
}

// limited has the options that are data.
func (o outside) limited() agent.Agent {
	temperature := 0.5
	return agent.Agent{
		Name: "limited", Description: "Has limits.", MaxSteps: 2, MaxOutputTokens: 99, Temperature: &temperature, OnBusy: agent.BusyEnqueue,
		Tools: []agent.Tool{o.tool("act", nil)}, ProviderOptions: map[string]json.RawMessage{"suite": json.RawMessage(`{"seed": 7}`)},
	}
}

// methodical has methods.
func (o outside) methodical() agent.Agent {
	return agent.Agent{Name: "methodical", Methods: []agent.Method{
		{Name: "add", Call: func(_ context.Context, c *agent.MethodCall) (any, error) {
			var a, b float64
			err := errors.Join(c.Arg(0, &a), c.Arg(1, &b))
			return a + b, err
		}},
		{Name: "arguments", Call: func(_ context.Context, c *agent.MethodCall) (any, error) { return c.Args, nil }},
		{Name: "increment", Call: func(ctx context.Context, c *agent.MethodCall) (any, error) {
			var count int64
			err := c.Update(ctx, func(draft agent.State) error {
				was, _ := draft["count"].(json.Number)
				count, _ = was.Int64()
				count++
				draft["count"] = count
				return nil
			})
			return count, err
		}},
		{Name: "countdown", Call: func(ctx context.Context, c *agent.MethodCall) (any, error) {
			var from int
			if err := c.Arg(0, &from); err != nil {
				return nil, err
			}
			for n := from; n > 0; n-- {
				if err := c.Send(ctx, n); err != nil {
					return nil, err
				}
			}
			return "go", nil
		}},
		{Name: "nothing", Call: func(context.Context, *agent.MethodCall) (any, error) { return nil, nil }},
		{Name: "fail", Call: func(context.Context, *agent.MethodCall) (any, error) { return nil, errors.New("the secret is 42") }},
	}}
}

// bare is for a benchmark: it has one tool, which returns at once for an empty program.
func (o outside) bare() agent.Agent {
	return agent.Agent{Name: "bare", Tools: []agent.Tool{o.tool("act", nil)}}
}

// unusual has names that are unusual and valid.
func (o outside) unusual() agent.Agent {
	return agent.Agent{
		Name: unusualName, Description: "Übung 漢字 🙂", SystemPrompt: "Grüße, 漢字 🙂\u2028\"'\\",
		Tools: []agent.Tool{o.tool("a", nil), o.tool(strings.Repeat("long_Name-1", 6)[:64], nil)},
	}
}

// unusualName has characters that URLs, headers and JSON treat in special ways.
const unusualName = "Ünïcode агент/漢字 🙂?#%&\"'\\<x>"
