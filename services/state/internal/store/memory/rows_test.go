package memory

import (
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var home = session.Key{Tenant: "acme", SessionID: "s1"}

// change runs a command that writes the change of home's row and of another
// session, which may be broken.
func change(t *testing.T, m *Store, c session.Change, other *session.Change) error {
	t.Helper()
	targets := []session.Target{{Key: home}, {Key: session.Key{Tenant: "acme", SessionID: "other"}}}
	return m.Update(t.Context(), targets, 0, func(v []*session.View) ([]*session.Change, error) {
		s := session.Session{Key: home, AgentType: "a", RootID: home.SessionID, Status: session.Paused, Version: 1, StateVersion: 1, StateBase: 1, State: `{}`}
		c.Created = v[0].Session == nil
		if !c.Created {
			s = *v[0].Session
			s.Version++
		}
		c.Session, c.NewState = &s, c.Created
		return []*session.Change{&c, other}, nil
	})
}

func message(ordinal int64, id string) session.Message {
	return session.Message{Ordinal: ordinal, ID: id, Body: []byte(id)}
}

func conversation(t *testing.T, m *Store) (got string) {
	t.Helper()
	err := m.Update(t.Context(), []session.Target{{Key: home, Need: session.Need{Tail: session.Tail{Messages: 9, Bytes: 99}}}}, 0,
		func(v []*session.View) ([]*session.Change, error) {
			for _, message := range v[0].Tail {
				got += string(message.Body)
			}
			return nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestACommandThatFailsLeavesNoTrace(t *testing.T) {
	t.Parallel()
	m := New()
	if err := change(t, m, session.Change{Messages: []session.Message{message(0, "a"), message(1, "b"), message(2, "c")}}, nil); err != nil {
		t.Fatal(err)
	}
	broken := &session.Change{Messages: []session.Message{message(0, "x")}} // of a session that there is not
	for _, c := range []session.Change{
		{Messages: []session.Message{message(3, "d")}},
		{Rewind: &session.Rewind{Messages: 1}, Messages: []session.Message{message(1, "c"), message(2, "y")}},
	} {
		if err := change(t, m, c, broken); err == nil {
			t.Errorf("%+v: got no error beside a change that is broken", c)
		}
		if got := conversation(t, m); got != "abc" {
			t.Errorf("%+v: got the conversation %q, want %q", c, got, "abc")
		}
	}
	if err := change(t, m, session.Change{Messages: []session.Message{message(3, "c")}}, nil); err == nil {
		t.Error("got no error for a message that is there twice")
	}
	if err := change(t, m, session.Change{Rewind: &session.Rewind{Messages: 1}, Messages: []session.Message{message(1, "c"), message(2, "b")}}, nil); err != nil {
		t.Error(err)
	}
	if got := conversation(t, m); got != "acb" {
		t.Errorf("got the conversation %q, want %q", got, "acb")
	}
}

func TestRefusalsComeBackAsTheyAre(t *testing.T) {
	t.Parallel()
	m := New()
	want := errors.New("refused")
	got := m.Update(t.Context(), []session.Target{{Key: home}}, 0, func([]*session.View) ([]*session.Change, error) { return nil, want })
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
