package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var starts = []test{
	{"a new session is active and has one queued run", func(b *bench) {
		c := b.startOf(home)
		c.New.UserID, c.New.Tags, c.New.Metadata, c.New.State = "user@example.com", []string{"a", "ö"}, map[string]string{"k": "v\x00<&>"}, `{ "n" : [1,2] }`
		c.RequestKey, c.RequestHash, c.Traceparent, c.Tracestate = "key 1", []byte{0, 255}, "00-aa-bb-01", "v=1"
		started := b.start(c)
		want := session.Session{
			Key: home, AgentType: agent, RootID: home.SessionID, Status: session.Active, Version: 1, Turn: 1, MessageCount: 1, StateVersion: 1, StateBase: 1,
			State: c.New.State, CurrentRunID: c.RunID, UserID: c.New.UserID, Tags: c.New.Tags, Metadata: c.New.Metadata, CreatedAt: b.now, UpdatedAt: b.now,
		}
		run := session.Run{
			RunID: c.RunID, AgentType: agent, Turn: 1, Status: session.RunQueued, RequestKey: c.RequestKey, RequestHash: c.RequestHash,
			MessageID: c.MessageID, Entry: session.EntryStart, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: b.now,
			StartStateVersion: 1, StartStateBase: 1,
		}
		same(b, "started session", started.Session, want)
		same(b, "started run", started.Run, run)
		gotSession, gotRun := b.session(home)
		same(b, "stored session", gotSession, want)
		same(b, "stored run", gotRun, run)
		same(b, "messages", b.messages(home), c.Messages)
		if !started.Created || started.Repeated {
			b.Errorf("got created %v, repeated %v; want true, false", started.Created, started.Repeated)
		}
	}},
	{"a repeated request key gets the first run and writes nothing", func(b *bench) {
		first := b.startOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		b.start(first)
		again := b.startOf(home)
		again.RequestKey, again.RequestHash = "k", []byte("h")
		for _, state := range []string{"live", "finished"} {
			started := b.start(again)
			if !started.Repeated || started.Created || started.Run.RunID != first.RunID {
				b.Errorf("%s: got run %q, repeated %v, created %v; want run %q repeated", state, started.Run.RunID, started.Repeated, started.Created, first.RunID)
			}
			if n := len(b.messages(home)); n != 1 {
				b.Errorf("%s: got %d messages, want 1", state, n)
			}
			if state == "live" {
				ref, _ := b.claim(executor)
				b.finish(ref)
			}
		}
		again.AgentType = "" // the session's agent
		if started := b.start(again); !started.Repeated {
			b.Error("a repetition that leaves the agent out is not recognised")
		}
	}},
	{"a request key belongs to its session", func(b *bench) {
		for _, key := range []session.Key{home, {Tenant: home.Tenant, SessionID: "s2"}, {Tenant: "other", SessionID: home.SessionID}} {
			c := b.startOf(key)
			c.RequestKey = "k"
			if started := b.start(c); started.Repeated {
				b.Errorf("session %v: the key of another session was taken for its own", key)
			}
		}
	}},
	{"a request key with another request is refused", func(b *bench) {
		first := b.startOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		b.start(first)
		other := b.startOf(home)
		other.RequestKey, other.RequestHash = "k", []byte("other")
		_, err := b.try(other)
		b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		other.RequestHash, other.AgentType = []byte("h"), "sales"
		_, err = b.try(other)
		b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
	}},
	{"an active session is busy", func(b *bench) {
		b.start(b.startOf(home))
		_, err := b.try(b.startOf(home))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
		b.claim(executor)
		_, err = b.try(b.startOf(home))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
	}},
	{"a session whose run is over goes on", func(b *bench) {
		for turn := int32(1); turn <= 3; turn++ {
			c := b.startOf(home)
			c.New.State = `{"only": "for a new session"}`
			if turn > 1 {
				c.AgentType = ""
			}
			started := b.start(c)
			if started.Run.Turn != turn || started.Session.Turn != turn || started.Created != (turn == 1) {
				b.Errorf("got turn %d of %d, created %v; want %d", started.Run.Turn, started.Session.Turn, started.Created, turn)
			}
			ref, _ := b.claim(executor)
			b.finish(ref)
		}
		s, _ := b.session(home)
		if s.MessageCount != 3 || s.Status != session.Completed || s.Version != 6 {
			b.Errorf("got %d messages, status %s, version %d; want 3, completed, 6", s.MessageCount, s.Status, s.Version)
		}
	}},
	{"a session belongs to its agent", func(b *bench) {
		b.start(b.startOf(home))
		c := b.startOf(home)
		c.AgentType = "sales"
		_, err := b.try(c)
		b.refuses(err, fault.Conflict, "AGENT_MISMATCH")
	}},
	{"a new session needs an agent that was announced", func(b *bench) {
		for _, unknown := range []string{"sales", ""} {
			c := b.startOf(home)
			c.AgentType = unknown
			_, err := b.try(c)
			b.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		}
		_, err := b.Store.Session(b.Context(), home)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a message id is used once in a session", func(b *bench) {
		first := b.startOf(home)
		b.start(first)
		ref, _ := b.claim(executor)
		b.finish(ref)
		again := b.startOf(home)
		again.Messages[0].ID, again.Messages[0].Body = first.Messages[0].ID, []byte("something else")
		_, err := b.try(again)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		twice := b.startOf(home)
		twice.Messages = append(twice.Messages, twice.Messages[0])
		_, err = b.try(twice)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		elsewhere := b.startOf(session.Key{Tenant: home.Tenant, SessionID: "s2"})
		elsewhere.Messages[0].ID = first.Messages[0].ID
		b.start(elsewhere)
		if s, _ := b.session(home); s.Turn != 1 || s.MessageCount != 1 || s.Status != session.Completed {
			b.Errorf("a refused start left turn %d, %d messages, status %s; want 1, 1, completed", s.Turn, s.MessageCount, s.Status)
		}
	}},
	{"a command that fails writes nothing", func(b *bench) {
		started := b.start(b.startOf(home))
		boom := fault.New(fault.Stale, "BOOM", "")
		err := b.send(home, session.Need{}, func(v *session.View) (*session.Change, error) {
			s := *v.Session
			s.Version = 99
			return &session.Change{Session: &s}, boom
		})
		b.refuses(err, fault.Stale, "BOOM")
		got, _ := b.session(home)
		same(b, "session", got, started.Session)
	}},
}
