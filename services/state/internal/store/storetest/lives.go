package storetest

import (
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// lives are sessions that are made and changed beside any run.
var lives = []test{
	{"a session is made without a run", func(b *bench) {
		c := b.createOf(home)
		c.UserID, c.OrganizationID, c.Tags, c.Metadata = "u", "org", []string{"a", "b"}, map[string]string{"k": "v"}
		c.State, c.ExpiresAt = `{"n": 1}`, b.now+5
		made := b.create(c)
		want := session.Session{
			Key: home, AgentType: agent, RootID: home.SessionID, Status: session.Paused, Version: 1, State: `{"n": 1}`, StateVersion: 1, StateBase: 1,
			UserID: "u", OrganizationID: "org", Tags: c.Tags, Metadata: c.Metadata, CreatedAt: b.now, UpdatedAt: b.now, ExpiresAt: b.now + 5,
		}
		same(b, "made", made, want)
		snapshot := b.snapshot(home)
		same(b, "stored", snapshot.Session, want)
		if snapshot.Current != nil || len(snapshot.Calls) != 0 || len(snapshot.Children) != 0 {
			b.Errorf("got %+v of a session without runs", snapshot)
		}
		runs, err := b.Store.Runs(b.Context(), home, 0, 10)
		if err != nil || len(runs) != 0 {
			b.Errorf("got %d runs, %v; want none", len(runs), err)
		}
		if got := b.claimAll(executor, 10); len(got) != 0 {
			b.Errorf("got %d claims of a session without runs", len(got))
		}
	}},
	{"a session is made once", func(b *bench) {
		b.create(b.createOf(home))
		_, err := b.tryCreate(b.createOf(home))
		b.refuses(err, fault.Conflict, "SESSION_EXISTS")
		b.start(b.startOf(at("started")))
		_, err = b.tryCreate(b.createOf(at("started")))
		b.refuses(err, fault.Conflict, "SESSION_EXISTS")
		unknown := b.createOf(at("new"))
		unknown.AgentType = "sales"
		_, err = b.tryCreate(unknown)
		b.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		_, err = b.Store.Session(b.Context(), at("new"))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"the first run of a session that was made is its first turn", func(b *bench) {
		c := b.createOf(home)
		c.State, c.ExpiresAt = `{"n":1}`, b.now+5
		b.create(c)
		started := b.start(b.startOf(home))
		if started.Created || started.Run.Turn != 1 || started.Session.Version != 2 {
			b.Errorf("got %+v", started)
		}
		s, run := b.session(home)
		if s.Status != session.Active || s.State != `{"n":1}` || s.ExpiresAt != 0 || run.Turn != 1 || s.CurrentRunID != run.RunID {
			b.Errorf("got %+v", s)
		}
		b.claim(executor)
	}},
	{"a session's properties change one by one", func(b *bench) {
		c := b.createOf(home)
		c.UserID, c.Tags, c.Metadata = "u", []string{"a"}, map[string]string{"k": "v"}
		want := b.create(c)
		b.now++
		user, org, expires := "u2", "org", b.now+9
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
		} {
			change.command.Key, change.command.Now = home, b.now
			version, err := b.update(change.command)
			b.must(err)
			change.effect()
			want.Version++
			want.UpdatedAt = b.now
			same(b, "version", version, want.Version)
			same(b, "session", b.snapshot(home).Session, want)
		}
		_, err := b.update(session.UpdateSession{Key: home, UserID: &user, ExpectedVersion: 1, Now: b.now})
		b.refuses(err, fault.Stale, "VERSION_STALE")
		if f, _ := fault.From(err); f == nil || f.Meta["currentVersion"] != "7" {
			b.Errorf("got %v, want the current version 7", err)
		}
	}},
	{"a status is compared and set in one", func(b *bench) {
		b.create(b.createOf(home))
		interruption := &session.Interruption{RunID: "r", Reason: "why", At: b.now}
		set := session.SetStatus{Key: home, Expected: []session.Status{session.Active, session.Paused}, ExpectedVersion: 1, Status: session.Interrupted, Interruption: interruption, Now: b.now}
		got, err := b.setStatus(set)
		b.must(err)
		same(b, "answer", got, session.StatusSet{OK: true, Version: 2, Status: session.Interrupted})
		s := b.snapshot(home).Session
		same(b, "interruption", s.Interruption, interruption)
		for _, refused := range []session.SetStatus{
			set, // the status is another
			{Expected: []session.Status{session.Interrupted}, ExpectedVersion: 1, Status: session.Paused}, // the version is another
			{Expected: []session.Status{session.Paused}, ExpectedVersion: 2, Status: session.Paused},
		} {
			refused.Key, refused.Now = home, b.now+1
			got, err = b.setStatus(refused)
			b.must(err)
			same(b, "answer of a refusal", got, session.StatusSet{OK: false, Version: 2, Status: session.Interrupted})
			same(b, "session after a refusal", b.snapshot(home).Session, s)
		}
		failure := &session.Failure{Error: "no", Code: "c", Reason: session.ParentFailed}
		got, err = b.setStatus(session.SetStatus{Key: home, Status: session.Failed, Failure: failure, Now: b.now})
		b.must(err)
		s = b.snapshot(home).Session
		if !got.OK || s.Status != session.Failed || s.Interruption != nil || s.Version != 3 {
			b.Errorf("got %+v, %+v", got, s)
		}
		same(b, "failure", s.Failure, failure)
	}},
	{"a status that only a run gives cannot be set", func(b *bench) {
		b.create(b.createOf(home))
		for _, status := range []session.Status{session.Active, session.SuspendedClientTool, session.SuspendedAwaitingChildren, session.SuspendedStepPartial, ""} {
			_, err := b.setStatus(session.SetStatus{Key: home, Status: status, Now: b.now})
			b.refuses(err, fault.Invalid, "STATUS_INVALID")
		}
		_, err := b.setStatus(session.SetStatus{Key: home, Status: session.Failed, Now: b.now})
		b.refuses(err, fault.Invalid, "FAILURE_MISSING")
		_, err = b.setStatus(session.SetStatus{Key: at("nobody"), Status: session.Paused, Now: b.now})
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a status that is set ends the live run and shuts its owner out", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "plan", "c1"))
		got, err := b.setStatus(session.SetStatus{Key: home, Expected: []session.Status{session.Active}, Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: b.now})
		b.must(err)
		s, run := b.session(home)
		if !got.OK || s.Status != session.Failed || run.Status != session.RunFailed || run.ExecutorID != "" || s.Epoch != ref.Epoch+1 {
			b.Errorf("got %+v,\n%+v,\n%+v", got, s, run)
		}
		b.stale(ref)
		if len(b.usage(home)) != 1 {
			b.Error("the usage of the journal was lost")
		}
	}},
	{"a run starts only while nothing has changed since its caller looked", func(b *bench) {
		started := b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.finish(ref)
		stranger, none := "another run", ""
		for _, expect := range []session.Expect{
			{Statuses: []session.Status{session.Paused}}, {Version: 1}, {RunID: &stranger}, {RunID: &none}, {Statuses: []session.Status{session.Completed}, Version: 9},
		} {
			c := b.startOf(home)
			c.Expect = expect
			_, err := b.try(c)
			b.refuses(err, fault.Conflict, "SESSION_CHANGED")
			if f, _ := fault.From(err); f == nil || f.Meta["currentStatus"] != "completed" || f.Meta["currentVersion"] != "2" || f.Meta["currentRunId"] != started.Run.RunID {
				b.Errorf("got %v, want what the session is", err)
			}
		}
		c := b.startOf(home)
		c.Expect = session.Expect{Statuses: []session.Status{session.Failed, session.Completed}, Version: 2, RunID: &started.Run.RunID}
		b.start(c)
		lost := b.startOf(at("nobody"))
		lost.Expect = session.Expect{Version: 1}
		_, err := b.try(lost)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a session that has stopped is resumed and counts it", func(b *bench) {
		b.create(b.createOf(home))
		for turn := int32(1); turn <= 3; turn++ {
			c := b.resumeOf(home)
			c.RequestKey = strings.Repeat("k", int(turn))
			b.start(c)
			if again := b.start(c); !again.Repeated {
				b.Error("a repeated resume was not recognised")
			}
			s, run := b.session(home)
			if s.ResumeCount != turn || s.Turn != turn || run.Entry != session.EntryResume || s.MessageCount != 0 {
				b.Errorf("got %+v of %+v", run, s)
			}
			ref, _ := b.claim(executor)
			status := []session.RunStatus{session.RunInterrupted, session.RunFailed, session.RunCompleted}[turn-1]
			_, err := b.tryFinish(ref, session.Outcome{Status: status, Failure: &session.Failure{Error: "x"}})
			b.must(err)
		}
		c := b.resumeOf(home)
		_, err := b.try(c)
		b.refuses(err, fault.Conflict, "SESSION_COMPLETED")
		c.Key = at("nobody")
		_, err = b.try(c)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a session that was aborted goes on with a message only", func(b *bench) {
		b.start(b.startOf(at("running")))
		ref, _ := b.claim(executor)
		point := b.commit(b.commitOf(ref, 1))
		b.stop(at("running"), session.StopAbort, "why")
		_, err := b.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "x", Code: "framework_cancelled"}})
		b.must(err)
		b.suspended(at("suspended"), "c1")
		b.stop(at("suspended"), session.StopAbort, "why")
		for _, key := range []session.Key{at("running"), at("suspended")} {
			before := b.snapshot(key)
			c := b.resumeOf(key)
			c.Messages = b.startOf(key).Messages
			for range 2 { // with a message, and without
				_, err := b.try(c)
				b.refuses(err, fault.Conflict, "RUN_CANCELLED")
				c.Messages = nil
			}
			same(b, "snapshot", b.snapshot(key), before)
		}
		b.start(b.startOf(at("suspended")))
		b.start(b.resumeAt(at("running"), point.ID)) // that of before the abort is something else
	}},
}
