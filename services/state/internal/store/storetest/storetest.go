// Package storetest holds every store to one behaviour: that of the contract's
// comments, through the real commands of package session.
package storetest

import (
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Subject is an empty store, and what a test cannot see through its interface.
type Subject struct {
	Store store.Store
	// Ledger reads the rows of a session that only grow.
	Ledger func(*testing.T, session.Key) Ledger
	// Reopen closes the store and opens what it has left; nil for a store that
	// keeps nothing.
	Reopen func(*testing.T) store.Store
}

// Ledger is what the steps of a session have left, in their order.
type Ledger struct {
	Checkpoints []session.Checkpoint
	Usage       []session.UsageEntry
	States      int // how many texts of custom states are kept
}

// Run runs the whole suite. Each test opens a store of its own.
func Run(t *testing.T, open func(*testing.T) Subject) {
	for _, group := range [][]test{starts, claims, steps, ends, reads, crowds} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(newBench(t, open(t)))
			})
		}
	}
}

type test struct {
	name string
	run  func(*bench)
}

// bench is a store with one executor, and a clock that moves by hand.
type bench struct {
	*testing.T
	Subject
	now session.Millis
	ids int
}

const (
	agent    = "support"
	executor = "executor-1"
)

var home = session.Key{Tenant: "acme", SessionID: "s1"}

func newBench(t *testing.T, s Subject) *bench {
	b := &bench{T: t, Subject: s, now: 1_700_000_000_000}
	b.announce(executor)
	return b
}

// id returns what no earlier call returned.
func (b *bench) id(prefix string) string {
	b.ids++
	return fmt.Sprintf("%s_%d", prefix, b.ids)
}

func (b *bench) announce(executorID string) {
	b.Helper()
	err := b.Store.Announce(b.Context(), executorID, []session.Agent{{Type: agent, Description: "helps"}}, b.now)
	b.must(err)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("got %v, want no error", err)
	}
}

// refuses fails the test unless err is a fault with the reason.
func (b *bench) refuses(err error, kind fault.Kind, reason string) {
	b.Helper()
	if fault.ReasonOf(err) != reason || fault.KindOf(err) != kind {
		b.Errorf("got %v (%v), want %v (%s)", err, fault.KindOf(err), kind, reason)
	}
}

// startOf is a command that begins a run with one message.
func (b *bench) startOf(key session.Key) session.Start {
	run := b.id("run")
	return session.Start{
		Key: key, AgentType: agent, RunID: run, MessageID: b.id("ui"), Now: b.now, State: `{}`,
		Messages: []session.Message{{ID: b.id("msg"), Role: "user", RunID: run, CreatedAt: b.now, Body: []byte("hello")}},
	}
}

func (b *bench) try(c session.Start) (session.Started, error) {
	var started session.Started
	err := b.Store.Update(b.Context(), c.Key, c.Need(), func(v *session.View) (change *session.Change, err error) {
		change, started, err = c.Decide(v)
		return change, err
	})
	return started, err
}

func (b *bench) start(c session.Start) session.Started {
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
	due := store.Queued{ExecutorID: executorID, AgentTypes: []string{agent}}
	need := session.Need{State: true, Journal: true, Tail: session.Tail{Messages: 3, Bytes: 1 << 20}}
	claimed, err := b.Store.UpdateDue(b.Context(), due, need, limit, session.Claim{ExecutorID: executorID, Now: b.now}.Decide)
	b.must(err)
	return claimed
}

func (b *bench) claimSettling(executorID string) []store.Decided {
	b.Helper()
	due := store.Unsettled{ExecutorID: executorID, AgentTypes: []string{agent}}
	claimed, err := b.Store.UpdateDue(b.Context(), due, session.Need{}, 10, session.ClaimSettling{ExecutorID: executorID, Now: b.now}.Decide)
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
	c := session.Plan{Ref: ref, Step: step, Body: []byte(body), CallIDs: calls, Sequence: 7, Usage: []session.Usage{{Model: "m1", TotalTokens: 5}}}
	return b.Store.Update(b.Context(), c.Key, c.Need(), c.Decide)
}

func (b *bench) tryResult(ref session.Ref, step int32, result session.Result) (repeated bool, err error) {
	c := session.RecordResult{Ref: ref, Step: step, Result: result, Limits: limits}
	err = b.Store.Update(b.Context(), c.Key, c.Need(), func(v *session.View) (change *session.Change, err error) {
		change, repeated, err = c.Decide(v)
		return change, err
	})
	return repeated, err
}

var limits = session.Limits{State: 1000, Journal: 10_000}

// commitOf is a command that commits a step with one message.
func (b *bench) commitOf(ref session.Ref, step int32) session.Commit {
	return session.Commit{
		Ref: ref, Step: step, Sequence: int64(step) * 100, CheckpointID: b.id("cp"), Limits: limits, Now: b.now,
		Messages: []session.Message{{ID: b.id("msg"), Role: "assistant", RunID: ref.RunID, Step: step, CreatedAt: b.now, Body: []byte("answer")}},
	}
}

func (b *bench) tryCommit(c session.Commit) (session.Checkpoint, error) {
	var checkpoint session.Checkpoint
	err := b.Store.Update(b.Context(), c.Key, c.Need(), func(v *session.View) (change *session.Change, err error) {
		change, checkpoint, err = c.Decide(v)
		return change, err
	})
	return checkpoint, err
}

func (b *bench) commit(c session.Commit) session.Checkpoint {
	b.Helper()
	checkpoint, err := b.tryCommit(c)
	b.must(err)
	return checkpoint
}

func (b *bench) tryFinish(ref session.Ref, o session.Outcome) (version int64, err error) {
	c := session.Finish{Ref: ref, Outcome: o, Sequence: 500, Now: b.now}
	err = b.Store.Update(b.Context(), c.Key, c.Need(), func(v *session.View) (change *session.Change, err error) {
		change, version, err = c.Decide(v)
		return change, err
	})
	return version, err
}

var completed = session.Outcome{Status: session.RunCompleted, Output: `{"a": 1}`, CompletionReason: "max_steps"}

func (b *bench) finish(ref session.Ref) {
	b.Helper()
	_, err := b.tryFinish(ref, completed)
	b.must(err)
}

func (b *bench) trySettle(ref session.Ref, sequence int64) error {
	c := session.Settle{Ref: ref, Sequence: sequence, Now: b.now}
	return b.Store.Update(b.Context(), c.Key, c.Need(), c.Decide)
}

func (b *bench) tryRelease(ref session.Ref) error {
	c := session.Release{Ref: ref, Now: b.now}
	return b.Store.Update(b.Context(), c.Key, c.Need(), c.Decide)
}

func (b *bench) session(key session.Key) (session.Session, session.Run) {
	b.Helper()
	s, run, err := b.Store.Session(b.Context(), key)
	b.must(err)
	return *s, *run
}

func (b *bench) messages(key session.Key) []session.Message {
	b.Helper()
	messages, _, err := b.Store.Messages(b.Context(), key, store.Page{Limit: 200, MaxBytes: 1 << 20})
	b.must(err)
	return messages
}
