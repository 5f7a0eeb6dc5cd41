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

// patience is after how long no new history begins, unless -rapid.checks says
// how many there are to be. A history that has failed is replayed without bounds.
const patience = 8 * time.Second

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
		if bounded && !failing && time.Since(began) > patience {
			return
		}
		count++
		done := false
		defer func() { failing = failing || !done || r.Failed() }()
		w := newWorld(t, s, count)
		w.T = r
		r.Repeat(map[string]func(*rapid.T){"one": w.one, "another": w.one, "a third": w.one, "burst": w.burst, "": w.check})
		done = true
	})
}

// world is a history: what the store should have, and who claims what.
type world struct {
	*rapid.T
	t        *testing.T
	store    store.Store
	name     string // of the history; in all ids that are not of one session
	now      session.Millis
	ids      int
	keys     []session.Key
	sessions map[session.Key]*plain
	claims   map[session.Key][]session.Ref // all that there ever were
	told     []string                      // the calls of any time, for Owner and tombstones
	starts   map[string]session.Post       // by the id of the run
	bursts   bool                          // several commands are under way
}

func newWorld(t *testing.T, s store.Store, n int) *world {
	w := &world{t: t, store: s, name: fmt.Sprint("h", n), now: session.Millis(n) << 32, sessions: map[session.Key]*plain{}, claims: map[session.Key][]session.Ref{}, starts: map[string]session.Post{}}
	for _, tenant := range []string{"a", "b"} {
		for _, id := range []string{"one", "two"} {
			w.keys = append(w.keys, session.Key{Tenant: w.name + tenant, SessionID: id})
		}
	}
	w.announce()
	return w
}

func (w *world) announce() {
	if err := w.store.Announce(w.t.Context(), w.name, []session.Agent{{Type: w.name}}, w.now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) id(prefix string) string {
	w.ids++
	return fmt.Sprint(prefix, w.ids)
}

// one sends a command, and holds all that it answers and does against the
// model.
func (w *world) one(r *rapid.T) {
	w.T = r
	w.now++
	a := w.draw()
	after := maps.Clone(w.sessions)
	for key, p := range after {
		after[key] = p.clone()
	}
	want := a.predict(after)
	for _, p := range after {
		if p == nil {
			continue
		}
		p.forget()
	}
	err := a.send()
	if got := reason(err); got != want {
		w.Fatalf("%s: got %q (%v), want %q", a.name, got, err, want)
	}
	for _, key := range w.keys {
		got := w.observe(key)
		if got != nil && after[key] != nil {
			got.Origins = after[key].Origins
			if got.Status != session.Active {
				after[key].Began = got.Began // where going back has left it unknown, only the store knows
			}
		}
		if !reflect.DeepEqual(normal(got), normal(after[key])) {
			w.Fatalf("%s: %v\n got %+v\nwant %+v\n was %+v", a.name, key, got, after[key], w.sessions[key])
		}
	}
	w.sessions = after
}

// burst sends several commands at once.
func (w *world) burst(r *rapid.T) {
	w.T = r
	acts := make([]act, rapid.IntRange(2, 6).Draw(r, "commands"))
	w.bursts = true
	defer func() { w.bursts = false }()
	for i := range acts {
		w.now++
		acts[i] = w.draw()
	}
	errs := make([]error, len(acts))
	var wg sync.WaitGroup
	for i, a := range acts {
		wg.Go(func() { errs[i] = a.send() })
	}
	wg.Wait()
	before := w.sessions
	w.sessions = map[session.Key]*plain{}
	for _, key := range w.keys {
		if p := w.observe(key); p != nil {
			w.sessions[key] = p
			w.sound(key, before[key], acts)
			w.originate(key, before[key])
		}
	}
	for i, a := range acts {
		w.acknowledged(a, errs[i], acts)
	}
	w.adopt()
}

// acknowledged holds the message of a command against its answer.
func (w *world) acknowledged(a act, err error, acts []act) {
	if err != nil && fault.ReasonOf(err) == "" {
		w.Fatalf("%s: got %v, which is no fault", a.name, err)
	}
	p := w.sessions[a.key]
	undone := slices.ContainsFunc(acts, func(o act) bool { return o.undoes && o.key == a.key })
	if a.message == "" || undone {
		return
	}
	if p != nil && w.elsewhere(p, a) {
		return
	}
	if there := p != nil && slices.Contains(p.Messages, a.message); there != (err == nil) && (there || !a.repeats) {
		w.Fatalf("%s: got %v, and the message is there: %v", a.name, err, there)
	}
}

// elsewhere reports whether the message waits, was given up with its run, or was
// taken back with the run whose step it was.
func (w *world) elsewhere(p *plain, a act) bool {
	if _, gone := p.GivenUp[a.run]; gone || slices.ContainsFunc(p.Queue, func(r plainRun) bool { return r.ID == a.run }) {
		if slices.Contains(p.Messages, a.message) {
			w.Fatalf("%s: the message is in the conversation, and its run has not begun", a.name)
		}
		return true
	}
	_, run, ofStep := strings.Cut(a.message, "@")
	return ofStep && p.run(run) != nil && p.run(run).Undo
}

// sound holds a session against what must hold whatever was sent.
func (w *world) sound(key session.Key, before *plain, acts []act) {
	p := w.sessions[key]
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
		w.Fatalf("%v is %s with %d live runs: %+v", key, p.Status, live, p)
	case len(p.Runs) != int(p.Turn), steps != p.Steps:
		w.Fatalf("%v has %d runs in turn %d, and %d steps of %d", key, len(p.Runs), p.Turn, steps, p.Steps)
	case p.Status.Suspended() && len(p.open()) == 0:
		w.Fatalf("%v waits for nothing: %+v", key, p)
	case len(p.Queue) > 0 && p.Status != session.Active && !p.Status.Suspended():
		w.Fatalf("%v has come to its end, and runs wait: %+v", key, p)
	case len(slices.Compact(slices.Sorted(slices.Values(p.Messages)))) != len(p.Messages):
		w.Fatalf("%v has a message twice: %v", key, p.Messages)
	}
	for i := 1; i < len(p.Checkpoints); i++ {
		if p.Checkpoints[i].Step <= p.Checkpoints[i-1].Step {
			w.Fatalf("%v has checkpoints %+v", key, p.Checkpoints)
		}
	}
	deleted := slices.ContainsFunc(acts, func(a act) bool { return a.deletes && a.key == key })
	if before != nil && !deleted && (p.Epoch < before.Epoch || p.Version < before.Version || p.Steps < before.Steps || p.Turn < before.Turn) {
		w.Fatalf("%v went back from %+v to %+v", key, before, p)
	}
}

// adopt learns the claims that a burst has made.
func (w *world) adopt() {
	for key, p := range w.sessions {
		for _, r := range p.Runs {
			if ref := (session.Ref{Key: key, RunID: r.ID, Epoch: r.Epoch}); r.Epoch > 0 && !slices.Contains(w.claims[key], ref) {
				w.claims[key] = append(w.claims[key], ref)
			}
		}
	}
}

// originate learns the states that the runs of a burst began with. They are known by
// their version, from what stands there before or after, or from a checkpoint; where
// the burst itself has written over one, the store alone knows it.
func (w *world) originate(key session.Key, before *plain) {
	p := w.sessions[key]
	if before != nil {
		maps.Copy(p.Origins, before.Origins)
	}
	for id, run := range p.Runner {
		if p.Origins[run] != nil || p.run(run) == nil {
			continue
		}
		if p.Origins[run] = p.stateOf(p.run(run).FromState, before); p.Origins[run] != nil {
			continue
		}
		target := session.Target{Key: key, Need: session.Need{BackTo: id}}
		w.must(w.store.Update(w.t.Context(), []session.Target{target}, weight, func(views []*session.View) ([]*session.Change, error) {
			p.Origins[run] = decoded(w.T, views[0].Back.State)
			return nil, nil
		}))
	}
}

// stateOf is the state of a version, as far as it can be read but by going back to
// it; nil where it cannot.
func (p *plain) stateOf(version int64, before *plain) map[string]string {
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

// check reads what is stored beside the sessions' own rows.
func (w *world) check(r *rapid.T) {
	w.T = r
	for key, p := range w.sessions {
		for _, i := range []int{0, len(p.Checkpoints) - 1} {
			if i < 0 || i >= len(p.Checkpoints) {
				continue
			}
			want := p.Checkpoints[i]
			got, state, err := w.store.Checkpoint(w.t.Context(), key, want.ID)
			if err != nil || got.Step != want.Step || !maps.Equal(decoded(w.T, state), want.State) {
				w.Fatalf("%v: checkpoint %+v with the state %s, %v; want %+v with %v", key, got, state, err, want, want.State)
			}
		}
	}
}

// observe reads a session; nil when there is none.
func (w *world) observe(key session.Key) *plain {
	ctx := w.t.Context()
	snapshot, err := w.store.Session(ctx, key)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	w.must(err)
	s := snapshot.Session
	p := &plain{
		Status: s.Status, Version: s.Version, Epoch: s.Epoch, Turn: s.Turn, Steps: s.StepCount, Resumes: s.ResumeCount, State: decoded(w.T, s.State), StateVersion: s.StateVersion,
		Runner: map[string]string{}, Origins: map[string]map[string]string{}, Calls: map[string]plainCall{}, Expires: s.ExpiresAt, Interrupted: s.Interruption != nil, Failed: s.Failure != nil,
		Aborted: s.Failure != nil && s.Failure.Code == "framework_cancelled", MaxSteps: s.Failure != nil && s.Failure.Code == mostSteps,
	}
	if s.Status.Suspended() != (s.Suspension != nil) {
		w.Fatalf("%v is %s with the suspension %+v", key, s.Status, s.Suspension)
	}
	messages, total, err := w.store.Messages(ctx, key, store.Page{Limit: 10_000, MaxBytes: 1 << 20})
	w.must(err)
	for i, m := range messages {
		if m.Ordinal != int64(i) || total != int64(len(messages)) || s.MessageCount != total {
			w.Fatalf("%v: got message %d at %d of %d; the session says %d", key, i, m.Ordinal, total, s.MessageCount)
		}
		p.Messages = append(p.Messages, m.ID)
		if m.Role == "user" && m.RunID != "" {
			p.Runner[m.ID] = m.RunID
		}
	}
	w.observeRuns(ctx, key, snapshot, p)
	w.observeCalls(ctx, key, snapshot, p)
	return p
}

func (w *world) observeRuns(ctx context.Context, key session.Key, snapshot *store.Snapshot, p *plain) {
	runs, err := w.store.Runs(ctx, key, 0, 10_000)
	w.must(err)
	slices.Reverse(runs)
	for _, r := range snapshot.Waiting {
		p.Queue = append(p.Queue, observed(r))
	}
	if int(snapshot.Session.Waiting) != len(p.Queue) {
		w.Fatalf("%v: %d runs wait; the session says %d", key, len(p.Queue), snapshot.Session.Waiting)
	}
	w.observeGivenUp(ctx, key, p)
	for i, r := range runs {
		if r.Turn != int32(i)+1 || r.Stop != nil && r.Stop.Kind == "" {
			w.Fatalf("%v: got run %+v at the place of turn %d", key, r, i+1)
		}
		p.Runs = append(p.Runs, observed(r))
	}
	if n := len(runs); n > 0 && (snapshot.Current == nil || snapshot.Current.RunID != runs[n-1].RunID || snapshot.Session.CurrentRunID != runs[n-1].RunID) {
		w.Fatalf("%v: the newest run is %+v; the session says %q", key, runs[n-1], snapshot.Session.CurrentRunID)
	}
	list, total, err := w.store.Checkpoints(ctx, key, 0, 0, 10_000)
	w.must(err)
	if total != int64(len(list)) {
		w.Fatalf("%v: got %d of %d checkpoints", key, len(list), total)
	}
	if newest := append(list, session.Checkpoint{})[0].ID; snapshot.Session.CheckpointID != newest {
		w.Fatalf("%v: the newest checkpoint is %q; the session says %q", key, newest, snapshot.Session.CheckpointID)
	}
	for _, c := range slices.Backward(list) {
		p.Checkpoints = append(p.Checkpoints, plainCheckpoint{ID: c.ID, Step: c.Step, Epoch: c.Epoch, Run: c.RunID, Messages: int(c.MessageCount), StateVersion: c.StateVersion, Failed: c.Status == session.Failed})
	}
	w.remember(ctx, key, p)
}

func observed(r session.Run) plainRun {
	run := plainRun{
		ID: r.RunID, Message: r.MessageID, Key: r.RequestKey, Status: r.Status, Entry: r.Entry, Epoch: r.Epoch, Attempt: r.Attempt, Held: r.ExecutorID != "",
		Due: r.DueAt, Claimed: r.ClaimedAt, Losses: r.Losses, Steps: r.StepCount, Finished: r.FinishStep, Created: r.CreatedAt, Policy: r.OnBusy,
		From: int(r.StartMessageCount), FromState: r.StartStateVersion, FromTurn: int(r.TurnMessageCount),
	}
	if r.Stop != nil {
		run.Stop, run.StopAt, run.Undo = r.Stop.Kind, r.Stop.At, r.Stop.Undo
	}
	if f := r.Outcome.Failure; f != nil {
		run.Failure = f.Error
	}
	return run
}

// observeGivenUp reads the runs that have waited and never began.
func (w *world) observeGivenUp(ctx context.Context, key session.Key, p *plain) {
	for id, c := range w.starts {
		if c.Key != key {
			continue
		}
		r, err := w.store.Run(ctx, key, id)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		w.must(err)
		if r.Turn == 0 && r.Status != session.RunWaiting {
			if p.GivenUp == nil {
				p.GivenUp = map[string]plainRun{}
			}
			p.GivenUp[id] = observed(*r)
		}
	}
}

// remember gives the checkpoints the states that the model knows of them, since
// the store shows those one by one only.
func (w *world) remember(ctx context.Context, key session.Key, p *plain) {
	known := w.sessions[key]
	for i := range p.Checkpoints {
		c := &p.Checkpoints[i]
		if known != nil {
			if at := slices.IndexFunc(known.Checkpoints, func(k plainCheckpoint) bool { return k.ID == c.ID }); at >= 0 {
				c.State = known.Checkpoints[at].State
				continue
			}
		}
		_, state, err := w.store.Checkpoint(ctx, key, c.ID)
		w.must(err)
		c.State = decoded(w.T, state)
	}
}

func (w *world) observeCalls(ctx context.Context, key session.Key, snapshot *store.Snapshot, p *plain) {
	need := session.Need{Journal: true, CallIDs: w.told, Waiting: true, Undo: p.Status == session.Active}
	err := w.store.Update(ctx, []session.Target{{Key: key, Need: need}}, weight, func(views []*session.View) ([]*session.Change, error) {
		v := views[0]
		clear(p.Calls)
		p.Plan, p.PlanWrites, p.Results = "", false, nil
		for _, c := range v.Named {
			p.Calls[c.CallID] = plainCall{
				Run: c.RunID, Step: c.Step, Deadline: c.DeadlineAt, Answer: c.Answer, Revision: c.Revision, Consumed: c.ConsumedAt != 0, Taken: c.ConsumedStep, Late: c.LateAt != 0, Told: c.Told, ToldAt: c.ToldStep,
			}
		}
		if p.Status == session.Active {
			p.Began = decoded(w.T, v.StartState)
		}
		for i, r := range v.Waiting {
			if c := w.starts[r.RunID]; r.RunID != p.Queue[i].ID || !slices.Equal(r.MessageIDs, idsOf(c.Messages)) {
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
	w.must(err)
	if p.Status == session.Failed && len(p.Runs) > 0 {
		w.observeBegan(ctx, key, p)
	}
	if waiting := len(p.open()) + len(p.answered()); len(snapshot.Calls) != waiting {
		w.Fatalf("%v: the snapshot shows %d calls, %d are not consumed", key, len(snapshot.Calls), waiting)
	}
}

// observeBegan reads with what state the newest run of a session that has failed began.
// It is not kept once the session was rewound to before.
func (w *world) observeBegan(ctx context.Context, key session.Key, p *plain) {
	err := w.store.Update(ctx, []session.Target{{Key: key, Need: session.Need{Undo: true}}}, weight, func(views []*session.View) ([]*session.Change, error) {
		if state := views[0].StartState; state != "" {
			p.Began = decoded(w.T, state)
		}
		return nil, nil
	})
	if err != nil {
		p.Began = nil
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// decoded takes a custom state apart.
func decoded(t *rapid.T, text string) map[string]string {
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
