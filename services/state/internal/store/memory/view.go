package memory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// view shows what need names of a session.
func (t *tx) view(key session.Key, need session.Need) (v *session.View, err error) {
	v = &session.View{}
	_, v.AgentKnown = t.m.agents[need.AgentType]
	v.ExecutorLives = need.Executor != "" && t.m.lives(need.Executor)
	r := t.rows(key)
	if r == nil {
		return v, nil
	}
	s := copySession(r.session)
	v.Session = &s
	if need.State || need.Written && r.journal.Writes() {
		if s.State, err = r.state(s.StateBase, s.StateVersion); err != nil {
			return nil, err
		}
	}
	r.viewRuns(need, v)
	if need.Journal {
		v.Journal = copyJournal(r.journal)
	}
	if err := r.viewCheckpoint(need, v); err != nil {
		return nil, err
	}
	for _, id := range need.MessageIDs {
		if r.hasMessage(id) {
			v.Taken, v.TakenAt = append(v.Taken, id), append(v.TakenAt, int64(r.places[id]))
		}
	}
	t.viewCalls(r, need, v)
	if need.Children {
		v.Children = slices.Clone(r.children)
	}
	v.Tail = r.tail(need.Tail)
	t.viewWaiting(r, need, v)
	r.viewBack(need, v)
	r.viewAnswer(need, v)
	r.viewFailed(need, v)
	if need.Undo {
		r.viewUndo(v)
	}
	return v, nil
}

// viewBack shows what there is around the message that the session is to be taken
// back to.
func (r *rows) viewBack(need session.Need, v *session.View) {
	if need.BackTo == "" || !r.hasMessage(need.BackTo) {
		return
	}
	at := r.places[need.BackTo]
	b := &session.Back{Message: copyMessages(r.messages[at : at+1])[0]}
	b.Run = copyRun(r.run(b.Message.RunID))
	for _, m := range slices.Backward(r.messages[:at]) {
		if m.Step > 0 {
			b.Before = m.Step
			break
		}
	}
	b.Checkpoint = r.checkpoint(func(c *session.Checkpoint) bool {
		later := b.Run != nil && b.Run.StartStateVersion > 0 && c.StateVersion > b.Run.StartStateVersion
		return c.MessageCount <= int64(at) && !later
	})
	if version, base, known := b.Origin(); known {
		b.State, _ = r.state(base, version) // it may be kept no more
	}
	took := r.took(b.Before)
	for _, m := range r.messages[at+1:] {
		if m.Role == "tool" && took[m.Step] {
			b.Results = append(b.Results, copyMessages([]session.Message{m})...)
		}
	}
	b.Told = callsWhere([]*rows{r}, func(c *session.Call) bool { return c.Step <= b.Before && c.ToldStep > b.Before })
	slices.SortFunc(b.Told, func(a, b session.Call) int { return strings.Compare(a.CallID, b.CallID) })
	v.Back = b
}

// took are the steps that have consumed answers to calls of steps up to the one given.
func (r *rows) took(before int32) map[int32]bool {
	steps := map[int32]bool{}
	for _, c := range r.calls {
		if c.ConsumedStep > 0 && c.Step <= before {
			steps[c.ConsumedStep] = true
		}
	}
	return steps
}

func (t *tx) viewWaiting(r *rows, need session.Need, v *session.View) {
	if need.Busy {
		v.OnBusy = cmp.Or(t.m.agents[r.session.AgentType].OnBusy, session.BusyReject)
	}
	if !need.Waiting {
		return
	}
	for _, run := range r.waiting() {
		held := copyHeld(r.held[run.RunID])
		if v.Held == nil {
			v.Held = &held
		}
		v.Waiting = append(v.Waiting, session.Waiting{Run: run, MessageIDs: held.MessageIDs()})
	}
}

// viewUndo shows what is left when the newest run is taken back.
func (r *rows) viewUndo(v *session.View) {
	run := r.run(r.session.CurrentRunID)
	if run == nil {
		return
	}
	before := r.session.StepCount - run.StepCount
	v.Former = r.checkpoint(func(c *session.Checkpoint) bool { return c.Step <= before })
	took := r.took(before)
	for _, m := range r.messages[min(run.StartMessageCount, int64(len(r.messages))):] {
		if run.Spares(m, func(step int32) bool { return took[step] }) {
			v.Kept = append(v.Kept, copyMessages([]session.Message{m})...)
		}
	}
	v.Told = callsWhere([]*rows{r}, func(c *session.Call) bool { return c.ToldStep > before })
	slices.SortFunc(v.Told, func(a, b session.Call) int { return strings.Compare(a.CallID, b.CallID) })
	if run.StartStateVersion > 0 {
		v.StartState, _ = r.state(run.StartStateBase, run.StartStateVersion) // it may be kept no more
	}
}

func (r *rows) viewRuns(need session.Need, v *session.View) {
	v.Run = copyRun(r.run(need.RunID))
	if need.RequestKey != "" {
		v.Keyed = copyRun(r.find(func(run *session.Run) bool { return run.RequestKey == need.RequestKey }))
	}
	if need.Current {
		v.Current = copyRun(r.run(r.session.CurrentRunID))
	}
	if need.Open {
		v.Live = copyRun(r.live())
	}
}

func (r *rows) viewCheckpoint(need session.Need, v *session.View) (err error) {
	switch {
	case need.CheckpointID != "":
		v.Checkpoint = r.checkpoint(func(c *session.Checkpoint) bool { return c.ID == need.CheckpointID })
		if v.Checkpoint != nil {
			v.CheckpointState, err = r.state(v.Checkpoint.StateBase, v.Checkpoint.StateVersion)
		}
	case need.CheckpointBelow > 0:
		v.Checkpoint = r.checkpoint(func(c *session.Checkpoint) bool { return c.MessageCount < need.CheckpointBelow })
	case need.CheckpointAt != 0 && need.CheckpointAt == r.session.StepCount:
		v.Checkpoint = r.checkpoint(func(c *session.Checkpoint) bool { return c.Step == need.CheckpointAt })
	}
	return err
}

func (t *tx) viewCalls(r *rows, need session.Need, v *session.View) {
	if need.Calls {
		v.Calls = callsWhere([]*rows{r}, func(c *session.Call) bool { return c.ConsumedAt == 0 || c.LateAt > 0 && !c.Told })
	}
	if len(need.CallIDs) > 0 {
		v.Named = callsWhere(t.family(r.root()), func(c *session.Call) bool { return slices.Contains(need.CallIDs, c.CallID) })
		slices.SortFunc(v.Named, func(a, b session.Call) int { return strings.Compare(a.CallID, b.CallID) })
	}
}

func (r *rows) tail(t session.Tail) []session.Message {
	from, size := len(r.messages), 0
	for from > 0 && len(r.messages)-from < t.Messages {
		size += len(r.messages[from-1].Body)
		if size > t.Bytes && from < len(r.messages) {
			break
		}
		from--
	}
	return copyMessages(r.messages[from:])
}
