package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var starts = []suiteCase{
	{"a new session is active and has one queued run", func(h *harness) {
		c := h.startOf(home)
		c.NewSession.UserID, c.NewSession.Tags, c.NewSession.Metadata, c.NewSession.State = "user@example.com", []string{"a", "ö"},
			map[string]string{"k": "v\x00<&>"}, `{ "n" : [1,2] }`
		c.RequestKey, c.RequestHash, c.Traceparent, c.Tracestate = "key 1", []byte{0, 255}, "00-aa-bb-01", "v=1"
		started := h.start(c)
		want := session.Session{
			Key: home, AgentType: agent, RootID: home.SessionID, Status: session.Active, Version: 1, Turn: 1, MessageCount: 1, StateVersion: 1,
			StateBase: 1,
			State:     c.NewSession.State, CurrentRunID: c.RunID,
			UserID: c.NewSession.UserID, Tags: c.NewSession.Tags, Metadata: c.NewSession.Metadata,
			CreatedAt: h.now, UpdatedAt: h.now,
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
	{"a request key belongs to its session", func(h *harness) {
		for _, key := range []session.Key{home, {Tenant: home.Tenant, SessionID: "s2"}, {Tenant: "other", SessionID: home.SessionID}} {
			c := h.startOf(key)
			c.RequestKey = "k"
			if started := h.start(c); started.Repeated {
				h.Errorf("session %v: the key of another session was accepted as a repetition", key)
			}
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
