package sqlite

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// secret is a text of several pages, in the rows and in the overflow pages of the file.
var secret = strings.Repeat("a secret of this user. ", 1000)

// holds reports whether the database's file or its log holds a part of the secret.
func holds(t *testing.T, path string) bool {
	t.Helper()
	found := false
	for _, name := range []string{path, path + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		found = found || bytes.Contains(data, []byte("secret of this"))
	}
	return found
}

// say stores a session with the secret as its message, and returns its key.
func say(t *testing.T, s *Store, id string) session.Key {
	t.Helper()
	key := session.Key{Tenant: "acme", SessionID: id}
	c := session.Send{RunRequest: session.RunRequest{
		Key: key, AgentType: "support", RunID: "run-" + id, MessageID: "ui", Now: now,
		Messages: []session.Message{{ID: "m1", Role: "user", CreatedAt: now, Body: []byte(secret)}},
	}, NewSession: session.Create{State: `{}`}}
	if err := s.Update(t.Context(), target(key, c.Need()), 100, on(func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})); err != nil {
		t.Fatal(err)
	}
	return key
}

func remove(t *testing.T, s *Store, key session.Key) {
	t.Helper()
	c := session.DeleteSession{Key: key}
	if err := s.Update(t.Context(), target(key, c.Need()), 100, on(c.Decide)); err != nil {
		t.Fatal(err)
	}
}

func TestErasedContentLeavesTheFileAndItsLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write, erase func(*testing.T, *Store) error
	}{
		"a session": {
			func(t *testing.T, s *Store) error {
				t.Helper()
				say(t, s, "s1")
				return nil
			},
			func(t *testing.T, s *Store) error {
				t.Helper()
				remove(t, s, session.Key{Tenant: "acme", SessionID: "s1"})
				return nil
			},
		},
		"a memory": {
			func(t *testing.T, s *Store) error {
				t.Helper()
				_, err := memories{s}.Remember(t.Context(), "acme", session.Memory{ID: "one", Text: secret})
				return err
			},
			func(t *testing.T, s *Store) error {
				t.Helper()
				_, err := memories{s}.ForgetMemory(t.Context(), "acme", "one")
				return err
			},
		},
		"all memories of a user": {
			func(t *testing.T, s *Store) error {
				t.Helper()
				_, err := memories{s}.Remember(t.Context(), "acme", session.Memory{ID: "one", EntityID: "u1", Text: secret})
				return err
			},
			func(t *testing.T, s *Store) error {
				t.Helper()
				_, err := auditLog{s}.ForgetMemories(t.Context(), "acme", "u1", 9)
				return err
			},
		},
		"the bytes of a file": {
			func(t *testing.T, s *Store) error {
				t.Helper()
				return files{s}.PutBlob(t.Context(), session.FileKey{Tenant: "acme", FileID: "f1"}, strings.NewReader(secret))
			},
			func(t *testing.T, s *Store) error {
				t.Helper()
				return files{s}.DeleteBlob(t.Context(), session.FileKey{Tenant: "acme", FileID: "f1"})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state.db")
			s := open(t, path)
			announce(t, s, "e1")
			if err := c.write(t, s); err != nil {
				t.Fatal(err)
			}
			if !holds(t, path) {
				t.Fatal("the files do not hold the text that was stored")
			}
			if err := c.erase(t, s); err != nil {
				t.Fatal(err)
			}
			if holds(t, path) {
				t.Error("the files still hold the erased text")
			}
		})
	}
}

func TestErasedContentLeavesTheLogAfterALongRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	announce(t, s, "e1")
	key := say(t, s, "s1")
	if err := s.read(t.Context(), func(c *connection) error {
		var n int
		if _, err := c.queryRow(t.Context(), `SELECT count(*) FROM messages`, nil, &n); err != nil {
			return err
		}
		remove(t, s, key) // while a read needs the log
		if !s.erased.Load() {
			t.Error("the log was truncated below a read")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	announce(t, s, "e1") // any write
	if holds(t, path) || s.erased.Load() {
		t.Error("the files still hold the erased text")
	}
}
