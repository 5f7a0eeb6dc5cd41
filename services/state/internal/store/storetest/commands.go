package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// family lets what a command does reach the family, at the bench's time.
func (b *bench) family() session.Family {
	return session.Family{Now: b.now, NewID: func() string { return b.id("run") }, Abandon: gone}
}

// gone is the answer to a call that nobody waits for any more.
func gone(session.Call) []byte { return []byte("gone") }

// send runs a command on one session, with all that follows from it.
func (b *bench) send(key session.Key, need session.Need, decide func(*session.View) (*session.Change, error)) error {
	return b.all(key, need, one(decide))
}

// all runs a command that may have to see more sessions than its own.
func (b *bench) all(key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error)) error {
	return send(b, b.Store, b.family(), key, need, decide)
}

// startOf is a command that begins a run with one message.
func (b *bench) startOf(key session.Key) session.Send {
	run := b.id("run")
	return session.Send{Post: session.Post{
		Key: key, AgentType: agent, RunID: run, MessageID: b.id("ui"), Now: b.now, Bodies: bodies,
		Messages: []session.Message{{ID: b.id("msg"), Role: "user", RunID: run, CreatedAt: b.now, Body: []byte("hello")}},
	}, New: session.Create{State: `{}`}}
}

func (b *bench) try(c intent) (session.Started, error) { return b.tryOn(b.Store, c) }

func (b *bench) start(c intent) session.Started {
	b.Helper()
	started, err := b.try(c)
	b.must(err)
	return started
}

// claim claims the one run that is due.
func (b *bench) claim(executorID string) (session.Ref, store.Decided) {
	b.Helper()
	claimed := b.claimAll(executorID, 1)
	if len(claimed) != 1 {
		b.Fatalf("got %d claims, want 1", len(claimed))
	}
	return refOf(claimed[0]), claimed[0]
}

func refOf(d store.Decided) session.Ref {
	run := d.Change.Runs[0]
	return session.Ref{Key: d.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch}
}

func (b *bench) claimAll(executorID string, limit int) []store.Decided {
	b.Helper()
	due := store.Queued{ExecutorID: executorID, AgentTypes: []string{agent}, Now: b.now}
	need := session.Need{State: true, Journal: true, Calls: true, Tail: session.Tail{Messages: 3, Bytes: 1 << 20}}
	claimed, err := b.Store.UpdateDue(b.Context(), due, need, limit, session.Claim{ExecutorID: executorID, Now: b.now}.Decide)
	b.must(err)
	return claimed
}

// silence strikes off whom nobody has heard for a second, and queues their
// runs again. It returns how many those were.
func (b *bench) silence() int {
	b.Helper()
	_, err := b.Store.Forget(b.Context(), b.now-1000)
	b.must(err)
	requeued, err := b.Store.UpdateDue(b.Context(), store.Silent{}, session.Need{}, 10, session.RequeueSilent{Now: b.now}.Decide)
	b.must(err)
	return len(requeued)
}

func (b *bench) tryPlan(ref session.Ref, step int32, body string, calls ...string) error {
	return b.tryPlanWith(ref, step, body, nil, calls...)
}

func (b *bench) tryPlanWith(ref session.Ref, step int32, body string, ops []session.StateOp, calls ...string) error {
	c := session.Plan{Ref: ref, Step: step, Body: []byte(body), CallIDs: calls, Usage: []session.Usage{tokens(5)}, Ops: ops, Limits: limits}
	return b.send(c.Key, c.Need(), c.Decide)
}

// tokens is a measurement of a model call.
func tokens(total int64) session.Usage {
	return session.Usage{Kind: session.UsageTokens, Source: "agent", Model: "m1", TotalTokens: total}
}

func (b *bench) tryResult(ref session.Ref, step int32, result session.Result) (repeated bool, err error) {
	c := session.RecordResult{Ref: ref, Step: step, Result: result, Limits: limits}
	err = b.all(c.Key, c.Need(), answered(&repeated, c.Decide))
	return repeated, err
}

var limits = session.Limits{State: 1000, Journal: 10_000, Waiting: 3}

// commitOf is a command that commits a step with one message.
func (b *bench) commitOf(ref session.Ref, step int32) session.Commit {
	return session.Commit{
		Ref: ref, Step: step, CheckpointID: b.id("cp"), Limits: limits, Now: b.now,
		Messages: []session.Message{{ID: b.id("msg"), Role: "assistant", RunID: ref.RunID, Step: step, CreatedAt: b.now, Body: []byte("answer")}},
	}
}

func (b *bench) tryCommit(c session.Commit) (checkpoint session.Checkpoint, err error) {
	err = b.all(c.Key, c.Need(), answered(&checkpoint, c.Decide))
	return checkpoint, err
}

func (b *bench) commit(c session.Commit) session.Checkpoint {
	b.Helper()
	checkpoint, err := b.tryCommit(c)
	b.must(err)
	return checkpoint
}

func (b *bench) tryFinish(ref session.Ref, o session.Outcome) (version int64, err error) {
	c := session.Finish{Ref: ref, Outcome: o, Now: b.now}
	err = b.all(c.Key, c.Need(), answered(&version, c.Decide))
	return version, err
}

var completed = session.Outcome{Status: session.RunCompleted, Output: `{"a": 1}`, CompletionReason: "max_steps", FinishReason: "length"}

func (b *bench) finish(ref session.Ref) {
	b.Helper()
	_, err := b.tryFinish(ref, completed)
	b.must(err)
}

func (b *bench) tryRelease(ref session.Ref) error {
	c := session.Release{Ref: ref, Now: b.now}
	return b.send(c.Key, c.Need(), c.Decide)
}

func (b *bench) snapshot(key session.Key) *store.Snapshot {
	b.Helper()
	snapshot, err := b.Store.Session(b.Context(), key)
	b.must(err)
	return snapshot
}

// session returns a session that has had a run, and its newest one.
func (b *bench) session(key session.Key) (session.Session, session.Run) {
	b.Helper()
	s := b.snapshot(key)
	if s.Current == nil {
		b.Fatalf("session %v has no run", key)
	}
	return s.Session, *s.Current
}

func (b *bench) messages(key session.Key) []session.Message {
	b.Helper()
	messages, _, err := b.Store.Messages(b.Context(), key, store.Page{Limit: 200, MaxBytes: 1 << 20})
	b.must(err)
	return messages
}

func (b *bench) checkpoints(key session.Key) []session.Checkpoint {
	b.Helper()
	list, _, err := b.Store.Checkpoints(b.Context(), key, 0, 0, 1000)
	b.must(err)
	return list
}

func (b *bench) usage(key session.Key) []session.UsageEntry {
	b.Helper()
	entries, err := b.Store.UsageEntries(b.Context(), key, nil, 0, 1000)
	b.must(err)
	return entries
}
