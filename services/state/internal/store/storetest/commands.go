package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// family lets what a command does reach the family, at the bench's time.
func (h *harness) family() session.Family {
	return session.Family{Now: h.now, NewID: func() string { return h.id("run") }, Abandon: abandonedResponse}
}

// abandonedResponse is the answer to a call that nobody waits for any more.
func abandonedResponse(session.Call) []byte { return []byte("gone") }

// send runs a command on one session, with all that follows from it.
func (h *harness) send(key session.Key, need session.Need, decide func(*session.View) (*session.Change, error)) error {
	return h.sendWidened(key, need, single(decide))
}

// sendWidened runs a command that may have to see more sessions than its own.
func (h *harness) sendWidened(key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error)) error {
	return send(h, h.Store, h.family(), key, need, decide)
}

// startOf is a command that begins a run with one message.
func (h *harness) startOf(key session.Key) session.Send {
	run := h.id("run")
	return session.Send{Post: session.Post{
		Key: key, AgentType: agent, RunID: run, MessageID: h.id("ui"), Now: h.now, Bodies: bodies,
		Messages: []session.Message{{ID: h.id("msg"), Role: "user", RunID: run, CreatedAt: h.now, Body: []byte("hello")}},
	}, New: session.Create{State: `{}`}}
}

func (h *harness) tryStart(c intent) (session.Started, error) { return h.tryStartOn(h.Store, c) }

func (h *harness) start(c intent) session.Started {
	h.Helper()
	started, err := h.tryStart(c)
	h.must(err)
	return started
}

// claim claims the one run that is due.
func (h *harness) claim(executorID string) (session.Ref, store.Decided) {
	h.Helper()
	claimed := h.claimAll(executorID, 1)
	if len(claimed) != 1 {
		h.Fatalf("got %d claims, want 1", len(claimed))
	}
	return refOf(claimed[0]), claimed[0]
}

func refOf(d store.Decided) session.Ref {
	run := d.Change.Runs[0]
	return session.Ref{Key: d.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch}
}

func (h *harness) claimAll(executorID string, limit int) []store.Decided {
	h.Helper()
	due := store.Queued{ExecutorID: executorID, AgentTypes: []string{agent}, Now: h.now}
	need := session.Need{State: true, Journal: true, Calls: true, Tail: session.Tail{Messages: 3, Bytes: 1 << 20}}
	claimed, err := h.Store.UpdateDue(h.Context(), due, need, limit, session.Claim{ExecutorID: executorID, Now: h.now}.Decide)
	h.must(err)
	return claimed
}

// requeueSilent strikes off whom nobody has heard for a second, and queues their
// runs again. It returns how many those were.
func (h *harness) requeueSilent() int {
	h.Helper()
	_, err := h.Store.Forget(h.Context(), h.now-1000)
	h.must(err)
	requeued, err := h.Store.UpdateDue(h.Context(), store.Silent{}, session.Need{}, 10, session.RequeueSilent{Now: h.now}.Decide)
	h.must(err)
	return len(requeued)
}

func (h *harness) tryPlan(ref session.Ref, step int32, body string, calls ...string) error {
	return h.tryPlanWith(ref, step, body, nil, calls...)
}

func (h *harness) tryPlanWith(ref session.Ref, step int32, body string, ops []session.StateOp, calls ...string) error {
	c := session.Plan{Ref: ref, Step: step, Body: []byte(body), CallIDs: calls, Usage: []session.Usage{modelUsage(5)}, Ops: ops, Limits: limits}
	return h.send(c.Key, c.Need(), c.Decide)
}

// modelUsage is a measurement of a model call.
func modelUsage(total int64) session.Usage {
	return session.Usage{Kind: session.UsageTokens, Source: "agent", Model: "m1", TotalTokens: total}
}

func (h *harness) tryResult(ref session.Ref, step int32, result session.Result) (repeated bool, err error) {
	c := session.RecordResult{Ref: ref, Step: step, Result: result, Limits: limits}
	err = h.sendWidened(c.Key, c.Need(), capturing(&repeated, c.Decide))
	return repeated, err
}

var limits = session.Limits{State: 1000, Journal: 10_000, Waiting: 3}

// commitOf is a command that commits a step with one message.
func (h *harness) commitOf(ref session.Ref, step int32) session.Commit {
	return session.Commit{
		Ref: ref, Step: step, CheckpointID: h.id("cp"), Limits: limits, Now: h.now,
		Messages: []session.Message{{ID: h.id("msg"), Role: "assistant", RunID: ref.RunID, Step: step, CreatedAt: h.now, Body: []byte("answer")}},
	}
}

func (h *harness) tryCommit(c session.Commit) (checkpoint session.Checkpoint, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&checkpoint, c.Decide))
	return checkpoint, err
}

func (h *harness) commit(c session.Commit) session.Checkpoint {
	h.Helper()
	checkpoint, err := h.tryCommit(c)
	h.must(err)
	return checkpoint
}

func (h *harness) tryFinish(ref session.Ref, o session.Outcome) (version int64, err error) {
	c := session.Finish{Ref: ref, Outcome: o, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&version, c.Decide))
	return version, err
}

var completed = session.Outcome{Status: session.RunCompleted, Output: `{"a": 1}`, CompletionReason: "max_steps", FinishReason: "length"}

func (h *harness) finish(ref session.Ref) {
	h.Helper()
	_, err := h.tryFinish(ref, completed)
	h.must(err)
}

func (h *harness) tryRelease(ref session.Ref) error {
	c := session.Release{Ref: ref, Now: h.now}
	return h.send(c.Key, c.Need(), c.Decide)
}

func (h *harness) snapshot(key session.Key) *store.Snapshot {
	h.Helper()
	snapshot, err := h.Store.Session(h.Context(), key)
	h.must(err)
	return snapshot
}

// session returns a session that has had a run, and its newest one.
func (h *harness) session(key session.Key) (session.Session, session.Run) {
	h.Helper()
	s := h.snapshot(key)
	if s.Current == nil {
		h.Fatalf("session %v has no run", key)
	}
	return s.Session, *s.Current
}

func (h *harness) messages(key session.Key) []session.Message {
	h.Helper()
	messages, _, err := h.Store.Messages(h.Context(), key, store.Page{Limit: 200, MaxBytes: 1 << 20})
	h.must(err)
	return messages
}

func (h *harness) checkpoints(key session.Key) []session.Checkpoint {
	h.Helper()
	list, _, err := h.Store.Checkpoints(h.Context(), key, 0, 0, 1000)
	h.must(err)
	return list
}

func (h *harness) usage(key session.Key) []session.UsageEntry {
	h.Helper()
	entries, err := h.Store.UsageEntries(h.Context(), key, nil, 0, 1000)
	h.must(err)
	return entries
}
