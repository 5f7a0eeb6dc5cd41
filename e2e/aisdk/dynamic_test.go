package aisdk_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// mcpAgents declares two agents with the tools of an MCP server. One of them needs no approval.
func mcpAgents(url string) string {
	return strings.ReplaceAll(`
mcpServers:
  own: {url: "ADDRESS"}
models:
  scripted:
    script: |
      models:
        caller:
          rules:
            - when: {lastRole: tool}
              reply: 'It said {{.LastResult}}.'
            - reply: [{text: 'Let me add. '}, {call: {name: add, arguments: {a: 2, b: 40}}}]
agents:
  - {name: caller, description: Adds., model: scripted/caller, tools: [{mcp: own}]}
  - {name: asker, description: Asks before it adds., model: scripted/caller, tools: [{mcp: own, approval: always}]}
`, "ADDRESS", url)
}

// dynamicCalls are scenarios with tools unknown before run time.
func dynamicCalls() []scenario {
	dynamic := func(t *testing.T, p *played) {
		p.ready(t)
		p.stored(t)
		for where, messages := range map[string][]harness.UIMessage{"the client": p.ui(), "the conversation": p.world.Messages(t, p.session())} {
			var calls []harness.UIPart
			for _, part := range messages[1].Parts {
				if part.Tool() != "" {
					calls = append(calls, part)
				}
			}
			if len(calls) != 1 || calls[0].Type != "dynamic-tool" || calls[0].ToolName != "add" || !strings.Contains(string(calls[0].Output), "42") {
				t.Errorf("%s has the calls %+v, want one of the dynamic tool add with the sum", where, calls)
			}
		}
		if text := p.Messages[1].Text(); !strings.Contains(text, "It said ") {
			t.Errorf("the answer is %q, want what the model was told", text)
		}
	}
	return []scenario{
		{Name: "a dynamic tool", Agent: "caller", Steps: []step{send("add")}, check: dynamic},
		{
			Name: "a dynamic tool that needs a yes", Agent: "asker", Auto: "approvals", from: 6,
			Steps: []step{send("add"), approve("add")},
			check: func(t *testing.T, p *played) {
				dynamic(t, p)
				p.posted(t, 2)
				p.continued(t, 1)
				p.decided(t, "add", true, "")
			},
		},
		{
			Name: "a dynamic tool that needs a yes of a page that was loaded again", Agent: "asker", Auto: "approvals", from: 6,
			Steps: []step{send("add"), reload(), approve("add")}, check: dynamic,
		},
	}
}

func TestToolsOfMCPServersAreDynamic(t *testing.T) {
	t.Parallel()
	harness.InstallNPM(t, ".")
	address := harness.FreeAddress(t)
	harness.StartProgram(t, "mcpserver", harness.Program(t, "e2e/executor/mcpserver"), address, "MCP_LISTEN="+address)
	w := &world{System: harness.Start(t, harness.Options{
		Agents: mcpAgents("http://" + address), ExecutorEnv: []string{"HOLDFAST_EXECUTOR_TOOL_HOSTS=" + address},
	})}
	var mu sync.Mutex
	var recorded []recording
	t.Run("each", func(t *testing.T) {
		for _, c := range clients {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				var all []scenario
				for _, s := range dynamicCalls() {
					if s.from <= c.Major {
						all = append(all, s)
					}
				}
				results := w.play(t, c, all)
				for _, s := range all {
					p := results[s.Name]
					t.Run(s.Name, func(t *testing.T) { judge(t, s, p) })
					mu.Lock()
					recorded = append(recorded, p.recordings()...)
					mu.Unlock()
				}
			})
		}
	})
	t.Run("every recorded chunk fits the schemas of the packages", func(t *testing.T) { checkSchemas(t, recorded, 10) })
}
