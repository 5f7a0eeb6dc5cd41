package crashmatrix_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// treeTalkers is the number of concurrent trees, with 13 sessions each.
const treeTalkers = 4

// TestATreeOfSubAgentsGrowsOnceHoweverManyExecutorsDie is the test of the ledger for trees of depth 3 with four
// branches. The leaves of two of them wait for an approval, which is answered under the id of the root.
func TestATreeOfSubAgentsGrowsOnceHoweverManyExecutorsDie(t *testing.T) {
	t.Parallel()
	l := &ledgerRun{T: t, agent: "tree@all"}
	l.converse = l.growTree
	l.kill(treeTalkers, func() {
		effects := 0
		for _, session := range l.sessions {
			effects += l.checkTree(session)
		}
		l.Logf("%d kills, %d trees, %d calls with effects", l.kills.Load(), len(l.sessions), effects)
	})
}

// growTree plays one tree to its end, and approves what its leaves ask.
func (l *ledgerRun) growTree(session string) error {
	if err := l.ask(session); err != nil {
		return err
	}
	sessions := statev1.NewSessionServiceClient(l.conn)
	for {
		got, err := sessions.GetSession(l.ctx, &statev1.GetSessionRequest{Tenant: tenant, SessionId: session})
		if err != nil {
			return err
		}
		if got.GetSession().GetStatus() == completed {
			return nil
		}
		if f := got.GetSession().GetFailure(); f != nil {
			return fmt.Errorf("it has failed: %v", f)
		}
		for _, c := range got.GetCalls() {
			if c.GetKind() != statev1.CallKind_CALL_KIND_APPROVAL || c.GetAnswer() != nil {
				continue
			}
			answer := harness.ToolAnswer{ToolCallID: c.GetToolCallId(), Kind: "approval-response", ApprovalID: c.GetApprovalId(), Approved: new(true)}
			if _, err := l.Submit(l.ctx, session, answer); err != nil && !harness.IsRetryable(err) {
				return err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-l.ctx.Done():
			return fmt.Errorf("it does not end: %v, calls %v", got.GetSession(), got.GetCalls())
		}
	}
}

// checkTree checks the final output of a tree, the effects of its sessions, and that a client which replays the
// answer has the tree of the stored message. It returns the number of effects.
func (l *ledgerRun) checkTree(session string) (effects int) {
	l.Helper()
	root := &talk{T: l.T, world: l.world, ctx: l.ctx, session: session}
	if got, want := root.look().GetCurrentRun().GetOutput(), treeOutput(session); got != want {
		l.Errorf("session %s: the output is %s, want %s", session, got, want)
	}
	tree := []*talk{root}
	for n := 0; n < len(tree); n++ {
		for _, sub := range tree[n].look().GetSubSessions() {
			if sub.GetStatus() != completed {
				l.Errorf("session %s: %v", session, sub)
			}
			tree = append(tree, &talk{T: l.T, world: l.world, ctx: l.ctx, session: sub.GetSessionId()})
		}
		for _, e := range recorded(tree[n].messages()) {
			effects++
			if problem := e.problem(l.ledger.Entry(e.label), false); problem != "" {
				l.Errorf("session %s: %s %q: %s", session, e.tool, e.label, problem)
			}
		}
	}
	if len(tree) != 13 || effects != 13 {
		l.Errorf("session %s has %d sessions and %d effects, want 13 and 13", session, len(tree), effects)
	}
	messages := l.Messages(l.T, session)
	stored, replayed := shownTree(messages[len(messages)-1]), shownTree(l.Follow(l.T, l.Attach(l.T, session), session))
	if !slices.Equal(stored, replayed) || len(stored) != 12 {
		l.Errorf("session %s: stored is\n%s\nbut replayed is\n%s", session, strings.Join(stored, "\n"), strings.Join(replayed, "\n"))
	}
	return effects
}

// treeOutput returns the output of a tree, as JSON.
func treeOutput(session string) string {
	var results []string
	for _, branch := range []string{"paid 1", "free 2", "paid 3", "free 4"} {
		results = append(results, fmt.Sprintf(`"branch %s %s"`, session, branch))
	}
	text, _ := json.Marshal("All is done: " + strings.Join(results, " ")) // a string always marshals
	return string(text)
}

// shownTree describes the sub-agents in a message, sorted.
func shownTree(m harness.UIMessage) []string {
	var list []string
	for _, p := range m.Parts {
		if p.Type == "data-subagent" {
			list = append(list, string(p.Data))
		}
	}
	slices.Sort(list)
	return list
}
