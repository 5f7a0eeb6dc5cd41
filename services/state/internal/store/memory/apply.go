package memory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// apply writes one change of the command.
func (t *tx) apply(key session.Key, c *session.Change) error {
	old := t.rows(key)
	if c.Delete {
		t.written[key] = nil
		return nil
	}
	var r *rows
	switch {
	case old != nil:
		r = old.fork()
	case c.Created && c.Session != nil:
		r = &rows{places: map[string]int{}}
	default:
		return fmt.Errorf("write session %q of tenant %q: there is no such session", key.SessionID, key.Tenant)
	}
	if err := t.change(r, old, key, c); err != nil {
		return fmt.Errorf("write session %q of tenant %q: %w", key.SessionID, key.Tenant, err)
	}
	t.written[key] = r
	return nil
}

// change writes the parts of a change. Runs that end make room for the new one.
func (t *tx) change(r, old *rows, key session.Key, c *session.Change) error {
	if c.Session != nil {
		if c.Created && old != nil {
			return errors.New("the session exists")
		}
		if err := validSession(key, c.Session); err != nil {
			return err
		}
		r.session = copySession(*c.Session)
		r.session.State = ""
	}
	if c.Rewind != nil {
		r.rewind(c.Rewind)
	}
	if c.Copy != nil {
		if err := t.copyMessages(r, key.Tenant, c.Copy); err != nil {
			return err
		}
	}
	steps := []func(*session.Change) error{r.writeState, r.writeRuns, r.writeHeld, r.writeMessages, r.writeJournal, r.writeLedger}
	for _, step := range steps {
		if err := step(c); err != nil {
			return err
		}
	}
	if err := t.writeCalls(r, c); err != nil {
		return err
	}
	return r.writeChildren(c)
}

// rewind takes messages, checkpoints, states and calls away. A checkpoint goes with
// its state too. The lists are cut so that what comes next is put elsewhere: older
// rows share them.
func (r *rows) rewind(w *session.Rewind) {
	keep := min(w.Messages, int64(len(r.messages)))
	r.messages = r.messages[:keep:keep]
	r.places = maps.Clone(r.places)
	gone := func(version int64) bool { return w.StateVersion != 0 && version > w.StateVersion }
	r.checkpoints = slices.DeleteFunc(slices.Clone(r.checkpoints), func(c session.Checkpoint) bool {
		return c.MessageCount > w.Messages || gone(c.StateVersion) || w.RunID != "" && c.RunID == w.RunID || w.Step > 0 && c.Step > w.Step
	})
	r.states = slices.DeleteFunc(slices.Clone(r.states), func(s state) bool { return gone(s.version) })
	if w.CallsFrom > 0 {
		r.calls = slices.DeleteFunc(r.calls, func(c session.Call) bool { return c.Step >= w.CallsFrom })
	}
}

func (t *tx) copyMessages(r *rows, tenant string, c *session.Copy) error {
	from := t.rows(session.Key{Tenant: tenant, SessionID: c.From})
	if from == nil || int64(len(from.messages)) < c.Messages {
		return fmt.Errorf("session %q has no %d messages to copy", c.From, c.Messages)
	}
	return r.appendMessages(from.messages[:c.Messages])
}

func (r *rows) writeState(c *session.Change) error {
	s := c.Session
	switch {
	case c.NewState:
		if s == nil || s.State == "" {
			return errors.New("there is no state to keep")
		}
		return r.appendState(state{version: s.StateVersion, base: s.StateVersion, text: s.State})
	case len(c.StateWrite) > 0:
		text, err := json.Marshal(c.StateWrite)
		if err != nil || s == nil || s.StateBase >= s.StateVersion {
			return errors.Join(errors.New("the state's write has no base"), err)
		}
		return r.appendState(state{version: s.StateVersion, base: s.StateBase, text: string(text)})
	}
	return nil
}

func (r *rows) appendState(s state) error {
	if slices.ContainsFunc(r.states, func(o state) bool { return o.version == s.version }) {
		return fmt.Errorf("there are two states of version %d", s.version)
	}
	r.states = append(r.states, s)
	return nil
}

func (r *rows) writeRuns(c *session.Change) error {
	written := slices.Clone(c.Runs)
	if c.Begun != nil {
		written = append(written, *c.Begun)
	}
	for i := range written {
		old := r.run(written[i].RunID)
		if old == nil {
			return fmt.Errorf("there is no run %q", written[i].RunID)
		}
		*old = stored(&written[i])
	}
	if n := c.NewRun; n != nil {
		twin := func(o *session.Run) bool {
			return o.RunID == n.RunID || n.Turn > 0 && o.Turn == n.Turn || n.RequestKey != "" && o.RequestKey == n.RequestKey
		}
		if r.find(twin) != nil {
			return fmt.Errorf("there is a run of the id %q, the turn %d or the request key %q", n.RunID, n.Turn, n.RequestKey)
		}
		r.runs = append(r.runs, stored(n))
	}
	slices.SortStableFunc(r.runs, func(a, b session.Run) int { return cmp.Compare(a.Turn, b.Turn) })
	live := 0
	for i := range r.runs {
		run := &r.runs[i]
		if err := validRun(run); err != nil {
			return err
		}
		if run.Status.Live() {
			live++
		}
	}
	if live > 1 {
		return fmt.Errorf("there are %d live runs", live)
	}
	return nil
}

func (r *rows) writeHeld(c *session.Change) error {
	for _, id := range c.Unheld {
		delete(r.held, id)
	}
	if c.Held == nil {
		return nil
	}
	if c.NewRun == nil {
		return errors.New("something is held for no run")
	}
	if r.held == nil {
		r.held = map[string]session.Held{}
	}
	r.held[c.NewRun.RunID] = copyHeld(*c.Held)
	return nil
}

// stored is the run as a row: the status of its outcome is that of the run.
func stored(run *session.Run) session.Run {
	r := *copyRun(run)
	r.Outcome.Status = ""
	if r.Status.Over() {
		r.Outcome.Status = r.Status
	}
	return r
}

func (r *rows) writeMessages(c *session.Change) error { return r.appendMessages(c.Messages) }

// appendMessages checks that ordinals follow each other and ids differ.
func (r *rows) appendMessages(messages []session.Message) error {
	for _, m := range copyMessages(messages) {
		if m.Ordinal != int64(len(r.messages)) {
			return fmt.Errorf("message %q has the ordinal %d", m.ID, m.Ordinal)
		}
		if m.ID == "" || r.hasMessage(m.ID) {
			return fmt.Errorf("there are two messages %q, or it is empty", m.ID)
		}
		r.places[m.ID] = len(r.messages)
		r.messages = append(r.messages, m)
	}
	return nil
}

func (r *rows) writeJournal(c *session.Change) error {
	if c.Plan != nil {
		if r.journal != nil {
			return errors.New("there is a plan")
		}
		r.journal = copyJournal(c.Plan)
		r.journal.Results = nil
	}
	if c.Result != nil {
		if r.journal == nil || int(c.ResultAt) != len(r.journal.Results) {
			return errors.New("the result has no place in the journal")
		}
		if slices.ContainsFunc(r.journal.Results, func(o session.Result) bool { return o.CallID == c.Result.CallID }) {
			return fmt.Errorf("there are two results of call %q", c.Result.CallID)
		}
		r.journal.Results = append(r.journal.Results, copyResult(*c.Result))
	}
	if c.ClearJournal {
		r.journal = nil
	}
	return nil
}

// writeLedger writes what only grows: the checkpoint and the usage.
func (r *rows) writeLedger(c *session.Change) error {
	if n := c.Checkpoint; n != nil {
		if n.Step < 1 || n.ID == "" || r.checkpoint(func(o *session.Checkpoint) bool { return o.Step == n.Step || o.ID == n.ID }) != nil {
			return fmt.Errorf("there are two checkpoints of step %d, or with the id %q", n.Step, n.ID)
		}
		stored := *copyCheckpoint(n)
		stored.Record = append([]byte(nil), n.Record...)
		r.checkpoints = append(r.checkpoints, stored)
	}
	for _, n := range c.Usage {
		twin := func(o session.UsageEntry) bool {
			return o.RunID == n.RunID && o.Step == n.Step && o.Position == n.Position
		}
		if slices.ContainsFunc(r.usage, twin) {
			return fmt.Errorf("there are two usage entries of run %q, step %d, place %d", n.RunID, n.Step, n.Position)
		}
		r.usage = append(r.usage, n)
	}
	return nil
}

func (t *tx) writeCalls(r *rows, c *session.Change) error {
	r.calls = slices.DeleteFunc(r.calls, func(call session.Call) bool { return slices.Contains(c.DropCalls, call.CallID) })
	for _, n := range c.NewCalls {
		twin := func(o *session.Call) bool { return o.CallID == n.CallID }
		others := slices.DeleteFunc(t.family(r.root()), func(o *rows) bool { return o.session.Key == r.session.Key })
		if len(callsWhere(append(others, r), twin)) > 0 {
			return fmt.Errorf("there are two calls %q", n.CallID)
		}
		if err := validCall(r.session.Key, &n); err != nil {
			return err
		}
		r.calls = append(r.calls, copyCall(n))
	}
	for _, n := range c.Calls {
		old := r.call(n.CallID)
		if old == nil {
			return fmt.Errorf("there is no call %q", n.CallID)
		}
		if err := validCall(r.session.Key, &n); err != nil {
			return err
		}
		*old = copyCall(n)
	}
	return nil
}

func (r *rows) writeChildren(c *session.Change) error {
	for _, child := range c.Children {
		if err := validChild(&child); err != nil {
			return err
		}
		at, known := slices.BinarySearchFunc(r.children, child.SessionID, func(o session.Child, id string) int { return cmp.Compare(o.SessionID, id) })
		if known {
			r.children[at] = child
		} else {
			r.children = slices.Insert(r.children, at, child)
		}
	}
	return nil
}
