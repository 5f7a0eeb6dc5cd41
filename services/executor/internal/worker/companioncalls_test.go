package worker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestCallsOfOneStepForOneCompanionAreAllAnswered(t *testing.T) {
	t.Parallel()
	spawnAnn := func(message string) []string {
		return []string{"companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":"` + message + `"}`}
	}
	spawnBob := []string{"companion__spawnAgent", `{"agent":"scout","name":"bob","initialMessage":"go"}`}
	waitAnn, waitBob := []string{"companion__waitForResult", `{"name":"ann"}`}, []string{"companion__waitForResult", `{"name":"bob"}`}
	both := `{"name":"ann","status":"completed","output":"one+two"}`
	bob := `{"name":"bob","status":"completed","output":"go"}`
	for name, test := range map[string]struct {
		calls [][]string
		want  []string
	}{
		"two messages":         {[][]string{spawnAnn("one"), spawnAnn("two")}, []string{both, both}},
		"a message and a wait": {[][]string{spawnAnn("one"), spawnAnn("two"), waitAnn}, []string{both, both, both}},
		"two waits":            {[][]string{spawnBob, waitBob, waitBob}, []string{`{"name":"bob","status":"delivered"}`, bob, bob}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.addCompanions(callsReply(slices.Concat(test.calls...)...), textReply("Done."))
				p.open()
				p.startRun("s", "demo", "hi")
				if found := p.settle(); found.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
					t.Fatalf("session = %v, want it completed", found)
				}
				equalLines(t, "results", p.outcomesInOrder(), test.want)
			})
		})
	}
}

// outcomesInOrder returns the results and the errors of the calls of the session s, in the order of the calls.
func (p *system) outcomesInOrder() (list []string) {
	results := map[string]string{}
	for _, r := range p.results() {
		if _, twice := results[r.GetToolCallId()]; twice {
			p.t.Errorf("call %s has two results", r.GetToolCallId())
		}
		results[r.GetToolCallId()] = r.GetResult() + r.GetError()
	}
	for _, m := range p.messages("s") {
		for _, part := range m.GetParts() {
			if c := part.GetToolCall(); c != nil {
				list = append(list, results[c.GetToolCallId()])
			}
		}
	}
	return list
}

// Whatever a model asks of its companions in one step, each call gets one result, each companion reads its
// messages in the order of the calls, unless it is terminated before, and nothing waits in the end.
func TestAnyCallsOfOneStepForCompanionsAreAnswered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(draw *rapid.T) {
		var steps [][]string
		for step := range rapid.IntRange(1, 2).Draw(draw, "steps") {
			steps = append(steps, drawCompanionCalls(draw, step))
		}
		synctest.Test(t, func(t *testing.T) { playCompanionCalls(t, steps) })
		if t.Failed() {
			draw.Fatalf("the calls %q", steps)
		}
	})
}

func drawCompanionCalls(draw *rapid.T, step int) (calls []string) {
	agents := map[string]string{"ann": "critic", "bob": "scout", "cat": "asker"}
	for i := range rapid.IntRange(1, 5).Draw(draw, "calls") {
		name := rapid.SampledFrom([]string{"ann", "ann", "bob", "cat"}).Draw(draw, "name")
		message := fmt.Sprint(step, ".", i)
		switch tool := rapid.SampledFrom([]string{"spawnAgent", "spawnAgent", "sendMessage", "waitForResult", "getChildStatus", "listChildren", "terminateChild"}).Draw(draw, "tool"); tool {
		case "spawnAgent":
			calls = append(calls, "companion__spawnAgent", fmt.Sprintf(`{"agent":%q,"name":%q,"initialMessage":%q}`, agents[name], name, message))
		case "sendMessage":
			calls = append(calls, "companion__sendMessage", fmt.Sprintf(`{"name":%q,"message":%q}`, name, message))
		case "listChildren":
			calls = append(calls, "companion__listChildren", `{}`)
		default:
			calls = append(calls, "companion__"+tool, fmt.Sprintf(`{"name":%q}`, name))
		}
	}
	return calls
}

// playCompanionCalls plays a root whose replies have the calls. Its companion cat always asks a client.
func playCompanionCalls(t *testing.T, steps [][]string) {
	p := newSystem(t)
	var replies []func(say func(model.Event) bool)
	for _, calls := range steps {
		replies = append(replies, callsReply(calls...))
	}
	p.addCompanions(append(replies, textReply("Done."))...)
	demo := p.agents["demo"]
	demo.Companions = append(demo.Companions, agent.Companion{Agent: "asker"})
	p.agents["demo"] = demo
	p.agents["asker"] = define("asker", stepReplies(callsReply("ask", `{}`)), agent.Tool{Name: "ask", InputSchema: anyObject, Client: true})
	p.open()
	p.startRun("s", "demo", "hi")
	p.until("the root has ended", func() bool { return hasEnded(p.session("s")) })
	if found := p.session("s"); found.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
		t.Errorf("session = %v, want it completed", found)
		return
	}
	time.Sleep(time.Minute) // messages may still wait
	synctest.Wait()
	sent := map[string]*sentMessages{"ann": {}, "bob": {}, "cat": {}}
	results := p.outcomesInOrder()
	for i, c := range slices.Collect(slices.Chunk(slices.Concat(steps...), 2)) {
		if i >= len(results) || results[i] == "" {
			t.Errorf("call %d, %q, has no result", i, c)
			return
		}
		var in struct{ Name, InitialMessage, Message string }
		must(t, json.Unmarshal([]byte(c[1]), &in))
		var out struct{ Name, Status string }
		isState := json.Unmarshal([]byte(results[i]), &out) == nil && out.Name != ""
		switch text := in.InitialMessage + in.Message; {
		case text != "" && (isState || strings.HasPrefix(results[i], "the sub-agent has failed")):
			sent[in.Name].add(text)
		case out.Status == "terminated":
			sent[in.Name].end()
		}
	}
	for _, child := range p.session("s").GetSubSessions() {
		if child.GetAgentType() == "asker" { // it refuses messages while it waits for its client
			continue
		}
		if found := p.session(child.GetSessionId()); !hasEnded(found) || len(found.GetWaiting()) > 0 {
			t.Errorf("%s is %v at the end, with %d waiting messages", child.GetName(), found.GetSession(), len(found.GetWaiting()))
		}
		if got := p.userTexts(child.GetSessionId()); !sent[child.GetName()].mayBeRead(got) {
			t.Errorf("%s has read %q of %+v", child.GetName(), got, *sent[child.GetName()])
		}
	}
}

// sentMessages are the messages to a companion. The first of them were sent before it was terminated, which may have come before it
// read them.
type sentMessages struct {
	all        []string
	terminated int
}

func (s *sentMessages) add(text string) { s.all = append(s.all, text) }
func (s *sentMessages) end()            { s.terminated = len(s.all) }

// mayBeRead reports whether the companion may have read these messages, in their order.
func (s *sentMessages) mayBeRead(got []string) bool {
	for i, text := range s.all {
		if len(got) > 0 && got[0] == text {
			got = got[1:]
		} else if i >= s.terminated {
			return false
		}
	}
	return len(got) == 0
}
