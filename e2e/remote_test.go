package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// clerkAgents are a clerk who counts, takes a note, asks a client and counts again.
const clerkAgents = `
models:
  scripted:
    script: |
      models:
        clerk:
          chunk: 1 word
          delay: 40ms
          rules:
            - when: {toolResult: ask}
              reply: 'You say {{.LastResult}}. one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen done'
            - when: {toolResult: note_once}
              reply: [{text: 'Noted. What do you say?'}, {call: {name: ask, arguments: {question: now}}}]
            - reply:
                - text: 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen'
                - call: {name: note_once, arguments: {text: from-afar, afterMs: 300}}
        sleeper:
          rules:
            - when: {toolResult: note_once}
              reply: [{text: 'I sleep.'}, {wait: 1h}]
            - reply: [{call: {name: note_once, arguments: {text: asleep}}}]
agents:
  - {name: sleeper, model: scripted/sleeper, tools: [note_once]}
  - name: clerk
    model: scripted/clerk
    tools:
      - note_once
      - {name: ask, client: true, inputSchema: {type: object, properties: {question: {type: string}}}}
`

// remotePair is two deployments: the boss of the first has a sub-agent in the second, behind a proxy.
type remotePair struct {
	here, there *harness.System
	network     *harness.Proxy
}

func startRemotePair(t *testing.T) *remotePair {
	t.Helper()
	there := harness.Start(t, harness.Options{Agents: clerkAgents})
	network := harness.StartProxy(t, there.Gateway.Address)
	here := harness.Start(t, harness.Options{
		Executors: 2, ExecutorEnv: []string{"FAR_KEY=" + harness.Key, "BAD_KEY=not-a-key"},
		Agents: fmt.Sprintf(`
models:
  scripted:
    script: |
      models:
        boss:
          delay: 0s
          rules:
            - when: {toolResult: subagent__far}
              reply: 'They say: {{field .LastResult}}{{field .LastResult "error"}}'
            - reply: [{call: {name: subagent__far, arguments: {message: Go}}}]
agents:
  - name: boss
    model: scripted/boss
    tools: [{subAgent: far, description: Is far away.}]
  - name: far
    remote: {url: %q, agent: clerk, apiKeyEnv: FAR_KEY}
  - name: sleeper
    remote: {url: %q, agent: sleeper, apiKeyEnv: FAR_KEY}
  - name: stranger
    remote: {url: %q, agent: clerk, apiKeyEnv: BAD_KEY}
`, network.URL, network.URL, network.URL),
	})
	return &remotePair{here, there, network}
}

// far returns the session of the sub-agent of a session here, and its session there.
func (p *remotePair) far(t *testing.T, session string) (here, there string) {
	t.Helper()
	harness.WaitFor(t, time.Minute, "the sub-agent", func() (bool, string) {
		for _, m := range p.here.Messages(t, session) {
			for _, part := range m.Parts {
				var child struct{ SessionID string }
				if json.Unmarshal(part.Data, &child) == nil && child.SessionID != "" {
					here = child.SessionID
				}
			}
		}
		if here == "" {
			return false, "no sub-agent"
		}
		return true, ""
	})
	return here, p.sessionThere(t, here)
}

// sessionThere returns the session there of a session here.
func (p *remotePair) sessionThere(t *testing.T, here string) (there string) {
	t.Helper()
	harness.WaitFor(t, time.Minute, "the first step from afar", func() (bool, string) {
		var snapshot struct {
			State struct{ Remote struct{ Session string } }
		}
		text := p.here.Do(t, "GET", "/snapshot?sessionId="+here, nil).Body
		err := json.Unmarshal([]byte(text), &snapshot)
		there = snapshot.State.Remote.Session
		return err == nil && there != "", text
	})
	return there
}

// openCall returns the id of the call of ask that waits in the message of the root.
func (p *remotePair) openCall(t *testing.T, session string) (id string) {
	t.Helper()
	harness.WaitFor(t, time.Minute, "the question from afar", func() (bool, string) {
		messages := p.here.Messages(t, session)
		for _, m := range messages {
			for _, part := range m.Parts {
				if part.Tool() == "ask" && part.State == "input-available" {
					id = part.ToolCallID
				}
			}
		}
		return id != "", harness.Transcript(messages)
	})
	return id
}

const counted = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"

func TestARemoteSubAgentSurvivesTheNetworkAndBothSides(t *testing.T) {
	t.Parallel()
	p := startRemotePair(t)
	disturbances := []func(){
		p.network.CutAll,
		func() { p.there.Gateway.Kill(); p.there.Gateway.Start() },
		func() { p.there.Executors[0].Kill(); p.there.Executors[0].Start() },
		func() {
			p.here.Executors[0].Kill()
			p.here.Executors[1].Kill()
			p.here.Executors[0].Start()
			p.here.Executors[1].Start()
		},
		p.network.CutAll,
	}
	for n, disturb := range disturbances {
		session := fmt.Sprintf("tree-%d", n)
		disturbance := func() {
			time.Sleep(300 * time.Millisecond) // in the middle of the words
			disturb()
		}
		stream := p.here.Chat(t, session, "boss", "Go")
		disturbance()
		p.here.Follow(t, stream, session)
		call := p.openCall(t, session)
		here, there := p.far(t, session)
		if _, err := p.here.Submit(t.Context(), session, harness.ToolAnswer{ToolCallID: call, Result: json.RawMessage(`"yes"`)}); err != nil {
			t.Fatal(err)
		}
		disturbance()
		p.here.WaitStatus(t, session, "completed")
		want := fmt.Sprintf(`"They say: You say \"yes\". %s done"`, counted)
		if got := string(p.here.Status(t, session).Output); got != want {
			t.Errorf("%s: the output is %s, want %s", session, got, want)
		}
		// The copy has the content of the original, and a live reader of the copy had it too.
		original, copied := p.there.Messages(t, there), p.here.Messages(t, here)
		if got, want := harness.Transcript(copied), harness.Transcript(original); !sameBesideTools(got, want) {
			t.Errorf("%s: the copy is\n%s\nwant\n%s", session, got, want)
		}
		native := p.here.Native(t, here, 0)
		native.ReadAll()
		text := ""
		for _, m := range copied {
			if m.Role == "assistant" {
				text += m.Text()
			}
		}
		if !strings.HasSuffix(text, native.Text()) || native.Text() == "" {
			t.Errorf("%s: a replay has the text %q, want the end of %q", session, native.Text(), text)
		}
	}
	if got := len(p.there.Effects.Lines("from-afar")); got != len(disturbances) {
		t.Errorf("the tool there ran %d times, want %d", got, len(disturbances))
	}
}

// sameBesideTools compares transcripts. Tools are dynamic in a copy.
func sameBesideTools(a, b string) bool {
	return strings.ReplaceAll(a, "dynamic-tool", "tool") == strings.ReplaceAll(b, "dynamic-tool", "tool")
}

// The stop is owed while the other side is unreachable, also by the executor that takes the run over.
func TestAStopReachesARemoteAgentThatWasUnreachable(t *testing.T) {
	t.Parallel()
	p := startRemotePair(t)
	p.here.Chat(t, "stopped", "sleeper", "Go").Until("it sleeps", func(m harness.UIMessage) bool { return m.Text() != "" })
	there := p.sessionThere(t, "stopped")
	p.network.Switch("127.0.0.1:1") // nobody listens
	p.network.CutAll()
	p.here.Do(t, "POST", "/chat/stopped/abort", nil)
	for _, e := range p.here.Executors {
		e.Stop(harness.StopLimit) // it leaves the stop to the next owner
		e.Start()
	}
	for _, e := range p.here.Executors {
		e.Kill()
		e.Start()
	}
	time.Sleep(3 * time.Second)
	if got := p.there.Status(t, there).Status; got != "active" {
		t.Fatalf("the session there is %s, and no stop can have reached it", got)
	}
	p.network.Switch(p.there.Gateway.Address)
	p.there.WaitStatus(t, there, "failed")
	p.here.WaitStatus(t, "stopped", "failed")
}

func TestARemoteAgentThatRefusesIsLost(t *testing.T) {
	t.Parallel()
	p := startRemotePair(t)
	if err := p.here.Ask(t.Context(), "refused", "stranger", "Go"); err != nil {
		t.Fatal(err)
	}
	p.here.WaitStatus(t, "refused", "failed")
	if got := p.here.Status(t, "refused").Error; got != "The remote agent was lost." {
		t.Errorf("the error is %q", got)
	}
}
