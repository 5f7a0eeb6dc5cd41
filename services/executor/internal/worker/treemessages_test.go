//go:build !race

package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// busyNode is a session of a random tree whose agents take their time.
type busyNode struct {
	Seconds  int        `json:"seconds"`
	Children []busyNode `json:"children,omitempty"`
	Far      int        `json:"far,omitempty"`     // sub-agents of another Holdfast
	Critics  []string   `json:"critics,omitempty"` // names of companions to consult at once; some are equal
	Asks     []string   `json:"asks,omitempty"`    // calls of a client tool
	Pays     []string   `json:"pays,omitempty"`    // calls that need an approval
}

func drawBusyNode(t *rapid.T, name string, depth int) busyNode {
	n := busyNode{Seconds: rapid.IntRange(0, 4).Draw(t, name+" takes"), Far: rapid.SampledFrom([]int{0, 1}).Draw(t, name+" far")}
	for range rapid.IntRange(0, 4).Draw(t, name+" critics") / 2 {
		n.Critics = append(n.Critics, rapid.SampledFrom([]string{"ann", "ann", "bob"}).Draw(t, name+" critic"))
	}
	if rapid.IntRange(0, 3).Draw(t, name+" asks") == 0 {
		n.Asks = []string{name + ".ask"}
	}
	if rapid.IntRange(0, 3).Draw(t, name+" pays") == 0 {
		n.Pays = []string{name + ".pay"}
	}
	if depth < 2 {
		for i := range rapid.SampledFrom([]int{0, 1, 2}).Draw(t, name+" children") {
			n.Children = append(n.Children, drawBusyNode(t, fmt.Sprint(name, i), depth+1))
		}
	}
	return n
}

func (n busyNode) calls() []string {
	var calls []string
	add := func(tool string, input map[string]any) {
		text, _ := json.Marshal(input) // texts always marshal
		calls = append(calls, tool, string(text))
	}
	for _, child := range n.Children {
		text, _ := json.Marshal(child) // as above
		add("subagent__node", map[string]any{"message": string(text)})
	}
	for range n.Far {
		add("subagent__far", map[string]any{"message": "go"})
	}
	for _, name := range n.Critics {
		add("companion__spawnAgent", map[string]any{"agent": "critic", "name": name, "initialMessage": "look"})
	}
	for _, name := range n.Asks {
		add("ask", map[string]any{"name": name})
	}
	for _, name := range n.Pays {
		add("pay", map[string]any{"name": name})
	}
	return calls
}

// playBusyNode is the model of all nodes: it makes the calls of the newest node in the conversation, once, and answers
// other messages with a text.
func playBusyNode(ctx context.Context, r model.Request, say func(model.Event) bool) error {
	last := slices.IndexFunc(r.Messages, func(m agent.Message) bool { return m.Role == agent.RoleUser })
	for i, m := range r.Messages {
		if m.Role == agent.RoleUser {
			last = i
		}
	}
	var n busyNode
	isNode := json.Unmarshal([]byte(r.Messages[last].Text()), &n) == nil
	called := slices.ContainsFunc(r.Messages[last:], func(m agent.Message) bool { return len(m.Calls()) > 0 })
	pause(ctx, time.Duration(n.Seconds)*time.Second)
	if calls := n.calls(); isNode && !called && len(calls) > 0 {
		sendCalls(say, calls...)
		return nil
	}
	sendText(say, "Done.")
	return nil
}

// treeAct is what a client does to a tree, some time after the act before, or at the same moment as another client.
type treeAct struct {
	after    time.Duration
	together bool
	kind     string
	policy   statev1.BusyPolicy
	pick     int
}

var (
	treeActKinds = []string{"send", "send", "send", "start", "answer", "answer", "interrupt child", "interrupt child", "interrupt far", "interrupt far", "interrupt root", "resume", "regenerate"}
	busyPolicies = []statev1.BusyPolicy{statev1.BusyPolicy_BUSY_POLICY_REJECT, statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, statev1.BusyPolicy_BUSY_POLICY_INTERRUPT, statev1.BusyPolicy_BUSY_POLICY_ROLLBACK}
)

func drawTreeActs(t *rapid.T) (acts []treeAct) {
	for range rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6}).Draw(t, "acts") {
		acts = append(acts, treeAct{
			after:    time.Duration(rapid.IntRange(0, 3000).Draw(t, "after")) * time.Millisecond,
			together: rapid.IntRange(0, 2).Draw(t, "together") == 0,
			kind:     rapid.SampledFrom(treeActKinds).Draw(t, "act"),
			policy:   rapid.SampledFrom(busyPolicies).Draw(t, "policy"),
			pick:     rapid.IntRange(0, 1000).Draw(t, "pick"),
		})
	}
	return acts
}

// Under the race detector, other tests play trees: this one would take minutes.
//
// Whatever two clients send to a tree, answer, interrupt and resume: each accepted run ends, each call of a completed
// session has one result, accepted messages keep their order, and in the end nothing works or waits. No claim and no commit is lost.
func TestWhateverClientsDoToATreeItComesToRest(t *testing.T) {
	t.Parallel()
	var met meetings
	rapid.Check(t, func(draw *rapid.T) {
		root, acts := drawBusyNode(draw, "r", 0), drawTreeActs(draw)
		synctest.Test(t, func(t *testing.T) { playBusyTree(t, root, acts, &met) })
		if t.Failed() {
			draw.Fatalf("the tree %+v, acts %+v", root, acts)
		}
	})
	met.verify(t)
}

// meetings counts the situations that the random trees are for.
type meetings struct {
	mu    sync.Mutex
	trees int
	of    map[string]int
}

func (m *meetings) add(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]int{}
	}
	m.of[what]++
}

// The situations, and messages to a busy tree by policy.
const (
	metTwoClients    = "acts of two clients at the same moment"
	metEqual         = "calls of one step to one companion"
	metChildStopped  = "interrupts of a child at work"
	metRemoteStopped = "interrupts of a remote agent at work"
)

func metMessage(policy statev1.BusyPolicy) string {
	return fmt.Sprint("messages to a busy tree, ", policy)
}

// manyTrees is how many trees meet each situation several times. The usual 100 may miss one.
const manyTrees = 1000

// verify logs the counts.
func (m *meetings) verify(t *testing.T) {
	t.Helper()
	situations := []string{metTwoClients, metEqual, metChildStopped, metRemoteStopped}
	for _, policy := range busyPolicies {
		situations = append(situations, metMessage(policy))
	}
	t.Logf("%d trees", m.trees)
	for _, what := range situations {
		t.Logf("%d %s", m.of[what], what)
		if m.trees >= manyTrees && m.of[what] == 0 {
			t.Errorf("no tree of %d has met: %s", m.trees, what)
		}
	}
}

// addBusyNodes adds the agents of the nodes.
func (p *system) addBusyNodes() {
	far, _ := p.remoteAgent("far", func(s *farSession) {
		for range 3 {
			select {
			case <-s.stopped:
				s.commit()
				s.end("interrupted")
				return
			case <-time.After(time.Second):
				s.say("word ")
			}
		}
		s.commit()
		s.end("completed")
	})
	p.agents["far"] = far
	p.agents["critic"] = define("critic", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
		pause(ctx, time.Second)
		sendText(say, "Good.")
		return nil
	}))
	pay := agent.Tool{Name: "pay", InputSchema: anyObject, Approval: true, Execute: func(context.Context, *agent.Call) (any, error) { return "paid", nil }}
	node := define("node", modelFunc(playBusyNode), agent.SubAgent[agent.Task]("node", "Does a part."), agent.SubAgent[agent.Task]("far", "Does a part elsewhere."), pay,
		agent.Tool{Name: "ask", InputSchema: anyObject, Client: true})
	node.Companions = []agent.Companion{{Agent: "critic"}}
	p.agents["node"] = node
}

func playBusyTree(t *testing.T, root busyNode, acts []treeAct, met *meetings) {
	t.Cleanup(func() {
		if t.Failed() { // a failed bubble ends before rapid can report
			t.Logf("the tree %+v, acts %+v", root, acts)
		}
	})
	p := newSystem(t)
	p.logTo = lossless{t}
	p.addBusyNodes()
	p.open()
	p.open()
	text, err := json.Marshal(root)
	must(t, err)
	p.startRun("s", "node", string(text))
	accepted := [][]string{{string(text)}}
	for i := 0; i < len(acts); {
		time.Sleep(acts[i].after)
		clients := 1
		if i+1 < len(acts) && acts[i].together && acts[i].kind != "regenerate" && acts[i+1].kind != "regenerate" { // it would remove the other's message
			clients = 2
			met.add(metTwoClients)
		}
		accepted = append(accepted, p.actAtOnce(acts[i:i+clients], i, met))
		i += clients
	}
	p.bringToRest()
	time.Sleep(time.Minute) // what is stopped ends
	synctest.Wait()
	for _, s := range p.tree("s") {
		p.checkAtRest(s)
		p.countEqualCompanions(s, met)
	}
	verifyOrder(t, p.userTexts("s"), accepted)
	met.trees++
}

// actAtOnce lets one client for each act do it, and returns the messages that were accepted.
func (p *system) actAtOnce(acts []treeAct, first int, met *meetings) []string {
	accepted := make([]string, len(acts))
	var clients sync.WaitGroup
	for i, act := range acts {
		clients.Go(func() {
			if message := fmt.Sprint("message ", first+i); p.act(act, message, met) {
				accepted[i] = message
			}
		})
	}
	clients.Wait()
	return slices.DeleteFunc(accepted, func(text string) bool { return text == "" })
}

// verifyOrder verifies that the messages are the accepted ones, in their order. Those of one moment have any order.
func verifyOrder(t *testing.T, got []string, accepted [][]string) {
	t.Helper()
	rest := got
	for _, moment := range accepted {
		n := min(len(moment), len(rest))
		together := slices.Sorted(slices.Values(rest[:n]))
		if !slices.Equal(together, slices.Sorted(slices.Values(moment))) {
			t.Errorf("the messages are %q, want %q", got, accepted)
			return
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		t.Errorf("the messages are %q, want %q", got, accepted)
	}
}

// countEqualCompanions counts the steps of the session with several calls to one companion.
func (p *system) countEqualCompanions(s *statev1.GetSessionResponse, met *meetings) {
	for _, m := range p.messages(s.GetSession().GetSessionId()) {
		names := map[string]int{}
		for _, part := range m.GetParts() {
			var in struct{ Name string }
			if c := part.GetToolCall(); c.GetToolName() == "companion__spawnAgent" && json.Unmarshal([]byte(c.GetArguments()), &in) == nil {
				names[in.Name]++
			}
		}
		for _, n := range names {
			if n > 1 {
				met.add(metEqual)
			}
		}
	}
}

// lossless writes to the output of the test, which fails if the log tells of lost claims or commits: nothing is lost here.
type lossless struct{ t *testing.T }

func (l lossless) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("lost")) {
		l.t.Errorf("the log has %s", line)
	}
	return output(l.t).Write(line)
}

// act reports whether the message was accepted.
func (p *system) act(act treeAct, message string, met *meetings) bool {
	tree := p.tree("s")
	switch act.kind {
	case "send", "start":
		if !hasEnded(tree[0]) && len(openClientCalls(tree[0])) == 0 {
			met.add(metMessage(act.policy))
		}
		return p.tryPost(&statev1.StartRunRequest{SessionId: "s", AgentType: "node", Messages: userMessages(message), OnBusy: act.policy, AbandonCalls: act.kind == "send"})
	case "regenerate":
		messages := p.messages("s")
		at := slices.IndexFunc(messages, func(m *eventv1.Message) bool { return m.GetRole() == eventv1.Role_ROLE_USER })
		newest := messages[at]
		for _, m := range messages {
			if m.GetRole() == eventv1.Role_ROLE_USER {
				newest = m
			}
		}
		if len(tree[0].GetWaiting()) == 0 {
			p.tryPost(&statev1.StartRunRequest{SessionId: "s", OnBusy: act.policy, AbandonCalls: true, Intent: &statev1.StartRunRequest_Regenerate{Regenerate: &statev1.Regenerate{MessageId: newest.GetId()}}})
		}
	case "answer":
		if open := openClientCalls(tree[0]); len(open) > 0 {
			p.answerAsTwo(open[act.pick%len(open)])
		}
	case "resume":
		p.tryPost(&statev1.StartRunRequest{SessionId: "s", Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}})
	case "interrupt root":
		p.stopSession("s")
	case "interrupt child":
		p.interruptOne(tree[1:], act.pick, metChildStopped, met)
	case "interrupt far":
		far := slices.DeleteFunc(tree[1:], func(s *statev1.GetSessionResponse) bool { return s.GetSession().GetAgentType() != "far" })
		p.interruptOne(far, act.pick, metRemoteStopped, met)
	}
	return false
}

// interruptOne interrupts one of the sessions, one at work if there is any.
func (p *system) interruptOne(sessions []*statev1.GetSessionResponse, pick int, what string, met *meetings) {
	p.t.Helper()
	if atWork := slices.DeleteFunc(slices.Clone(sessions), hasEnded); len(atWork) > 0 {
		sessions = atWork
		met.add(what)
	}
	if len(sessions) > 0 {
		p.stopSession(sessions[pick%len(sessions)].GetSession().GetSessionId())
	}
}

// tryPost reports whether the request was accepted. A refusal has a reason.
func (p *system) tryPost(r *statev1.StartRunRequest) bool {
	p.t.Helper()
	r.Tenant = tenant
	_, err := statev1.NewRunServiceClient(p.stateAPI).StartRun(p.context(), r)
	switch fault.ReasonOf(err) {
	case "SESSION_BUSY", "SESSION_SUSPENDED", "SESSION_COMPLETED", "RUN_CANCELLED":
		return false
	}
	must(p.t, err)
	return true
}

func (p *system) stopSession(id string) {
	p.t.Helper()
	_, err := statev1.NewRunServiceClient(p.stateAPI).RequestStop(p.context(), &statev1.RequestStopRequest{Tenant: tenant, SessionId: id, Kind: interrupt})
	must(p.t, err)
}

// bringToRest answers what waits for people, and resumes the root, until it has ended otherwise.
func (p *system) bringToRest() {
	p.t.Helper()
	for range 50 {
		var found *statev1.GetSessionResponse
		p.until("the tree waits for a client or ends", func() bool {
			found = p.session("s")
			return hasEnded(found) || len(openClientCalls(found)) > 0
		})
		switch open := openClientCalls(found); {
		case found.GetSession().GetStatus() == statev1.SessionStatus_SESSION_STATUS_INTERRUPTED:
			p.resume("s")
		case hasEnded(found):
			return
		default:
			p.answerAsTwo(open[0])
		}
		synctest.Wait()
	}
	p.t.Error("the tree does not end")
}

// checkAtRest checks a session of a tree that has ended.
func (p *system) checkAtRest(s *statev1.GetSessionResponse) {
	p.t.Helper()
	id := s.GetSession().GetSessionId()
	if !hasEnded(s) || len(s.GetWaiting()) > 0 {
		p.t.Errorf("session %s of an ended tree is %v, with %d waiting runs", id, s.GetSession(), len(s.GetWaiting()))
	}
	listed, err := statev1.NewRunServiceClient(p.stateAPI).ListRuns(p.context(), &statev1.ListRunsRequest{Tenant: tenant, SessionId: id, Limit: 200})
	must(p.t, err)
	for _, r := range listed.GetRuns() {
		if r.GetCompletedAt() == 0 {
			p.t.Errorf("the run %v has not ended", r)
		}
	}
	results, calls := map[string]int{}, map[string]bool{}
	for _, m := range p.messages(id) {
		for _, part := range m.GetParts() {
			if r := part.GetToolResult(); r != nil {
				results[r.GetToolCallId()]++
			}
			if c := part.GetToolCall(); c != nil {
				calls[c.GetToolCallId()] = true
			}
		}
	}
	completed := s.GetSession().GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED
	for call := range calls {
		if n := results[call]; n > 1 || n == 0 && completed {
			p.t.Errorf("the call %s of %s has %d results", call, id, n)
		}
	}
	for call := range results {
		if !calls[call] {
			p.t.Errorf("session %s has a result of the unknown call %s", id, call)
		}
	}
}
