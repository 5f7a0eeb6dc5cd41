package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor"
)

// agentServer serves agents under the requested names.
type agentServer struct {
	registry *executor.Registry
	ledger   string
}

// serve registers an agent under a name like text@NAME, unless it is registered, and its sub-agents.
func (c *agentServer) serve(name string) error {
	kind, _, _ := strings.Cut(name, "@")
	for _, a := range c.agents() {
		if a.Name != kind {
			continue
		}
		a.Name = name
		for _, t := range a.Tools {
			if t.SubAgent == "" {
				continue
			}
			if err := c.serve(t.SubAgent); err != nil {
				return err
			}
		}
		if err := c.registry.Register(a); fault.ReasonOf(err) != "AGENT_EXISTS" {
			return err
		}
		return nil
	}
	return fault.New(fault.NotFound, "AGENT_NOT_FOUND", "there is no agent %q", kind)
}

// script has the replies of the agents. A reply depends on the progress of the conversation, not on the outcomes
// of its calls. So conversations differ only in their outcomes.
const script = `
models:
  text:
    rules:
      - reply: [{text: 'one two three four five six seven eight', chunk: 1 word, delay: 10ms}]
  safe:
    rules:
      - when: {step: 2}
        reply: 'It is done.'
      - reply: [{call: {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}}]
  never:
    rules:
      - when: {step: 2}
        reply: [{text: 'It is done.'}, {usage: {prompt: 20, completion: 3}}]
      - reply: [{call: {name: record_never, arguments: {label: '{{.LastUser}} never'}}}]
  briefed:
    rules:
      - when: {step: 2}
        reply: 'It is done.'
      - reply: [{call: {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}}]
  parallel:
    rules:
      - when: {step: 3}
        reply: [{text: 'All is done.'}, {usage: {prompt: 30, completion: 3, reasoning: 2}}]
      - when: {step: 2}
        reply: [{call: {name: remember, arguments: {item: second}}}, {usage: {prompt: 20, completion: 2, cached: 10}}]
      - reply:
          - text: 'Let me do three.'
          - calls:
              - {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}
              - {name: record_never, arguments: {label: '{{.LastUser}} never'}}
              - {name: remember, arguments: {item: first}}
  finish:
    rules:
      - reply:
          - call: {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}
          - call: {name: __finish__, arguments: {answer: 'yes'}}
  cut:
    rules:
      - when: {step: 2}
        reply: [{text: 'one two three four', chunk: 1 word, delay: 10ms}, {usage: {prompt: 20, completion: 4, reasoning: 1}}, {finish: length}]
      - reply: [{call: {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}}, {usage: {prompt: 10, completion: 2}}]
  stopped:
    rules:
      - reply: [{text: 'one two three four', chunk: 1 word, delay: 10ms}, {wait: 10m}, {text: ' five'}]
  draining:
    rules:
      - reply: [{text: 'one two three four', chunk: 1 word, delay: 10ms}, {wait: 3s}, {text: ' five'}]
  held:
    rules:
      - when: {step: 2}
        reply: 'It is done.'
      - reply:
          - calls:
              - {name: remember, arguments: {item: first}}
              - {name: record_safe, arguments: {label: '{{.LastUser}} safe', holdMs: 60000}}
  client:
    rules:
      - when: {step: 2}
        reply: [{text: 'The answer is {{.Results.ask}}.'}, {usage: {prompt: 20, completion: 4}}]
      - reply:
          - call: {name: record_never, arguments: {label: '{{.LastUser}} never'}}
          - call: {name: ask, arguments: {question: 'How much?'}}
  approval:
    rules:
      - when: {step: 2}
        reply: [{text: 'It is done.'}, {usage: {prompt: 20, completion: 3}}]
      - reply:
          - calls:
              - {name: pay, arguments: {label: '{{.LastUser}} never'}}
              - {name: pay_again, arguments: {label: '{{.LastUser}} refused'}}
  failing:
    rules:
      - reply: [{text: 'This goes ', chunk: whole}, {error: {code: provider_denied, message: 'not today'}}]
  mute:
    rules:
      - reply: [{error: {code: provider_denied, message: 'not today'}}]
  looking:
    rules:
      - when: {step: 3}
        reply: [{text: 'That is all.'}, {usage: {prompt: 30, completion: 3}}]
      - when: {step: 2}
        reply: [{call: {name: look_up, arguments: {label: '{{.LastUser}} look 3'}}}, {usage: {prompt: 20, completion: 2}}]
      - reply:
          - text: 'Let me see.'
          - calls:
              - {name: look_up, arguments: {label: '{{.LastUser}} look 1'}}
              - {name: look_up, arguments: {label: '{{.LastUser}} look 2'}}
              - {name: no_such_tool, arguments: {}}
          - usage: {prompt: 10, completion: 5}
  recalling:
    rules:
      - when: {step: 2}
        reply: 'That is all.'
      - reply:
          - calls:
              - {name: recall, arguments: {item: first}}
              - {name: look_up, arguments: {label: '{{.LastUser}} look'}}
          - usage: {prompt: 10, completion: 5}
  mixed:
    rules:
      - when: {step: 3}
        reply: [{text: 'All is done.'}, {usage: {prompt: 30, completion: 3}}]
      - when: {step: 2}
        reply: [{call: {name: record_never, arguments: {label: '{{.LastUser}} never'}}}, {usage: {prompt: 20, completion: 2}}]
      - reply:
          - calls:
              - {name: look_up, arguments: {label: '{{.LastUser}} look', holdMs: 100}}
              - {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}
              - {name: recall, arguments: {item: first}}
          - usage: {prompt: 10, completion: 5}
  looking_client:
    rules:
      - when: {step: 2}
        reply: 'The answer is {{.Results.ask}}.'
      - reply:
          - call: {name: look_up, arguments: {label: '{{.LastUser}} look'}}
          - call: {name: ask, arguments: {question: 'How much?'}}
  looking_held:
    rules:
      - reply:
          - calls:
              - {name: look_up, arguments: {label: '{{.LastUser}} look'}}
              - {name: look_up, arguments: {label: '{{.LastUser}} held', holdMs: 60000}}
  tree:
    rules:
      - when: {step: 2}
        reply: 'All is done: {{join (slice .NewResults 0 4) " "}}'
      - reply:
          - text: 'I have four.'
          - calls:
              - {name: subagent__branch, arguments: {message: '{{.LastUser}} paid 1'}}
              - {name: subagent__branch, arguments: {message: '{{.LastUser}} free 2'}}
              - {name: subagent__branch, arguments: {message: '{{.LastUser}} paid 3'}}
              - {name: subagent__branch, arguments: {message: '{{.LastUser}} free 4'}}
              - {name: record_never, arguments: {label: '{{.LastUser}} never'}}
  branch:
    rules:
      - when: {step: 3}
        reply: 'branch {{.LastUser}}'
      - when: {step: 2}
        reply: [{call: {name: record_never, arguments: {label: '{{.LastUser}} branch'}}}]
      - reply: [{call: {name: subagent__twig, arguments: {message: '{{.LastUser}}'}}}]
  twig:
    rules:
      - when: {step: 2}
        reply: 'twig {{.LastUser}}'
      - reply: [{call: {name: subagent__leaf, arguments: {message: '{{.LastUser}}'}}}]
  leaf:
    rules:
      - when: {step: 3}
        reply: 'leaf {{.LastUser}}'
      - when: {step: 2, lastUser: paid}
        reply: [{call: {name: pay, arguments: {label: '{{.LastUser}} leaf'}}}]
      - when: {step: 2}
        reply: [{call: {name: record_never, arguments: {label: '{{.LastUser}} leaf'}}}]
      - reply: [{call: {name: record_safe, arguments: {label: '{{.LastUser}} safe'}}}]
  ledger:
    rules:
      - when: {step: 5}
        reply: 'All is done.'
      - when: {step: 4}
        reply: [{call: {name: record_safe, arguments: {label: '{{.LastUser}} safe 4'}}}, {call: {name: remember, arguments: {item: fourth}}}]
      - when: {step: 3}
        reply: [{call: {name: record_never, arguments: {label: '{{.LastUser}} never 3'}}}]
      - when: {step: 2}
        reply: [{call: {name: look_up, arguments: {label: '{{.LastUser}} look 2'}}}, {call: {name: look_up, arguments: {label: '{{.LastUser}} look 3'}}}]
      - reply:
          - text: 'Let me do four.'
          - calls:
              - {name: record_safe, arguments: {label: '{{.LastUser}} safe 1'}}
              - {name: record_never, arguments: {label: '{{.LastUser}} never 1'}}
              - {name: look_up, arguments: {label: '{{.LastUser}} look 1'}}
              - {name: remember, arguments: {item: first}}
`

// agents returns the agents. Each has the name of its model.
func (c *agentServer) agents() []agent.Agent {
	safe, never := c.record("record_safe", agent.RetrySafe), c.record("record_never", agent.RetryNever)
	pay, payAgain := c.record("pay", agent.RetryNever), c.record("pay_again", agent.RetryNever)
	pay.Approval, payAgain.Approval = true, true
	// The ledger also counts look-ups, but no test depends on their number.
	lookUp, recall, remember := c.record("look_up", agent.RetryNever), remember("recall"), remember("remember")
	lookUp.ReadOnly, recall.ReadOnly = true, true
	ask := agent.Tool{
		Name: "ask", Description: "Asks the user.", Client: true,
		InputSchema: json.RawMessage(`{"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}`),
	}
	agents := []agent.Agent{
		{Name: "text"},
		{Name: "safe", Tools: []agent.Tool{safe}},
		{Name: "never", Tools: []agent.Tool{never}},
		{Name: "briefed", Tools: []agent.Tool{safe}, StepContext: brief},
		{Name: "parallel", Tools: []agent.Tool{safe, never, remember}, Hooks: agent.Hooks{BeforeModel: noteStep}},
		{Name: "finish", Tools: []agent.Tool{safe}, OutputSchema: json.RawMessage(
			`{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false}`)},
		{Name: "cut", Tools: []agent.Tool{safe}},
		{Name: "stopped"},
		{Name: "draining"},
		{Name: "held", Tools: []agent.Tool{safe, remember}, Hooks: agent.Hooks{BeforeModel: noteStep}},
		{Name: "client", Tools: []agent.Tool{never, ask}},
		{Name: "approval", Tools: []agent.Tool{pay, payAgain}},
		{Name: "failing"},
		{Name: "mute"},
		{Name: "looking", Tools: []agent.Tool{lookUp}, Hooks: agent.Hooks{BeforeModel: noteStep}},
		{Name: "recalling", Tools: []agent.Tool{lookUp, recall}, Hooks: agent.Hooks{BeforeModel: noteStep}},
		{Name: "mixed", Tools: []agent.Tool{lookUp, recall, safe, never}, Hooks: agent.Hooks{BeforeModel: noteStep}},
		{Name: "looking_client", Tools: []agent.Tool{lookUp, ask}},
		{Name: "looking_held", Tools: []agent.Tool{lookUp}},
		{Name: "tree", Tools: []agent.Tool{subAgent("branch"), never}},
		{Name: "branch", Tools: []agent.Tool{subAgent("twig"), never}},
		{Name: "twig", Tools: []agent.Tool{subAgent("leaf")}},
		{Name: "leaf", Tools: []agent.Tool{safe, never, pay}},
		{Name: "ledger", Tools: []agent.Tool{safe, never, lookUp, remember}},
	}
	for i := range agents {
		agents[i].Model = "scripted/" + agents[i].Name
	}
	return agents
}

// brief gives the model a new row of context before each of its replies.
func brief(_ context.Context, _ *agent.HookCall, v agent.StepView) ([]agent.ContextRow, error) {
	return []agent.ContextRow{{Kind: agent.ContextNotice, Key: "replies", Text: fmt.Sprintf("You have replied %d times.", v.Steps)}}, nil
}

func subAgent(name string) agent.Tool { return agent.SubAgent[agent.Task](name, "Does a part.") }

// record returns a tool with an effect on the ledger.
func (c *agentServer) record(name string, retry agent.Retry) agent.Tool {
	return agent.Tool{
		Name: name, Description: "Has an effect on the ledger.", Retry: retry, Timeout: 2 * time.Minute,
		InputSchema: json.RawMessage(`{
			"type": "object", "properties": {"label": {"type": "string"}, "holdMs": {"type": "integer"}}, "required": ["label"]
		}`),
		Execute: func(ctx context.Context, call *agent.Call) (any, error) {
			var input struct {
				Label  string `json:"label"`
				HoldMs int64  `json:"holdMs"`
			}
			if err := json.Unmarshal(call.Input, &input); err != nil {
				return nil, err
			}
			return c.post(ctx, map[string]any{"key": call.IdempotencyKey, "label": input.Label, "holdMs": input.HoldMs})
		},
	}
}

func (c *agentServer) post(ctx context.Context, entry map[string]any) (any, error) {
	body, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.ledger, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the ledger says %s, %w", answer.Status, err)
	}
	return json.RawMessage(text), nil
}

// remember returns a tool that appends to the custom state.
func remember(name string) agent.Tool {
	return agent.Tool{
		Name: name, Description: "Keeps something in mind.", Retry: agent.RetrySafe,
		InputSchema: json.RawMessage(`{"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}`),
		Execute: func(_ context.Context, call *agent.Call) (any, error) {
			var input struct {
				Item string `json:"item"`
			}
			if err := json.Unmarshal(call.Input, &input); err != nil {
				return nil, err
			}
			return "kept", call.Update(func(draft agent.State) error {
				items, _ := draft["items"].([]any)
				draft["items"] = append(items, input.Item)
				draft["last"] = input.Item
				return nil
			})
		},
	}
}

// noteStep appends the number of the step to the custom state at each model call.
func noteStep(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
	_ = h.Update(func(draft agent.State) error { // a missing note fails the test
		steps, _ := draft["asked"].([]any)
		draft["asked"] = append(steps, h.Step)
		return nil
	})
}
