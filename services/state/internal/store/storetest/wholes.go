package storetest

import (
	"strconv"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// wholes write rows that have no empty field, by hand, and read them again.
var wholes = []test{
	{"every field of a session comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true})
		same(b, "inserted", b.snapshot(home).Session, s)
		next := b.whole(f, home)
		next.AgentType, next.ParentID, next.CreatedAt, next.State = s.AgentType, s.ParentID, s.CreatedAt, `{"n":2}`
		b.write(home, &session.Change{Session: &next, NewState: true})
		same(b, "written over", b.snapshot(home).Session, next)
		v := b.view(home, session.Need{State: true})
		same(b, "shown to a command", *v.Session, next)
		list, err := b.Store.Sessions(b.Context(), home.Tenant, store.SessionQuery{Limit: 10})
		b.must(err)
		next.State, next.Output = "", ""
		same(b, "in a list", list, []session.Session{next})
	}},
	{"what a session loses is gone", func(b *bench) {
		s := b.whole(&filler{}, home)
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true})
		bare := session.Session{
			Key: home, AgentType: s.AgentType, ParentID: s.ParentID, RootID: s.RootID, Status: session.Paused, Version: s.Version + 1,
			State: s.State, StateVersion: s.StateVersion, StateBase: s.StateBase, CreatedAt: s.CreatedAt,
		}
		b.write(home, &session.Change{Session: &bare})
		same(b, "session", b.snapshot(home).Session, bare)
	}},
	{"every field of a run comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		r := fill[session.Run](f)
		r.ExecutorID, r.Outcome.Status = "", r.Status // nobody holds what has ended
		s.CurrentRunID, s.Turn = r.RunID, r.Turn
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, NewRun: &r})
		same(b, "inserted", *b.snapshot(home).Current, r)
		next := fill[session.Run](f)
		next.ExecutorID, next.Outcome.Status = "", next.Status
		next.RunID, next.AgentType, next.Turn, next.RequestKey, next.RequestHash = r.RunID, r.AgentType, r.Turn, r.RequestKey, r.RequestHash
		next.Entry, next.MessageID, next.Traceparent, next.Tracestate, next.CreatedAt = r.Entry, r.MessageID, r.Traceparent, r.Tracestate, r.CreatedAt
		next.DeadlineAt, next.OnBusy, next.Place = r.DeadlineAt, r.OnBusy, r.Place
		next.StartMessageCount, next.StartStateVersion, next.StartStateBase = r.StartMessageCount, r.StartStateVersion, r.StartStateBase
		next.TurnMessageCount = r.TurnMessageCount
		b.write(home, &session.Change{Runs: []session.Run{next}})
		got, err := b.Store.Run(b.Context(), home, r.RunID)
		b.must(err)
		same(b, "written over", *got, next)
		v := b.view(home, session.Need{RunID: r.RunID, RequestKey: r.RequestKey, Current: true})
		same(b, "shown by id", *v.Run, next)
		same(b, "shown by key", *v.Keyed, next)
		same(b, "shown as the newest", *v.Current, next)
		runs, err := b.Store.Runs(b.Context(), home, 0, 10)
		b.must(err)
		next.Outcome.Output = ""
		same(b, "in a list", runs, []session.Run{next})
		next.Stop, next.Outcome, next.DueAt = nil, session.Outcome{Status: next.Status}, 0
		b.write(home, &session.Change{Runs: []session.Run{next}})
		same(b, "emptied", *b.snapshot(home).Current, next)
	}},
	{"every field of a call comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		c := fill[session.Call](f)
		c.SessionID, c.ConsumedAt = home.SessionID, 0
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, NewCalls: []session.Call{c}})
		same(b, "inserted", b.snapshot(home).Calls, []session.Call{c})
		next := fill[session.Call](f)
		next.CallID, next.SessionID, next.RunID, next.Step, next.StepID, next.ToolName = c.CallID, c.SessionID, c.RunID, c.Step, c.StepID, c.ToolName
		next.Kind, next.ApprovalID, next.Input, next.Stash, next.CreatedAt, next.DeadlineAt = c.Kind, c.ApprovalID, c.Input, c.Stash, c.CreatedAt, c.DeadlineAt
		b.write(home, &session.Change{Calls: []session.Call{next}})
		same(b, "written over", b.view(home, session.Need{CallIDs: []string{c.CallID, "another"}}).Named, []session.Call{next})
		same(b, "a tombstone in a snapshot", b.snapshot(home).Calls, []session.Call(nil))
		next.Told = false
		b.write(home, &session.Change{Calls: []session.Call{next}})
		same(b, "late and not told", b.view(home, session.Need{Calls: true}).Calls, []session.Call{next})
		b.write(home, &session.Change{DropCalls: []string{c.CallID}})
		same(b, "dropped", b.view(home, session.Need{CallIDs: []string{c.CallID}}).Named, []session.Call(nil))
	}},
	{"every field of a sub-session comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		c := fill[session.Child](f)
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, Children: []session.Child{c}})
		same(b, "inserted", b.snapshot(home).Children, []session.Child{c})
		next, other := fill[session.Child](f), fill[session.Child](f)
		next.SessionID, other.SessionID, other.Location, other.Remote = c.SessionID, "a first one", session.Local, ""
		b.write(home, &session.Change{Children: []session.Child{next, other}})
		same(b, "written over", b.snapshot(home).Children, []session.Child{other, next})
		same(b, "shown to a command", b.view(home, session.Need{Children: true}).Children, []session.Child{other, next})
	}},
	{"every field of a checkpoint comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		c := fill[session.Checkpoint](f)
		c.StateVersion, c.StateBase, s.StepCount = s.StateVersion, s.StateBase, c.Step
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, Checkpoint: &c})
		steps := b.readSteps(home, store.StepPage{Limit: 1, MaxBytes: 1})
		same(b, "as a stored step", steps.Page, []session.StoredStep{{Checkpoint: c, BeginsRun: true}})
		c.Record = nil // only steps show it
		for _, id := range []string{c.ID, ""} {
			got, state, err := b.Store.Checkpoint(b.Context(), home, id)
			b.must(err)
			same(b, "alone", *got, c)
			same(b, "state", state, s.State)
		}
		same(b, "in a list", b.checkpoints(home), []session.Checkpoint{c})
		v := b.view(home, session.Need{CheckpointID: c.ID})
		same(b, "shown by id", *v.Checkpoint, c)
		same(b, "state shown", v.CheckpointState, s.State)
		same(b, "shown by step", *b.view(home, session.Need{CheckpointAt: c.Step}).Checkpoint, c)
		if v := b.view(home, session.Need{CheckpointAt: c.Step - 1}); v.Checkpoint != nil {
			b.Error("a checkpoint was shown for a step that is not the last one")
		}
	}},
	{"every field of a usage entry comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		entries := []session.UsageEntry{fill[session.UsageEntry](f), fill[session.UsageEntry](f)}
		entries[1].RunID, entries[1].Success = "", false
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, Usage: entries})
		same(b, "entries", b.usage(home), entries)
	}},
	{"every field of a message comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		m := []session.Message{fill[session.Message](f), fill[session.Message](f)}
		m[0].Ordinal, m[1].Ordinal, m[1].Body, s.MessageCount = 0, 1, nil, 2
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, Messages: m})
		same(b, "messages", b.messages(home), m)
		same(b, "tail", b.view(home, session.Need{Tail: session.Tail{Messages: 5, Bytes: 100}}).Tail, m)
	}},
	{"every field of a journal comes back", func(b *bench) {
		f := &filler{}
		s := b.whole(f, home)
		j := fill[session.Journal](f)
		results := j.Results
		j.Results = nil
		b.write(home, &session.Change{Session: &s, Created: true, NewState: true, Plan: &j})
		for i := range results {
			results[i].CallID = strconv.Itoa(9 - i)
			b.write(home, &session.Change{Result: &results[i], ResultAt: int32(i)})
		}
		j.Results = results
		same(b, "journal", *b.view(home, session.Need{Journal: true}).Journal, j)
		b.write(home, &session.Change{ClearJournal: true})
		if v := b.view(home, session.Need{Journal: true}); v.Journal != nil {
			b.Errorf("got a journal %+v after it was cleared", v.Journal)
		}
	}},
	{"every field of a memory comes back", func(b *bench) {
		f := &filler{}
		m := fill[session.Memory](f)
		m.Text = "a red House"
		b.remember("acme", m, true)
		next := fill[session.Memory](f)
		next.ID = m.ID
		b.remember("acme", next, false)
		next.CreatedAt = m.CreatedAt
		got, err := b.Store.Memory(b.Context(), "acme", m.ID)
		b.must(err)
		same(b, "memory", *got, next)
		found, err := b.Store.Recall(b.Context(), "acme", store.MemoryQuery{Limit: 10})
		b.must(err)
		same(b, "recalled", found, []store.Recalled{{Memory: next}})
	}},
	{"a view shows what was asked for and no more", func(b *bench) {
		b.suspended(home, "c1")
		v := b.view(home, session.Need{})
		v.Session = nil
		same(b, "view", *v, session.View{})
		v = b.view(home, session.Need{Current: true, Open: true, State: true, Journal: true, Calls: true, Children: true, AgentType: agent, CheckpointAt: 1})
		if v.Current == nil || v.Live != nil || v.Session.State == "" || len(v.Calls) != 1 || !v.AgentKnown || v.Checkpoint == nil {
			b.Errorf("got %+v", v)
		}
		same(b, "view of nobody", *b.view(at("nobody"), session.Need{Current: true, Open: true, State: true, CallIDs: []string{"c1"}}), session.View{})
	}},
}

// whole is a row without an empty field, of a session that is a family of its own.
func (b *bench) whole(f *filler, key session.Key) session.Session {
	s := fill[session.Session](f)
	s.Key, s.RootID, s.State, s.StateBase = key, key.SessionID, `{"n":1}`, s.StateVersion
	s.Version = s.StateVersion + 2
	return s
}

// write writes a change that no command of the heart makes.
func (b *bench) write(key session.Key, c *session.Change) {
	b.Helper()
	b.must(b.tryWrite(key, c))
}

func (b *bench) tryWrite(key session.Key, c *session.Change) error {
	return b.Store.Update(b.Context(), []session.Target{{Key: key}}, weight, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{c}, nil
	})
}

// view returns what a command is shown.
func (b *bench) view(key session.Key, need session.Need) (view *session.View) {
	b.Helper()
	err := b.Store.Update(b.Context(), []session.Target{{Key: key, Need: need}}, weight, func(views []*session.View) ([]*session.Change, error) {
		view = views[0]
		return nil, nil
	})
	b.must(err)
	return view
}
