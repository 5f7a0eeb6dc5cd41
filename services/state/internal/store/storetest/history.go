package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// historyTime limits the start of new histories, unless -rapid.checks sets their number.
// The replay of a failed history is unbounded.
const historyTime = 8 * time.Second

// RunModel compares a store with the reference model over random histories. After each
// sequential command, every readable row must equal the model. After concurrent
// commands, the invariants must hold, with every acknowledged write and no refused one.
//
// All histories share one store. Each has its own ids.
func RunModel(t *testing.T, open func(testing.TB) store.Store) {
	s := open(t)
	began, count, failing := time.Now(), 0, false
	bounded := true
	flag.Visit(func(f *flag.Flag) { bounded = bounded && f.Name != "rapid.checks" })
	rapid.Check(t, func(r *rapid.T) {
		if bounded && !failing && time.Since(began) > historyTime {
			return
		}
		count++
		done := false
		defer func() { failing = failing || !done || r.Failed() }()
		h := newHistory(t, s, count)
		h.T = r
		r.Repeat(map[string]func(*rapid.T){"one": h.sendOne, "another": h.sendOne, "a third": h.sendOne, "burst": h.sendBurst,
			"": h.checkCheckpoints})
		done = true
	})
}

// history is the model of one random history.
type history struct {
	*rapid.T
	t        *testing.T
	store    store.Store
	name     string // part of every id outside a session
	now      session.Millis
	ids      int
	keys     []session.Key
	sessions map[session.Key]*modelSession
	claims   map[session.Key][]session.ClaimRef // all claims so far
	callIDs  []string                           // all calls so far, for Owners and tombstones
	starts   map[string]session.RunRequest      // by run id
	bursting bool                               // several commands run concurrently
}

func newHistory(t *testing.T, s store.Store, n int) *history {
	h := &history{
		t: t, store: s, name: fmt.Sprint("h", n), now: session.Millis(n) << 32, sessions: map[session.Key]*modelSession{},
		claims: map[session.Key][]session.ClaimRef{}, starts: map[string]session.RunRequest{},
	}
	for _, tenant := range []string{"a", "b"} {
		for _, id := range []string{"one", "two"} {
			h.keys = append(h.keys, session.Key{Tenant: h.name + tenant, SessionID: id})
		}
	}
	h.announce()
	return h
}

func (h *history) announce() {
	if err := h.store.Announce(h.t.Context(), h.name, []session.Agent{{Type: h.name}}, h.now); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) id(prefix string) string {
	h.ids++
	return fmt.Sprint(prefix, h.ids)
}

// sendOne sends a command and compares its answer and all rows with the model.
func (h *history) sendOne(r *rapid.T) {
	h.T = r
	h.now++
	a := h.drawAction()
	after := maps.Clone(h.sessions)
	for key, p := range after {
		after[key] = p.clone()
	}
	want := a.predict(after)
	for _, p := range after {
		if p == nil {
			continue
		}
		p.forgetRemovedMessages()
	}
	err := a.send()
	if got := reason(err); got != want {
		h.Fatalf("%s: got %q (%v), want %q", a.name, got, err, want)
	}
	for _, key := range h.keys {
		got := h.observe(key)
		if got != nil && after[key] != nil {
			got.StartStates = after[key].StartStates
			if got.Status != session.Active {
				after[key].StartState = got.StartState // after a rewind the model may not know it
			}
		}
		if !reflect.DeepEqual(normal(got), normal(after[key])) {
			h.Fatalf("%s: %v\n got %+v\nwant %+v\n was %+v", a.name, key, got, after[key], h.sessions[key])
		}
	}
	h.sessions = after
}

// sendBurst sends several commands concurrently.
func (h *history) sendBurst(r *rapid.T) {
	h.T = r
	acts := make([]action, rapid.IntRange(2, 6).Draw(r, "commands"))
	h.bursting = true
	defer func() { h.bursting = false }()
	for i := range acts {
		h.now++
		acts[i] = h.drawAction()
	}
	errs := make([]error, len(acts))
	var wg sync.WaitGroup
	for i, a := range acts {
		wg.Go(func() { errs[i] = a.send() })
	}
	wg.Wait()
	before := h.sessions
	h.sessions = map[session.Key]*modelSession{}
	for _, key := range h.keys {
		if p := h.observe(key); p != nil {
			h.sessions[key] = p
			h.checkInvariants(key, before[key], acts)
			h.recordStartStates(key, before[key])
		}
	}
	for i, a := range acts {
		h.checkAcknowledged(a, errs[i], acts)
	}
	h.adoptClaims()
}

// checkAcknowledged checks a command's message: stored after success, absent after a refusal.
func (h *history) checkAcknowledged(a action, err error, acts []action) {
	if err != nil && fault.ReasonOf(err) == "" {
		h.Fatalf("%s: got %v, which is no fault", a.name, err)
	}
	p := h.sessions[a.key]
	undone := slices.ContainsFunc(acts, func(o action) bool { return o.removes && o.key == a.key })
	if a.message == "" || undone {
		return
	}
	if p != nil && h.isOutsideConversation(p, a) {
		return
	}
	if there := p != nil && slices.Contains(p.Messages, a.message); there != (err == nil) && (there || !a.repeats) {
		h.Fatalf("%s: got %v; message stored: %v", a.name, err, there)
	}
}

// isOutsideConversation reports whether the message waits, was cancelled with its run, or was
// rolled back with its step's run.
func (h *history) isOutsideConversation(p *modelSession, a action) bool {
	if _, removed := p.EndedWaiting[a.run]; removed || slices.ContainsFunc(p.Queue, func(r modelRun) bool { return r.ID == a.run }) {
		if slices.Contains(p.Messages, a.message) {
			h.Fatalf("%s: the message is in the conversation, and its run has not begun", a.name)
		}
		return true
	}
	_, run, ofStep := strings.Cut(a.message, "@")
	return ofStep && p.run(run) != nil && p.run(run).Rollback
}

// checkInvariants checks the invariants of a session.
func (h *history) checkInvariants(key session.Key, before *modelSession, acts []action) {
	p := h.sessions[key]
	live := 0
	var steps int32
	for _, r := range p.Runs {
		steps += r.Steps
		if r.Status.Live() {
			live++
		}
	}
	switch {
	case live > 1, (live == 1) != (p.Status == session.Active):
		h.Fatalf("%v is %s with %d live runs: %+v", key, p.Status, live, p)
	case len(p.Runs) != int(p.Turn), steps != p.Steps:
		h.Fatalf("%v has %d runs in turn %d, and %d steps of %d", key, len(p.Runs), p.Turn, steps, p.Steps)
	case p.Status.Suspended() && len(p.openCalls()) == 0:
		h.Fatalf("%v is suspended without open calls: %+v", key, p)
	case len(p.Queue) > 0 && p.Status != session.Active && !p.Status.Suspended():
		h.Fatalf("%v has ended with waiting runs: %+v", key, p)
	case len(slices.Compact(slices.Sorted(slices.Values(p.Messages)))) != len(p.Messages):
		h.Fatalf("%v has a message twice: %v", key, p.Messages)
	}
	for i := 1; i < len(p.Checkpoints); i++ {
		if p.Checkpoints[i].Step <= p.Checkpoints[i-1].Step {
			h.Fatalf("%v has checkpoints %+v", key, p.Checkpoints)
		}
	}
	deleted := slices.ContainsFunc(acts, func(a action) bool { return a.deletes && a.key == key })
	if before != nil && !deleted && (p.Epoch < before.Epoch || p.Version < before.Version || p.Steps < before.Steps || p.Turn < before.Turn) {
		h.Fatalf("%v went back from %+v to %+v", key, before, p)
	}
}

// adoptClaims adds the claims of a burst to the history.
func (h *history) adoptClaims() {
	for key, p := range h.sessions {
		for _, r := range p.Runs {
			if ref := (session.ClaimRef{Key: key, RunID: r.ID, Epoch: r.Epoch}); r.Epoch > 0 && !slices.Contains(h.claims[key], ref) {
				h.claims[key] = append(h.claims[key], ref)
			}
		}
	}
}

// recordStartStates records the start states of a burst's runs. It finds a state
// by its version in the session before or after the burst, or in a checkpoint. If the burst
// has overwritten the state, it reads the store.
func (h *history) recordStartStates(key session.Key, before *modelSession) {
	p := h.sessions[key]
	if before != nil {
		maps.Copy(p.StartStates, before.StartStates)
	}
	for id, run := range p.RunByMessage {
		if p.StartStates[run] != nil || p.run(run) == nil {
			continue
		}
		if p.StartStates[run] = p.stateOf(p.run(run).FromState, before); p.StartStates[run] != nil {
			continue
		}
		target := session.Target{Key: key, Need: session.Need{RewindToMessage: id}}
		h.must(h.store.Update(h.t.Context(), []session.Target{target}, weight, func(views []*session.View) ([]*session.Change, error) {
			p.StartStates[run] = decodeState(h.T, views[0].RewindPoint.State)
			return nil, nil
		}))
	}
}

// stateOf returns the state of a version; nil when only a rewind would show it.
func (p *modelSession) stateOf(version int64, before *modelSession) map[string]string {
	for _, k := range p.Checkpoints {
		if k.StateVersion == version {
			return maps.Clone(k.State)
		}
	}
	switch {
	case p.StateVersion == version:
		return maps.Clone(p.State)
	case before != nil && before.StateVersion == version && before.Version <= p.Version:
		return maps.Clone(before.State)
	default:
		return nil
	}
}

// checkCheckpoints reads each session's first and last checkpoint by its id.
func (h *history) checkCheckpoints(r *rapid.T) {
	h.T = r
	for key, p := range h.sessions {
		for _, i := range []int{0, len(p.Checkpoints) - 1} {
			if i < 0 || i >= len(p.Checkpoints) {
				continue
			}
			want := p.Checkpoints[i]
			got, state, err := h.store.Checkpoint(h.t.Context(), key, want.ID)
			if err != nil || got.Step != want.Step || !maps.Equal(decodeState(h.T, state), want.State) {
				h.Fatalf("%v: checkpoint %+v with the state %s, %v; want %+v with %v", key, got, state, err, want, want.State)
			}
		}
	}
}

// observe reads a session; nil if it does not exist.
func (h *history) observe(key session.Key) *modelSession {
	ctx := h.t.Context()
	snapshot, err := h.store.Session(ctx, key)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	h.must(err)
	s := snapshot.Session
	p := &modelSession{
		Status: s.Status, Version: s.Version, Epoch: s.Epoch, Turn: s.Turn, Steps: s.StepCount, Resumes: s.ResumeCount,
		State: decodeState(h.T, s.State), StateVersion: s.StateVersion,
		RunByMessage: map[string]string{}, StartStates: map[string]map[string]string{}, Calls: map[string]modelCall{}, Expires: s.ExpiresAt,
		Interrupted: s.Interruption != nil, Failed: s.Failure != nil,
		Aborted: s.Failure != nil && s.Failure.Code == "framework_cancelled", MaxSteps: s.Failure != nil && s.Failure.Code == mostSteps,
	}
	if s.Status.Suspended() != (s.Suspension != nil) {
		h.Fatalf("%v is %s with the suspension %+v", key, s.Status, s.Suspension)
	}
	messages, total, err := h.store.Messages(ctx, key, store.Page{Limit: 10_000, MaxBytes: 1 << 20})
	h.must(err)
	for i, m := range messages {
		if m.Ordinal != int64(i) || total != int64(len(messages)) || s.MessageCount != total {
			h.Fatalf("%v: got message %d at %d of %d; the session says %d", key, i, m.Ordinal, total, s.MessageCount)
		}
		p.Messages = append(p.Messages, m.ID)
		if m.Role == "user" && m.RunID != "" {
			p.RunByMessage[m.ID] = m.RunID
		}
	}
	h.observeRuns(ctx, key, snapshot, p)
	h.observeCalls(ctx, key, snapshot, p)
	return p
}

func (h *history) observeRuns(ctx context.Context, key session.Key, snapshot *store.Snapshot, p *modelSession) {
	runs, err := h.store.Runs(ctx, key, 0, 10_000)
	h.must(err)
	slices.Reverse(runs)
	for _, r := range snapshot.Waiting {
		p.Queue = append(p.Queue, observed(r))
	}
	if int(snapshot.Session.Waiting) != len(p.Queue) {
		h.Fatalf("%v: %d runs wait; the session says %d", key, len(p.Queue), snapshot.Session.Waiting)
	}
	h.observeEndedWaiting(ctx, key, p)
	for i, r := range runs {
		if r.Turn != int32(i)+1 || r.Stop != nil && r.Stop.Kind == "" {
			h.Fatalf("%v: got run %+v at the place of turn %d", key, r, i+1)
		}
		p.Runs = append(p.Runs, observed(r))
	}
	if n := len(runs); n > 0 && (snapshot.Current == nil || snapshot.Current.RunID != runs[n-1].RunID ||
		snapshot.Session.CurrentRunID != runs[n-1].RunID) {
		h.Fatalf("%v: the newest run is %+v; the session says %q", key, runs[n-1], snapshot.Session.CurrentRunID)
	}
	list, total, err := h.store.Checkpoints(ctx, key, 0, 0, 10_000)
	h.must(err)
	if total != int64(len(list)) {
		h.Fatalf("%v: got %d of %d checkpoints", key, len(list), total)
	}
	if newest := append(list, session.Checkpoint{})[0].ID; snapshot.Session.CheckpointID != newest {
		h.Fatalf("%v: the newest checkpoint is %q; the session says %q", key, newest, snapshot.Session.CheckpointID)
	}
	for _, c := range slices.Backward(list) {
		p.Checkpoints = append(p.Checkpoints, modelCheckpoint{ID: c.ID, Step: c.Step, Epoch: c.Epoch, Run: c.RunID, Messages: int(c.MessageCount),
			StateVersion: c.StateVersion, Failed: c.Status == session.Failed})
	}
	h.fillCheckpointStates(ctx, key, p)
}

func observed(r session.Run) modelRun {
	run := modelRun{
		ID: r.RunID, Message: r.MessageID, Key: r.RequestKey, Status: r.Status, Entry: r.Entry, Epoch: r.Epoch, Attempt: r.Attempt,
		Held: r.ExecutorID != "",
		Due:  r.DueAt, Claimed: r.ClaimedAt, Losses: r.Losses, Steps: r.StepCount, Finished: r.FinishStep, Created: r.CreatedAt, Policy: r.OnBusy,
		StartedBy: r.StartedBy, Priority: r.Priority,
		From: int(r.StartMessageCount), FromState: r.StartStateVersion, FromTurn: int(r.TurnMessageCount),
	}
	if r.Stop != nil {
		run.Stop, run.StopAt, run.Rollback = r.Stop.Kind, r.Stop.At, r.Stop.Undo
	}
	if f := r.Outcome.Failure; f != nil {
		run.Failure = f.Error
	}
	return run
}

// observeEndedWaiting reads the waiting runs that ended before they began.
func (h *history) observeEndedWaiting(ctx context.Context, key session.Key, p *modelSession) {
	for id, c := range h.starts {
		if c.Key != key {
			continue
		}
		r, err := h.store.Run(ctx, key, id)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		h.must(err)
		if r.Turn == 0 && r.Status != session.RunWaiting {
			if p.EndedWaiting == nil {
				p.EndedWaiting = map[string]modelRun{}
			}
			p.EndedWaiting[id] = observed(*r)
		}
	}
}

// fillCheckpointStates fills in the states of the checkpoints: from the model, or else by one
// read per checkpoint.
func (h *history) fillCheckpointStates(ctx context.Context, key session.Key, p *modelSession) {
	known := h.sessions[key]
	for i := range p.Checkpoints {
		c := &p.Checkpoints[i]
		if known != nil {
			if at := slices.IndexFunc(known.Checkpoints, func(k modelCheckpoint) bool { return k.ID == c.ID }); at >= 0 {
				c.State = known.Checkpoints[at].State
				continue
			}
		}
		_, state, err := h.store.Checkpoint(ctx, key, c.ID)
		h.must(err)
		c.State = decodeState(h.T, state)
	}
}

func (h *history) observeCalls(ctx context.Context, key session.Key, snapshot *store.Snapshot, p *modelSession) {
	need := session.Need{Journal: true, CallIDs: h.callIDs, Waiting: true, Undo: p.Status == session.Active}
	err := h.store.Update(ctx, []session.Target{{Key: key, Need: need}}, weight, func(views []*session.View) ([]*session.Change, error) {
		v := views[0]
		clear(p.Calls)
		p.Plan, p.PlanWrites, p.Results = "", false, nil
		for _, c := range v.NamedCalls {
			p.Calls[c.CallID] = modelCall{
				Run: c.RunID, Step: c.Step, Deadline: c.DeadlineAt, Answer: c.Answer, Revision: c.Revision, Consumed: c.ConsumedAt != 0,
				Taken: c.ConsumedStep, Late: c.LateAt != 0, LateReported: c.LateReported, LateReportedAt: c.LateReportedStep,
			}
		}
		if p.Status == session.Active {
			p.StartState = decodeState(h.T, v.StartState)
		}
		for i, r := range v.Waiting {
			if c := h.starts[r.RunID]; r.RunID != p.Queue[i].ID || !slices.Equal(r.MessageIDs, idsOf(c.Messages)) {
				return nil, fmt.Errorf("run %q waits with the messages %v", r.RunID, r.MessageIDs)
			}
		}
		if j := v.Journal; j != nil {
			p.Plan, p.PlanWrites = string(j.Plan), len(j.Ops) > 0
			for _, r := range j.Results {
				p.Results = append(p.Results, r.CallID)
			}
		}
		return nil, nil
	})
	h.must(err)
	if p.Status == session.Failed && len(p.Runs) > 0 {
		h.observeStartState(ctx, key, p)
	}
	if waiting := len(p.openCalls()) + len(p.answeredCalls()); len(snapshot.Calls) != waiting {
		h.Fatalf("%v: the snapshot shows %d calls, %d are not consumed", key, len(snapshot.Calls), waiting)
	}
}

// observeStartState reads the start state of a failed session's newest run. The store drops
// the state on a rewind to before it.
func (h *history) observeStartState(ctx context.Context, key session.Key, p *modelSession) {
	err := h.store.Update(ctx, []session.Target{{Key: key, Need: session.Need{Undo: true}}}, weight,
		func(views []*session.View) ([]*session.Change, error) {
			if state := views[0].StartState; state != "" {
				p.StartState = decodeState(h.T, state)
			}
			return nil, nil
		})
	if err != nil {
		p.StartState = nil
	}
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// decodeState splits a custom state into its keys.
func decodeState(t *rapid.T, text string) map[string]string {
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		t.Fatalf("state %q: %v", text, err)
	}
	state := map[string]string{}
	for key, value := range values {
		state[key] = string(value)
	}
	return state
}

// reason returns the fault's reason, or the error's text without one; empty for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if r := fault.ReasonOf(err); r != "" {
		return r
	}
	return err.Error()
}
