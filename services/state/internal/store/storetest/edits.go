package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// edits prove starts that rewind to a user's message.
var edits = []suiteCase{
	{"messages that a client lacks are found with their senders, and removed", func(h *harness) {
		first, second := h.runTurn(home, 1, "one"), h.runTurn(home, 2, "two")
		h.append(home, "appended") // has no run
		h.runTurn(home, 3, "three")
		asked := h.readView(home, session.Need{AskedFrom: 1}).Asked
		same(h, "messages behind the first", len(asked), 2)
		same(h, "the first of them", asked[0].ID, second.message)
		same(h, "its sender", asked[0].StartedBy, "")
		if asked := h.readView(home, session.Need{AskedFrom: 100}).Asked; asked == nil || len(asked) > 0 {
			h.Errorf("behind the end: got %v, want an empty list", asked)
		}
		if asked := h.readView(home, session.Need{Current: true}).Asked; asked != nil {
			h.Errorf("without a need: got %v", asked)
		}
		c := h.startOf(home)
		c.EarlierIDs, c.Missing = []string{first.message}, session.MissingIsRemoved
		got := h.start(c)
		same(h, "messages that remain", h.messageIDs(home), []string{first.message, first.answer, c.Messages[0].ID})
		same(h, "removed", got.Removed, int64(5))
	}},
}

// exchange holds the ids of a user's message and its answer.
type exchange struct{ message, answer string }

// runTurn starts a run, which answers in one step and writes the value to the state.
func (h *harness) runTurn(key session.Key, step int32, value string) exchange {
	h.Helper()
	sent := h.startOf(key)
	h.start(sent)
	ref := h.claimOf(key)
	c := h.commitOf(ref, step)
	c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: `"` + value + `"`}}
	c.Usage, c.Outcome = []session.Usage{modelUsage(1)}, &completed
	h.commit(c)
	return exchange{sent.Messages[0].ID, c.Messages[0].ID}
}

// messageIDs returns the ids of the conversation's messages.
func (h *harness) messageIDs(key session.Key) []string {
	h.Helper()
	return idsOf(h.messages(key))
}

func (h *harness) fail(ref session.ClaimRef) {
	h.Helper()
	_, err := h.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
	h.must(err)
}
