package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var starts = []suiteCase{
	{"a new session is active and has one queued run", func(h *harness) {
		c := h.startOf(home)
		c.NewSession.UserID, c.NewSession.Tags, c.NewSession.Metadata, c.NewSession.State = "user@example.com", []string{"a", "ö"}, map[string]string{"k": "v\x00<&>"}, `{ "n" : [1,2] }`
		c.RequestKey, c.RequestHash, c.Traceparent, c.Tracestate = "key 1", []byte{0, 255}, "00-aa-bb-01", "v=1"
		started := h.start(c)
		want := session.Session{
			Key: home, AgentType: agent, RootID: home.SessionID, Status: session.Active, Version: 1, Turn: 1, MessageCount: 1, StateVersion: 1, StateBase: 1,
			State: c.NewSession.State, CurrentRunID: c.RunID, UserID: c.NewSession.UserID, Tags: c.NewSession.Tags, Metadata: c.NewSession.Metadata, CreatedAt: h.now, UpdatedAt: h.now,
		}
		run := session.Run{
			RunID: c.RunID, AgentType: agent, Turn: 1, Status: session.RunQueued, RequestKey: c.RequestKey, RequestHash: c.RequestHash,
			MessageID: c.MessageID, Entry: session.EntryStart, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: h.now,
			StartStateVersion: 1, StartStateBase: 1, UserID: c.NewSession.UserID,
		}
		same(h, "started session", started.Session, want)
		same(h, "started run", started.Run, run)
		gotSession, gotRun := h.session(home)
		same(h, "stored session", gotSession, want)
		same(h, "stored run", gotRun, run)
		same(h, "messages", h.messages(home), c.Messages)
		if !started.Created || started.Repeated {
			h.Errorf("got created %v, repeated %v; want true, false", started.Created, started.Repeated)
		}
	}},
	{"a repeated request key returns the first run and writes nothing", func(h *harness) {
		first := h.startOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		h.start(first)
		repeat := h.startOf(home)
		repeat.RequestKey, repeat.RequestHash = "k", []byte("h")
		for _, state := range []string{"live", "finished"} {
			started := h.start(repeat)
			if !started.Repeated || started.Created || started.Run.RunID != first.RunID {
				h.Errorf("%s: got run %q, repeated %v, created %v; want run %q repeated", state, started.Run.RunID, started.Repeated, started.Created, first.RunID)
			}
			if n := len(h.messages(home)); n != 1 {
				h.Errorf("%s: got %d messages, want 1", state, n)
			}
			if state == "live" {
				ref, _ := h.claim(executor)
				h.finish(ref)
			}
		}
		repeat.AgentType = "" // the session's agent
		if started := h.start(repeat); !started.Repeated {
			h.Error("a repetition that leaves the agent out is not recognised")
		}
	}},
	{"a request key belongs to its session", func(h *harness) {
		for _, key := range []session.Key{home, {Tenant: home.Tenant, SessionID: "s2"}, {Tenant: "other", SessionID: home.SessionID}} {
			c := h.startOf(key)
			c.RequestKey = "k"
			if started := h.start(c); started.Repeated {
				h.Errorf("session %v: the key of another session was accepted as a repetition", key)
			}
		}
	}},
	{"a request key with another request is refused", func(h *harness) {
		first := h.startOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		h.start(first)
		other := h.startOf(home)
		other.RequestKey, other.RequestHash = "k", []byte("other")
		_, err := h.tryStart(other)
		h.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		other.RequestHash, other.AgentType = []byte("h"), "sales"
		_, err = h.tryStart(other)
		h.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
	}},
	{"an active session is busy", func(h *harness) {
		h.start(h.startOf(home))
		_, err := h.tryStart(h.startOf(home))
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
		h.claim(executor)
		_, err = h.tryStart(h.startOf(home))
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
	}},
	{"a session whose run has ended accepts another", func(h *harness) {
		for turn := int32(1); turn <= 3; turn++ {
			c := h.startOf(home)
			c.NewSession.State = `{"only": "for a new session"}`
			if turn > 1 {
				c.AgentType = ""
			}
			started := h.start(c)
			if started.Run.Turn != turn || started.Session.Turn != turn || started.Created != (turn == 1) {
				h.Errorf("got turn %d of %d, created %v; want %d", started.Run.Turn, started.Session.Turn, started.Created, turn)
			}
			ref, _ := h.claim(executor)
			h.finish(ref)
		}
		s, _ := h.session(home)
		if s.MessageCount != 3 || s.Status != session.Completed || s.Version != 6 {
			h.Errorf("got %d messages, status %s, version %d; want 3, completed, 6", s.MessageCount, s.Status, s.Version)
		}
	}},
	{"a session belongs to its agent, until a run of another one begins", func(h *harness) {
		h.start(h.startOf(home))
		c := h.startOf(home)
		c.AgentType = "sales"
		_, err := h.tryStart(c)
		h.refuses(err, fault.Conflict, "AGENT_MISMATCH")
		h.must(h.Store.Announce(h.Context(), "seller", []session.Agent{{Type: "sales"}}, h.now))
		_, err = h.tryStart(c)
		h.refuses(err, fault.Conflict, "AGENT_MISMATCH")
		ref, _ := h.claim(executor)
		h.finish(ref)
		h.start(c)
		s, run := h.session(home)
		if s.AgentType != "sales" || run.AgentType != "sales" {
			h.Errorf("the session belongs to %s and its run to %s, want sales", s.AgentType, run.AgentType)
		}
	}},
	{"a new session needs an announced agent", func(h *harness) {
		c := h.startOf(home)
		c.AgentType = "sales"
		_, err := h.tryStart(c)
		h.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		c.AgentType = ""
		_, err = h.tryStart(c)
		h.refuses(err, fault.Invalid, "AGENT_REQUIRED")
		_, err = h.Store.Session(h.Context(), home)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"message ids are unique in a session", func(h *harness) {
		first := h.startOf(home)
		h.start(first)
		ref, _ := h.claim(executor)
		h.finish(ref)
		repeat := h.startOf(home)
		repeat.Messages[0].ID, repeat.Messages[0].Body = first.Messages[0].ID, []byte("something else")
		_, err := h.tryStart(repeat)
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		twice := h.startOf(home)
		twice.Messages = append(twice.Messages, twice.Messages[0])
		_, err = h.tryStart(twice)
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		elsewhere := h.startOf(session.Key{Tenant: home.Tenant, SessionID: "s2"})
		elsewhere.Messages[0].ID = first.Messages[0].ID
		h.start(elsewhere)
		if s, _ := h.session(home); s.Turn != 1 || s.MessageCount != 1 || s.Status != session.Completed {
			h.Errorf("a refused start left turn %d, %d messages, status %s; want 1, 1, completed", s.Turn, s.MessageCount, s.Status)
		}
	}},
	{"a command that fails writes nothing", func(h *harness) {
		started := h.start(h.startOf(home))
		boom := fault.New(fault.Stale, "BOOM", "")
		err := h.send(home, session.Need{}, func(v *session.View) (*session.Change, error) {
			s := *v.Session
			s.Version = 99
			return &session.Change{Session: &s}, boom
		})
		h.refuses(err, fault.Stale, "BOOM")
		got, _ := h.session(home)
		same(h, "session", got, started.Session)
	}},
}
