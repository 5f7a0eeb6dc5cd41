package storetest

import (
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
			Key: home, AgentType: agent, RootID: home.SessionID, Status: session.Paused, Version: 1, State: `{"n": 1}`, StateVersion: 1,
			StateBase: 1,
			UserID:    "u", OrganizationID: "org", Tags: c.Tags, Metadata: c.Metadata, CreatedAt: h.now, UpdatedAt: h.now, ExpiresAt: h.now + 5,
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
}
