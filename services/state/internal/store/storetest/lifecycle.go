package storetest

import (
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// lifecycle proves how sessions are created and changed outside runs.
var lifecycle = []suiteCase{
	{"a session is created without a run", func(h *harness) {
		c := h.createOf(home)
		c.UserID, c.OrganizationID, c.Tags, c.Metadata = "u", "org", []string{"a", "b"}, map[string]string{"k": "v"}
		c.State, c.ExpiresAt = `{"n": 1}`, h.now+5
		made := h.create(c)
		want := session.Session{
			Key: home, AgentType: agent, RootID: home.SessionID, Status: session.Paused, Version: 1, State: `{"n": 1}`, StateVersion: 1, StateBase: 1,
			UserID: "u", OrganizationID: "org", Tags: c.Tags, Metadata: c.Metadata, CreatedAt: h.now, UpdatedAt: h.now, ExpiresAt: h.now + 5,
		}
		same(h, "made", made, want)
		snapshot := h.snapshot(home)
		same(h, "stored", snapshot.Session, want)
		if snapshot.Current != nil || len(snapshot.Calls) != 0 || len(snapshot.Children) != 0 {
			h.Errorf("got %+v of a session without runs", snapshot)
		}
		runs, err := h.Store.Runs(h.Context(), home, 0, 10)
		if err != nil || len(runs) != 0 {
			h.Errorf("got %d runs, %v; want none", len(runs), err)
		}
		if got := h.claimAll(executor, 10); len(got) != 0 {
			h.Errorf("got %d claims of a session without runs", len(got))
		}
	}},
	{"a session is created once", func(h *harness) {
		h.create(h.createOf(home))
		_, err := h.tryCreate(h.createOf(home))
		h.refuses(err, fault.Conflict, "SESSION_EXISTS")
		h.start(h.startOf(at("started")))
		_, err = h.tryCreate(h.createOf(at("started")))
		h.refuses(err, fault.Conflict, "SESSION_EXISTS")
		unknown := h.createOf(at("new"))
		unknown.AgentType = "sales"
		_, err = h.tryCreate(unknown)
		h.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		_, err = h.Store.Session(h.Context(), at("new"))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"the first run of a created session is its first turn", func(h *harness) {
		c := h.createOf(home)
		c.State, c.ExpiresAt = `{"n":1}`, h.now+5
		h.create(c)
		started := h.start(h.startOf(home))
		if started.Created || started.Run.Turn != 1 || started.Session.Version != 2 {
			h.Errorf("got %+v", started)
		}
		s, run := h.session(home)
		if s.Status != session.Active || s.State != `{"n":1}` || s.ExpiresAt != 0 || run.Turn != 1 || s.CurrentRunID != run.RunID {
			h.Errorf("got %+v", s)
		}
		h.claim(executor)
	}},
	{"session properties change independently", func(h *harness) {
		c := h.createOf(home)
		c.UserID, c.Tags, c.Metadata = "u", []string{"a"}, map[string]string{"k": "v"}
		want := h.create(c)
		h.now++
		user, org, title, expires := "u2", "org", "A title", h.now+9
		for _, change := range []struct {
			command session.UpdateSession
			effect  func()
		}{
			{session.UpdateSession{Tags: &[]string{"b", "c"}}, func() { want.Tags = []string{"b", "c"} }},
			{session.UpdateSession{Metadata: &map[string]string{"x": "y"}}, func() { want.Metadata = map[string]string{"x": "y"} }},
			{session.UpdateSession{UserID: &user}, func() { want.UserID = user }},
			{session.UpdateSession{OrganizationID: &org}, func() { want.OrganizationID = org }},
			{session.UpdateSession{ExpiresAt: &expires, ExpectedVersion: 5}, func() { want.ExpiresAt = expires }},
			{session.UpdateSession{Tags: &[]string{}, Metadata: &map[string]string{}}, func() { want.Tags, want.Metadata = nil, nil }},
			{session.UpdateSession{Title: &title}, func() { want.Title = title }},
		} {
			change.command.Key, change.command.Now = home, h.now
			version, err := h.update(change.command)
			h.must(err)
			change.effect()
			want.Version++
			want.UpdatedAt = h.now
			same(h, "version", version, want.Version)
			same(h, "session", h.snapshot(home).Session, want)
		}
		_, err := h.update(session.UpdateSession{Key: home, UserID: &user, ExpectedVersion: 1, Now: h.now})
		h.refuses(err, fault.Stale, "VERSION_STALE")
		if f, _ := fault.From(err); f == nil || f.Meta["currentVersion"] != "8" {
			h.Errorf("got %v, want the current version 8", err)
		}
	}},
	{"a status is compared and set atomically", func(h *harness) {
		h.create(h.createOf(home))
		interruption := &session.Interruption{Reason: "why", At: h.now}
		set := session.SetStatus{Key: home, Expected: []session.Status{session.Active, session.Paused}, ExpectedVersion: 1, Status: session.Interrupted, Reason: "why", Now: h.now}
		got, err := h.setStatus(set)
		h.must(err)
		same(h, "answer", got, session.StatusSet{OK: true, Version: 2, Status: session.Interrupted})
		s := h.snapshot(home).Session
		same(h, "interruption", s.Interruption, interruption)
		for _, refused := range []session.SetStatus{
			set, // another status
			{Expected: []session.Status{session.Interrupted}, ExpectedVersion: 1, Status: session.Paused}, // another version
			{Expected: []session.Status{session.Paused}, ExpectedVersion: 2, Status: session.Paused},
		} {
			refused.Key, refused.Now = home, h.now+1
			got, err = h.setStatus(refused)
			h.must(err)
			same(h, "answer of a refusal", got, session.StatusSet{OK: false, Version: 2, Status: session.Interrupted})
			same(h, "session after a refusal", h.snapshot(home).Session, s)
		}
		failure := &session.Failure{Error: "no", Code: "c", Reason: session.ParentFailed}
		got, err = h.setStatus(session.SetStatus{Key: home, Status: session.Failed, Failure: failure, Now: h.now})
		h.must(err)
		s = h.snapshot(home).Session
		if !got.OK || s.Status != session.Failed || s.Interruption != nil || s.Version != 3 {
			h.Errorf("got %+v, %+v", got, s)
		}
		same(h, "failure", s.Failure, failure)
	}},
	{"a status that only a run can reach cannot be set", func(h *harness) {
		h.create(h.createOf(home))
		for _, status := range []session.Status{session.Active, session.SuspendedClientTool, session.SuspendedAwaitingChildren, session.SuspendedStepPartial, ""} {
			_, err := h.setStatus(session.SetStatus{Key: home, Status: status, Now: h.now})
			h.refuses(err, fault.Invalid, "STATUS_INVALID")
		}
		_, err := h.setStatus(session.SetStatus{Key: home, Status: session.Failed, Now: h.now})
		h.refuses(err, fault.Invalid, "FAILURE_MISSING")
		_, err = h.setStatus(session.SetStatus{Key: at("unknown"), Status: session.Paused, Now: h.now})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"setting a status ends the live run and fences its owner", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 1, "plan", "c1"))
		got, err := h.setStatus(session.SetStatus{Key: home, Expected: []session.Status{session.Active}, Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: h.now})
		h.must(err)
		s, run := h.session(home)
		if !got.OK || s.Status != session.Failed || run.Status != session.RunFailed || run.ExecutorID != "" || s.Epoch != ref.Epoch+1 {
			h.Errorf("got %+v,\n%+v,\n%+v", got, s, run)
		}
		h.expectStale(ref)
		if len(h.usage(home)) != 1 {
			h.Error("the usage of the journal was lost")
		}
	}},
	{"a start is rejected when the session has changed since it was read", func(h *harness) {
		started := h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.finish(ref)
		stranger, none := "another run", ""
		for _, expect := range []session.Expect{
			{Statuses: []session.Status{session.Paused}}, {Version: 1}, {RunID: &stranger}, {RunID: &none}, {Statuses: []session.Status{session.Completed}, Version: 9},
		} {
			c := h.startOf(home)
			c.Expect = expect
			_, err := h.tryStart(c)
			h.refuses(err, fault.Conflict, "SESSION_CHANGED")
			if f, _ := fault.From(err); f == nil || f.Meta["currentStatus"] != "completed" || f.Meta["currentVersion"] != "2" || f.Meta["currentRunId"] != started.Run.RunID {
				h.Errorf("got %v, want what the session is", err)
			}
		}
		c := h.startOf(home)
		c.Expect = session.Expect{Statuses: []session.Status{session.Failed, session.Completed}, Version: 2, RunID: &started.Run.RunID}
		h.start(c)
		lost := h.startOf(at("unknown"))
		lost.Expect = session.Expect{Version: 1}
		_, err := h.tryStart(lost)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"resuming an interrupted session counts as a resume", func(h *harness) {
		h.create(h.createOf(home))
		for turn := int32(1); turn <= 3; turn++ {
			c := h.resumeOf(home)
			c.RequestKey = strings.Repeat("k", int(turn))
			h.start(c)
			if repeat := h.start(c); !repeat.Repeated {
				h.Error("a repeated resume was not recognised")
			}
			s, run := h.session(home)
			if s.ResumeCount != turn || s.Turn != turn || run.Entry != session.EntryResume || s.MessageCount != 0 {
				h.Errorf("got %+v of %+v", run, s)
			}
			ref, _ := h.claim(executor)
			status := []session.RunStatus{session.RunInterrupted, session.RunFailed, session.RunCompleted}[turn-1]
			_, err := h.tryFinish(ref, session.Outcome{Status: status, Failure: &session.Failure{Error: "x"}})
			h.must(err)
		}
		c := h.resumeOf(home)
		_, err := h.tryStart(c)
		h.refuses(err, fault.Conflict, "SESSION_COMPLETED")
		c.Key = at("unknown")
		_, err = h.tryStart(c)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"an aborted session continues only with a message", func(h *harness) {
		h.start(h.startOf(at("running")))
		ref, _ := h.claim(executor)
		point := h.commit(h.commitOf(ref, 1))
		h.stop(at("running"), session.StopAbort, "why")
		_, err := h.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "x", Code: "framework_cancelled"}})
		h.must(err)
		h.startSuspended(at("suspended"), "c1")
		h.stop(at("suspended"), session.StopAbort, "why")
		for _, key := range []session.Key{at("running"), at("suspended")} {
			before := h.snapshot(key)
			c := h.resumeOf(key)
			c.Messages = h.startOf(key).Messages
			for range 2 { // with a message and without
				_, err := h.tryStart(c)
				h.refuses(err, fault.Conflict, "RUN_CANCELLED")
				c.Messages = nil
			}
			same(h, "snapshot", h.snapshot(key), before)
		}
		h.start(h.startOf(at("suspended")))
		h.start(h.resumeAt(at("running"), point.ID)) // a checkpoint from before the abort may be resumed
	}},
}
