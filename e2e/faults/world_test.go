package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// tenant is the tenant of harness.Key.
const tenant = "first"

// beginners is the number of concurrent sessions in atOnce.
const beginners = 16

// turn is a user's text and the expected answer.
type turn struct{ ask, answer string }

// session is one conversation.
type session struct {
	id    string
	turns []turn
}

// last returns the newest turn.
func (s *session) last() turn { return s.turns[len(s.turns)-1] }

// text returns the expected text of all answers.
func (s *session) text() string {
	var b strings.Builder
	for _, t := range s.turns {
		b.WriteString(t.answer)
	}
	return b.String()
}

// begin makes the turns of all sessions concurrently and does not wait for the last answer.
func begin(ctx context.Context, t *testing.T, c harness.Client, sessions []*session) {
	t.Helper()
	atOnce(t, sessions, func(s *session) error {
		for _, turn := range s.turns[:len(s.turns)-1] {
			if _, err := c.Converse(ctx, s.id, agentType, turn.ask); err != nil {
				return err
			}
		}
		return c.Ask(ctx, s.id, agentType, s.last().ask)
	})
}

// talk adds a turn to each session and reads its answer.
func talk(ctx context.Context, t *testing.T, c harness.Client, sessions []*session, next turn) {
	t.Helper()
	atOnce(t, sessions, func(s *session) error {
		s.turns = append(s.turns, next)
		m, err := c.Converse(ctx, s.id, agentType, next.ask)
		if err == nil && m.Text() != next.answer {
			err = fmt.Errorf("the answer is %q, want %q", m.Text(), next.answer)
		}
		return err
	})
}

// atOnce runs do for all sessions, several at a time.
func atOnce(t *testing.T, sessions []*session, do func(*session) error) {
	t.Helper()
	var wg sync.WaitGroup
	room := make(chan struct{}, beginners)
	var failed atomic.Bool
	for _, s := range sessions {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := do(s); err != nil {
				failed.Store(true)
				t.Errorf("session %s: %v", s.id, err)
			}
		})
	}
	wg.Wait()
	if failed.Load() {
		t.FailNow()
	}
}

// checkStored checks the stored conversation of a session.
func checkStored(t *testing.T, c harness.Client, s *session) {
	t.Helper()
	c.WaitStatus(t, s.id, "completed")
	var got, want string
	for _, m := range c.Messages(t, s.id) {
		got += m.Role + ": " + m.Text() + "\n"
	}
	for _, turn := range s.turns {
		want += fmt.Sprintf("user: %s\nassistant: %s\n", turn.ask, turn.answer)
	}
	if got != want {
		t.Errorf("the conversation %s is another one:\n%s", s.id, compare(got, want))
	}
}

// chunkOf returns the chunk of a frame without its time: a live chunk has the executor's time, a stored one the
// commit's.
func chunkOf(t *testing.T, e harness.Event) string {
	t.Helper()
	var frame struct {
		Chunk map[string]json.RawMessage `json:"chunk"`
	}
	if err := json.Unmarshal([]byte(e.Data), &frame); err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	delete(frame.Chunk, "timestamp")
	chunk, err := json.Marshal(frame.Chunk)
	if err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	return string(chunk)
}
