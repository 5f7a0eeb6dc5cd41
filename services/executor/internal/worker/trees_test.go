//go:build !race

package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// node is a session of a random tree: its first reply has these calls, and its second one, if it does not fail,
// describes their results.
type node struct {
	Name     string   `json:"name"`
	Children []node   `json:"children,omitempty"` // sub-agents
	Asks     []string `json:"asks,omitempty"`     // calls of a client tool
	Pays     []string `json:"pays,omitempty"`     // calls that need an approval
	Fails    bool     `json:"fails,omitempty"`
}

func drawNode(t *rapid.T, name string, depth int) node {
	names := func(what string) (list []string) {
		for i := range rapid.IntRange(0, 1).Draw(t, what+" of "+name) {
			list = append(list, fmt.Sprint(name, ".", what, i))
		}
		return list
	}
	n := node{Name: name, Asks: names("ask"), Pays: names("pay"), Fails: rapid.IntRange(0, 9).Draw(t, name+" fails") == 0}
	if depth < 3 {
		for i := range rapid.IntRange(0, 3-depth).Draw(t, "children of "+name) {
			n.Children = append(n.Children, drawNode(t, fmt.Sprint(name, i), depth+1))
		}
	}
	return n
}

// isApproved decides about a call that needs an approval.
func isApproved(name string) bool { return len(name)%2 == 0 }

const failedCall = "failed"

// want returns the output of the node, or failedCall.
func (n node) want() string {
	var results []string
	for _, child := range n.Children {
		results = append(results, child.want())
	}
	for _, name := range n.Asks {
		results = append(results, "answer to "+name)
	}
	for _, name := range n.Pays {
		if isApproved(name) {
			results = append(results, "paid "+name)
		} else {
			results = append(results, failedCall)
		}
	}
	if n.Fails {
		return failedCall
	}
	return n.Name + "(" + strings.Join(results, ", ") + ")"
}

// calls returns the calls of the node for callsReply.
func (n node) calls() []string {
	var calls []string
	add := func(tool, argument string, value any) {
		text, _ := json.Marshal(map[string]any{argument: value}) // texts always marshal
		calls = append(calls, tool, string(text))
	}
	for _, child := range n.Children {
		text, _ := json.Marshal(child) // as above
		add("subagent__node", "message", string(text))
	}
	for _, name := range n.Asks {
		add("ask", "name", name)
	}
	for _, name := range n.Pays {
		add("pay", "name", name)
	}
	return calls
}

// playNode is the model of all nodes. The first message is the node.
func playNode(_ context.Context, r model.Request, say func(model.Event) bool) error {
	var n node
	if err := json.Unmarshal([]byte(r.Messages[0].Text()), &n); err != nil {
		return err
	}
	if calls := n.calls(); len(calls) > 0 && !endsWithResults(r) {
		sendCalls(say, calls...)
		return nil
	}
	if n.Fails {
		return &model.Error{Code: model.CodeDenied, Message: "not today"}
	}
	results := map[string]string{}
	for _, m := range r.Messages {
		for _, result := range m.Results() {
			value := failedCall
			if result.Success {
				if err := json.Unmarshal(result.Result, &value); err != nil {
					return err
				}
			}
			results[result.CallID] = value
		}
	}
	var list []string
	for _, m := range r.Messages {
		for _, call := range m.Calls() {
			list = append(list, results[call.ID])
		}
	}
	sendText(say, n.Name+"("+strings.Join(list, ", ")+")")
	return nil
}

// addNodes adds the agent of all nodes.
func (p *system) addNodes() {
	pay := agent.Tool{Name: "pay", InputSchema: anyObject, Approval: true}
	pay.Execute = func(_ context.Context, c *agent.Call) (any, error) {
		var in struct{ Name string }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			return nil, err
		}
		return "paid " + in.Name, nil
	}
	p.agents["node"] = define("node", modelFunc(playNode), agent.SubAgent[agent.Task]("node", "Does a part."), pay,
		agent.Tool{Name: "ask", InputSchema: anyObject, Client: true})
}

// answerAsTwo lets two clients answer an open call at once, under the id of the root.
func (p *system) answerAsTwo(c *statev1.Call) {
	name := nameOf(p.t, c)
	text, err := json.Marshal("answer to " + name)
	must(p.t, err)
	answer := result(string(text))
	if c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL {
		answer = approval(isApproved(name), "")
		answer.GetApproval().ApprovalId = c.GetApprovalId()
	}
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() { // one of them may come too late
			_, _ = statev1.NewCallServiceClient(p.stateAPI).SubmitCall(p.context(), &statev1.SubmitCallRequest{
				Tenant: tenant, SessionId: "s", ToolCallId: c.GetToolCallId(), Answer: answer,
			})
		})
	}
	clients.Wait()
}

// nameOf returns the name in the arguments of a call.
func nameOf(t testing.TB, c *statev1.Call) string {
	t.Helper()
	var in struct{ Name string }
	must(t, json.Unmarshal([]byte(c.GetInput()), &in))
	return in.Name
}

// treeEnd is when and how a client stops a tree.
type treeEnd struct {
	after int // answers; -1 for never
	kind  statev1.StopKind
}

// Under the race detector, other tests play trees: this one would take minutes.
//
// Trees suspend in any order, and two clients answer in any order: the output of each is that of the plain model.
// A stopped tree leaves no session at work, and an interrupted one goes on when it is resumed.
func TestAnyTreeEndsAsThePlainModelSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(draw *rapid.T) {
		root := drawNode(draw, "r", 0)
		stop := treeEnd{after: -1, kind: rapid.SampledFrom([]statev1.StopKind{interrupt, abort}).Draw(draw, "kind")}
		if rapid.IntRange(0, 3).Draw(draw, "stops") == 0 {
			stop.after = rapid.IntRange(0, 4).Draw(draw, "after")
		}
		var order []int
		for range 40 {
			order = append(order, rapid.IntRange(0, 1000).Draw(draw, "next"))
		}
		synctest.Test(t, func(t *testing.T) { playTree(t, root, order, stop) })
		if t.Failed() {
			draw.Fatalf("the tree %+v, stopped %+v", root, stop)
		}
	})
}

// playTree plays one tree. order selects the next call that is answered.
func playTree(t *testing.T, root node, order []int, stop treeEnd) {
	p := newSystem(t)
	p.addNodes()
	p.open()
	p.open()
	text, err := json.Marshal(root)
	must(t, err)
	p.startRun("s", "node", string(text))
	for n := 0; ; n++ {
		var found *statev1.GetSessionResponse
		p.until("the tree waits for a client or ends", func() bool {
			found = p.session("s")
			return hasEnded(found) || len(openClientCalls(found)) > 0
		})
		if hasEnded(found) {
			checkOutput(t, root.want(), found)
			p.checkTreeAtRest()
			return
		}
		if n == stop.after {
			synctest.Wait() // a stop would fail the calls of a reply that is being received
			p.stopRun("", stop.kind, "")
			p.until("the root has stopped", func() bool { return hasEnded(p.session("s")) })
			p.checkTreeAtRest()
			if p.session("s").GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_INTERRUPTED {
				return
			}
			p.resume("s")
			continue
		}
		open := openClientCalls(found)
		p.answerAsTwo(open[order[n%len(order)]%len(open)])
	}
}

// checkTreeAtRest checks that no session of the tree s is at work or waits for a client.
func (p *system) checkTreeAtRest() {
	p.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, s := range p.tree("s") {
		if !hasEnded(s) {
			p.t.Errorf("the session %s of an ended tree is %v", s.GetSession().GetSessionId(), s)
		}
	}
}

// checkOutput compares the end of the root with the plain model.
func checkOutput(t *testing.T, want string, found *statev1.GetSessionResponse) {
	t.Helper()
	status := statev1.SessionStatus_SESSION_STATUS_COMPLETED
	if want == failedCall {
		status = statev1.SessionStatus_SESSION_STATUS_FAILED
	}
	if found.GetSession().GetStatus() == status && (want == failedCall || found.GetCurrentRun().GetOutput() == fmt.Sprintf("%q", want)) {
		return
	}
	t.Errorf("the root is %v with %s, want %q", found.GetSession(), found.GetCurrentRun().GetOutput(), want)
}

// tree returns the session and all sessions below it.
func (p *system) tree(root string) []*statev1.GetSessionResponse {
	p.t.Helper()
	sessions := []*statev1.GetSessionResponse{p.session(root)}
	for n := 0; n < len(sessions); n++ {
		for _, sub := range sessions[n].GetSubSessions() {
			sessions = append(sessions, p.session(sub.GetSessionId()))
		}
	}
	return sessions
}
