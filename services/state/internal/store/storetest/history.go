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

// historyTime is after how long no new history begins, unless -rapid.checks says
// how many there are to be. A history that has failed is replayed without bounds.
const historyTime = 8 * time.Second

// Machine holds a store against a plain model over random histories. Commands
// that are sent one after the other have to do exactly what the model says, in all
// that can be read. Commands that are sent at once have to leave the store in
// a state that is sound, with each write that was acknowledged and none that was
// refused.
//
// All histories happen in one store, each under ids of its own.
func Machine(t *testing.T, open func(testing.TB) store.Store) {
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
		r.Repeat(map[string]func(*rapid.T){"one": h.sendOne, "another": h.sendOne, "a third": h.sendOne, "burst": h.sendBurst, "": h.checkCheckpoints})
		done = true
	})
}

// history is a history: what the store should have, and who claims what.
type history struct {
	*rapid.T
	t        *testing.T
	store    store.Store
	name     string // of the history; in all ids that are not of one session
	now      session.Millis
	ids      int
	keys     []session.Key
	sessions map[session.Key]*modelSession
	claims   map[session.Key][]session.Ref // all that there ever were
	callIDs  []string                      // the calls of any time, for Owner and tombstones
	starts   map[string]session.Post       // by the id of the run
	bursting bool                          // several commands are under way
}

func newHistory(t *testing.T, s store.Store, n int) *history {
	h := &history{t: t, store: s, name: fmt.Sprint("h", n), now: session.Millis(n) << 32, sessions: map[session.Key]*modelSession{}, claims: map[session.Key][]session.Ref{}, starts: map[string]session.Post{}}
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

// sendOne sends a command, and holds all that it answers and does against the
// model.
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
				after[key].StartState = got.StartState // where going back has left it unknown, only the store knows
			}
		}
		if !reflect.DeepEqual(normal(got), normal(after[key])) {
			h.Fatalf("%s: %v\n got %+v\nwant %+v\n was %+v", a.name, key, got, after[key], h.sessions[key])
		}
	}
	h.sessions = after
}

// sendBurst sends several commands at once.
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

// checkAcknowledged holds the message of a command against its answer.
func (h *history) checkAcknowledged(a action, err error, acts []action) {
	if err != nil && fault.ReasonOf(err) == "" {
		h.Fatalf("%s: got %v, which is no fault", a.name, err)
	}
	p := h.sessions[a.key]
	undone := slices.ContainsFunc(acts, func(o action) bool { return o.undoes && o.key == a.key })
	if a.message == "" || undone {
		return
	}
	if p != nil && h.isOutsideConversation(p, a) {
		return
	}
	if there := p != nil && slices.Contains(p.Messages, a.message); there != (err == nil) && (there || !a.repeats) {
		h.Fatalf("%s: got %v, and the message is there: %v", a.name, err, there)
	}
}

// isOutsideConversation reports whether the message waits, was given up with its run, or was
// taken back with the run whose step it was.
func (h *history) isOutsideConversation(p *modelSession, a action) bool {
	if _, gone := p.EndedWaiting[a.run]; gone || slices.ContainsFunc(p.Queue, func(r modelRun) bool { return r.ID == a.run }) {
		if slices.Contains(p.Messages, a.message) {
			h.Fatalf("%s: the message is in the conversation, and its run has not begun", a.name)
		}
		return true
	}
	_, run, ofStep := strings.Cut(a.message, "@")
	return ofStep && p.run(run) != nil && p.run(run).Rollback
}

// checkInvariants holds a session against what must hold whatever was sent.
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
		h.Fatalf("%v waits for nothing: %+v", key, p)
	case len(p.Queue) > 0 && p.Status != session.Active && !p.Status.Suspended():
		h.Fatalf("%v has come to its end, and runs wait: %+v", key, p)
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

// adoptClaims learns the claims that a burst has made.
func (h *history) adoptClaims() {
	for key, p := range h.sessions {
		for _, r := range p.Runs {
			if ref := (session.Ref{Key: key, RunID: r.ID, Epoch: r.Epoch}); r.Epoch > 0 && !slices.Contains(h.claims[key], ref) {
				h.claims[key] = append(h.claims[key], ref)
			}
		}
	}
}

// recordStartStates learns the states that the runs of a burst began with. They are known by
// their version, from what stands there before or after, or from a checkpoint; where
// the burst itself has written over one, the store alone knows it.
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
		target := session.Target{Key: key, Need: session.Need{BackTo: id}}
		h.must(h.store.Update(h.t.Context(), []session.Target{target}, weight, func(views []*session.View) ([]*session.Change, error) {
			p.StartStates[run] = decodeState(h.T, views[0].Back.State)
			return nil, nil
		}))
	}
}

// stateOf is the state of a version, as far as it can be read but by going back to
// it; nil where it cannot.
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

// checkCheckpoints reads what is stored beside the sessions' own rows.
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

// observe reads a session; nil when there is none.
func (h *history) observe(key session.Key) *modelSession {
	ctx := h.t.Context()
	snapshot, err := h.store.Session(ctx, key)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	h.must(err)
	s := snapshot.Session
	p := &modelSession{
		Status: s.Status, Version: s.Version, Epoch: s.Epoch, Turn: s.Turn, Steps: s.StepCount, Resumes: s.ResumeCount, State: decodeState(h.T, s.State), StateVersion: s.StateVersion,
		RunByMessage: map[string]string{}, StartStates: map[string]map[string]string{}, Calls: map[string]modelCall{}, Expires: s.ExpiresAt, Interrupted: s.Interruption != nil, Failed: s.Failure != nil,
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
	h.observeGivenUp(ctx, key, p)
	for i, r := range runs {
		if r.Turn != int32(i)+1 || r.Stop != nil && r.Stop.Kind == "" {
			h.Fatalf("%v: got run %+v at the place of turn %d", key, r, i+1)
		}
		p.Runs = append(p.Runs, observed(r))
	}
	if n := len(runs); n > 0 && (snapshot.Current == nil || snapshot.Current.RunID != runs[n-1].RunID || snapshot.Session.CurrentRunID != runs[n-1].RunID) {
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
		p.Checkpoints = append(p.Checkpoints, modelCheckpoint{ID: c.ID, Step: c.Step, Epoch: c.Epoch, Run: c.RunID, Messages: int(c.MessageCount), StateVersion: c.StateVersion, Failed: c.Status == session.Failed})
	}
	h.remember(ctx, key, p)
}

func observed(r session.Run) modelRun {
	run := modelRun{
		ID: r.RunID, Message: r.MessageID, Key: r.RequestKey, Status: r.Status, Entry: r.Entry, Epoch: r.Epoch, Attempt: r.Attempt, Held: r.ExecutorID != "",
		Due: r.DueAt, Claimed: r.ClaimedAt, Losses: r.Losses, Steps: r.StepCount, Finished: r.FinishStep, Created: r.CreatedAt, Policy: r.OnBusy,
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

// observeGivenUp reads the runs that have waited and never began.
func (h *history) observeGivenUp(ctx context.Context, key session.Key, p *modelSession) {
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

// remember gives the checkpoints the states that the model knows of them, since
// the store shows those one by one only.
func (h *history) remember(ctx context.Context, key session.Key, p *modelSession) {
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
		for _, c := range v.Named {
			p.Calls[c.CallID] = modelCall{
				Run: c.RunID, Step: c.Step, Deadline: c.DeadlineAt, Answer: c.Answer, Revision: c.Revision, Consumed: c.ConsumedAt != 0, Taken: c.ConsumedStep, Late: c.LateAt != 0, LateReported: c.Told, LateReportedAt: c.ToldStep,
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
		h.observeBegan(ctx, key, p)
	}
	if waiting := len(p.openCalls()) + len(p.answeredCalls()); len(snapshot.Calls) != waiting {
		h.Fatalf("%v: the snapshot shows %d calls, %d are not consumed", key, len(snapshot.Calls), waiting)
	}
}

// observeBegan reads with what state the newest run of a session that has failed began.
// It is not kept once the session was rewound to before.
func (h *history) observeBegan(ctx context.Context, key session.Key, p *modelSession) {
	err := h.store.Update(ctx, []session.Target{{Key: key, Need: session.Need{Undo: true}}}, weight, func(views []*session.View) ([]*session.Change, error) {
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

// decodeState takes a custom state apart.
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

// reason is the fault's reason; an error without one is itself.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if r := fault.ReasonOf(err); r != "" {
		return r
	}
	return err.Error()
}
