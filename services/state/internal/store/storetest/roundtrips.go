package storetest

import (
	"strconv"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// roundTrips write rows without an empty field and read them.
var roundTrips = []suiteCase{
	{"every field of a session is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true})
		same(h, "inserted", h.snapshot(home).Session, s)
		next := h.filledSession(f, home)
		next.AgentType, next.ParentID, next.Depth, next.CreatedAt, next.State = s.AgentType, s.ParentID, s.Depth, s.CreatedAt, `{"n":2}`
		h.write(home, &session.Change{Session: &next, NewState: true})
		same(h, "overwritten", h.snapshot(home).Session, next)
		v := h.readView(home, session.Need{State: true})
		same(h, "shown to a command", *v.Session, next)
		list, err := h.Store.Sessions(h.Context(), home.Tenant, store.SessionQuery{Limit: 10})
		h.must(err)
		next.State, next.Output = "", ""
		same(h, "in a list", list, []session.Session{next})
	}},
	{"a removed session property is deleted", func(h *harness) {
		s := h.filledSession(&filler{}, home)
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true})
		bare := session.Session{
			Key: home, AgentType: s.AgentType, ParentID: s.ParentID, RootID: s.RootID, Depth: s.Depth, Status: session.Paused,
			Version: s.Version + 1,
			State:   s.State, StateVersion: s.StateVersion, StateBase: s.StateBase, CreatedAt: s.CreatedAt,
		}
		h.write(home, &session.Change{Session: &bare})
		same(h, "session", h.snapshot(home).Session, bare)
	}},
	{"every field of a run is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		r := filled[session.Run](f)
		r.ExecutorID, r.Outcome.Status = "", r.Status // an ended run has no executor
		s.CurrentRunID, s.Turn = r.RunID, r.Turn
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, NewRun: &r})
		same(h, "inserted", *h.snapshot(home).Current, r)
		next := filled[session.Run](f)
		next.ExecutorID, next.Outcome.Status = "", next.Status
		next.RunID, next.AgentType, next.Turn, next.RequestKey, next.RequestHash = r.RunID, r.AgentType, r.Turn, r.RequestKey, r.RequestHash
		next.StoredAgent = r.StoredAgent
		next.Entry, next.MessageID, next.Traceparent, next.Tracestate, next.StartedBy, next.Author, next.CreatedAt = r.Entry, r.MessageID,
			r.Traceparent, r.Tracestate, r.StartedBy, r.Author, r.CreatedAt
		next.DeadlineAt, next.OnBusy, next.QueuePlace, next.Priority, next.UserID = r.DeadlineAt, r.OnBusy, r.QueuePlace, r.Priority, r.UserID
		next.StartMessageCount, next.StartStateVersion, next.StartStateBase = r.StartMessageCount, r.StartStateVersion, r.StartStateBase
		next.TurnMessageCount = r.TurnMessageCount
		h.write(home, &session.Change{Runs: []session.Run{next}})
		got, err := h.Store.Run(h.Context(), home, r.RunID)
		h.must(err)
		same(h, "overwritten", *got, next)
		v := h.readView(home, session.Need{RunID: r.RunID, RequestKey: r.RequestKey, Current: true})
		same(h, "shown by id", *v.Run, next)
		same(h, "shown by key", *v.KeyedRun, next)
		same(h, "shown as the newest", *v.Current, next)
		runs, err := h.Store.Runs(h.Context(), home, 0, 10)
		h.must(err)
		next.Outcome.Output = ""
		same(h, "in a list", runs, []session.Run{next})
		next.Stop, next.Outcome, next.DueAt = nil, session.Outcome{Status: next.Status}, 0
		h.write(home, &session.Change{Runs: []session.Run{next}})
		same(h, "emptied", *h.snapshot(home).Current, next)
	}},
	{"every field of a call is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		c := filled[session.Call](f)
		c.SessionID, c.ConsumedAt = home.SessionID, 0
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, NewCalls: []session.Call{c}})
		same(h, "inserted", h.snapshot(home).Calls, []session.Call{c})
		next := filled[session.Call](f)
		next.CallID, next.SessionID, next.RunID, next.Step, next.StepID, next.ToolName = c.CallID, c.SessionID, c.RunID, c.Step, c.StepID,
			c.ToolName
		next.Kind, next.ApprovalID, next.Input, next.Stash, next.CreatedAt, next.DeadlineAt = c.Kind, c.ApprovalID, c.Input, c.Stash, c.CreatedAt,
			c.DeadlineAt
		next.Approvers, next.StartedBy, next.Author, next.ChildID = c.Approvers, c.StartedBy, c.Author, c.ChildID
		h.write(home, &session.Change{Calls: []session.Call{next}})
		same(h, "overwritten", h.readView(home, session.Need{CallIDs: []string{c.CallID, "another"}}).NamedCalls, []session.Call{next})
		same(h, "a tombstone in a snapshot", h.snapshot(home).Calls, []session.Call(nil))
		next.LateReported = false
		h.write(home, &session.Change{Calls: []session.Call{next}})
		same(h, "late and unreported", h.readView(home, session.Need{Calls: true}).Calls, []session.Call{next})
		h.write(home, &session.Change{DropCalls: []string{c.CallID}})
		same(h, "dropped", h.readView(home, session.Need{CallIDs: []string{c.CallID}}).NamedCalls, []session.Call(nil))
	}},
	{"every field of a sub-session is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		c := filled[session.Child](f)
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, Children: []session.Child{c}})
		same(h, "inserted", h.snapshot(home).Children, []session.Child{c})
		next, other := filled[session.Child](f), filled[session.Child](f)
		next.SessionID, other.SessionID, other.Location, other.Remote = c.SessionID, "a first one", session.Local, ""
		h.write(home, &session.Change{Children: []session.Child{next, other}})
		same(h, "overwritten", h.snapshot(home).Children, []session.Child{other, next})
		same(h, "shown to a command", h.readView(home, session.Need{Children: true}).Children, []session.Child{other, next})
	}},
	{"every field of a checkpoint is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		c := filled[session.Checkpoint](f)
		c.StateVersion, c.StateBase, s.StepCount = s.StateVersion, s.StateBase, c.Step
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, Checkpoint: &c})
		steps := h.readSteps(home, store.StepPage{Limit: 1, MaxBytes: 1})
		same(h, "as a stored step", steps.Page, []session.StoredStep{{Checkpoint: c, BeginsRun: true}})
		c.Record = nil // only Steps returns it
		for _, id := range []string{c.ID, ""} {
			got, state, err := h.Store.Checkpoint(h.Context(), home, id)
			h.must(err)
			same(h, "alone", *got, c)
			same(h, "state", state, s.State)
		}
		same(h, "in a list", h.checkpoints(home), []session.Checkpoint{c})
		v := h.readView(home, session.Need{CheckpointID: c.ID})
		same(h, "shown by id", *v.Checkpoint, c)
		same(h, "state shown", v.CheckpointState, s.State)
		same(h, "shown by step", *h.readView(home, session.Need{CheckpointStep: c.Step}).Checkpoint, c)
		if v := h.readView(home, session.Need{CheckpointStep: c.Step - 1}); v.Checkpoint != nil {
			h.Error("a checkpoint was shown for a step that is not the last one")
		}
	}},
	{"every field of a usage entry is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		entries := []session.UsageEntry{filled[session.UsageEntry](f), filled[session.UsageEntry](f)}
		entries[1].RunID, entries[1].Success = "", false
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, Usage: entries})
		same(h, "entries", h.usage(home), entries)
	}},
	{"every field of a message is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		m := []session.Message{filled[session.Message](f), filled[session.Message](f)}
		m[0].Ordinal, m[1].Ordinal, m[1].Body, s.MessageCount = 0, 1, nil, 2
		m[0].FileIDs, m[1].FileIDs = nil, nil // links: see files.go
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, Messages: m})
		same(h, "messages", h.messages(home), m)
		same(h, "tail", h.readView(home, session.Need{Tail: session.Tail{MaxMessages: 5, MaxBytes: 100}}).Tail, m)
	}},
	{"every field of a journal is stored", func(h *harness) {
		f := &filler{}
		s := h.filledSession(f, home)
		j := filled[session.Journal](f)
		results := j.Results
		j.Results = nil
		h.write(home, &session.Change{Session: &s, Created: true, NewState: true, Plan: &j})
		for i := range results {
			results[i].CallID = strconv.Itoa(9 - i)
			h.write(home, &session.Change{Result: &results[i], ResultAt: int32(i)})
		}
		j.Results = results
		same(h, "journal", *h.readView(home, session.Need{Journal: true}).Journal, j)
		h.write(home, &session.Change{ClearJournal: true})
		if v := h.readView(home, session.Need{Journal: true}); v.Journal != nil {
			h.Errorf("got a journal %+v after it was cleared", v.Journal)
		}
	}},
	{"every field of a memory is stored", func(h *harness) {
		f := &filler{}
		m := filled[session.Memory](f)
		m.Text = "a red House"
		h.remember("acme", m, true)
		next := filled[session.Memory](f)
		next.ID = m.ID
		h.remember("acme", next, false)
		next.CreatedAt = m.CreatedAt
		got, err := h.Store.Memory(h.Context(), "acme", m.ID)
		h.must(err)
		same(h, "memory", *got, next)
		found, err := h.Store.Recall(h.Context(), "acme", store.MemoryQuery{Limit: 10})
		h.must(err)
		same(h, "recalled", found, []store.Recalled{{Memory: next}})
	}},
	{"a view contains only the requested rows", func(h *harness) {
		h.startSuspended(home, "c1")
		v := h.readView(home, session.Need{})
		v.Session = nil
		same(h, "view", *v, session.View{})
		v = h.readView(home, session.Need{Current: true, Live: true, State: true, Journal: true, Calls: true, Children: true, AgentType: agent,
			CheckpointStep: 1})
		if v.Current == nil || v.Live != nil || v.Session.State == "" || len(v.Calls) != 1 || v.Agent == nil || v.Checkpoint == nil {
			h.Errorf("got %+v", v)
		}
		same(h, "view of an unknown session", *h.readView(at("unknown"),
			session.Need{Current: true, Live: true, State: true, CallIDs: []string{"c1"}}), session.View{})
	}},
}

// filledSession returns a session without an empty field, as the root of its family.
func (h *harness) filledSession(f *filler, key session.Key) session.Session {
	s := filled[session.Session](f)
	s.Key, s.RootID, s.State, s.StateBase = key, key.SessionID, `{"n":1}`, s.StateVersion
	s.Version = s.StateVersion + 2
	return s
}

// write writes a change without a command of the heart.
func (h *harness) write(key session.Key, c *session.Change) {
	h.Helper()
	h.must(h.tryWrite(key, c))
}

func (h *harness) tryWrite(key session.Key, c *session.Change) error {
	return h.Store.Update(h.Context(), []session.Target{{Key: key}}, weight, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{c}, nil
	})
}

// readView returns the view of a command.
func (h *harness) readView(key session.Key, need session.Need) (view *session.View) {
	h.Helper()
	err := h.Store.Update(h.Context(), []session.Target{{Key: key, Need: need}}, weight,
		func(views []*session.View) ([]*session.Change, error) {
			view = views[0]
			return nil, nil
		})
	h.must(err)
	return view
}
