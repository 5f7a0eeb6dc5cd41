package memory

import (
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var errClosed = errors.New("the memory store is closed")

// apply writes the change. It first checks what the schemas of the other
// stores enforce, so that it writes everything or nothing.
func (m *Store) apply(key session.Key, c *session.Change) error {
	r := m.sessions[key]
	if err := check(r, c); err != nil {
		return fmt.Errorf("write session %q of tenant %q: %w", key.SessionID, key.Tenant, err)
	}
	if r == nil {
		r = &rows{states: map[int64]string{}, ids: map[string]bool{}}
		m.sessions[key] = r
	}
	if c.Session != nil {
		if c.NewState {
			r.states[c.Session.StateVersion] = c.Session.State
		}
		r.session = copySession(*c.Session)
		r.session.State = ""
	}
	if c.NewRun != nil {
		r.runs = append(r.runs, *copyRun(c.NewRun))
	}
	for i := range c.Runs {
		*r.run(c.Runs[i].RunID) = *copyRun(&c.Runs[i])
	}
	for _, message := range copyMessages(c.Messages) {
		r.messages = append(r.messages, message)
		r.ids[message.ID] = true
	}
	r.applyStep(c)
	return nil
}

// applyStep writes what belongs to steps: journal, checkpoint, usage.
func (r *rows) applyStep(c *session.Change) {
	if c.ClearJournal {
		r.journal = nil
	}
	if c.Plan != nil {
		r.journal = copyJournal(c.Plan)
		r.journal.Results = nil
	}
	if c.Result != nil {
		r.journal.Results = append(r.journal.Results, copyResult(*c.Result))
	}
	if c.Checkpoint != nil {
		r.checkpoints = append(r.checkpoints, *copyCheckpoint(c.Checkpoint))
	}
	r.usage = append(r.usage, c.Usage...)
}

func check(r *rows, c *session.Change) error {
	if r == nil {
		if !c.Created || c.Session == nil {
			return errors.New("there is no such session")
		}
		r = &rows{}
	} else if c.Created {
		return errors.New("the session exists")
	}
	if c.NewRun != nil && (r.live() != nil || r.run(c.NewRun.RunID) != nil) {
		return errors.New("the session has a live run, or a run of the same id")
	}
	for _, run := range c.Runs {
		if r.run(run.RunID) == nil {
			return fmt.Errorf("there is no run %q", run.RunID)
		}
	}
	if c.Result != nil && r.journal == nil {
		return errors.New("there is no journal")
	}
	return r.dense(c.Messages)
}

// dense checks ordinals and ids of messages to append.
func (r *rows) dense(messages []session.Message) error {
	appended := map[string]bool{}
	for i, m := range messages {
		if m.Ordinal != int64(len(r.messages)+i) {
			return fmt.Errorf("message %q has the ordinal %d", m.ID, m.Ordinal)
		}
		if r.ids[m.ID] || appended[m.ID] {
			return fmt.Errorf("there are two messages %q", m.ID)
		}
		appended[m.ID] = true
	}
	return nil
}
