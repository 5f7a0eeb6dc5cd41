package memory

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// read gives f the rows of a session that exists.
func (m *Store) read(ctx context.Context, key session.Key, f func(*rows) error) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	r := m.sessions[key]
	if r == nil {
		return session.NoSession(key)
	}
	return f(r)
}

// Session implements store.Reader.
func (m *Store) Session(ctx context.Context, key session.Key) (found *store.Snapshot, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		found = &store.Snapshot{Session: copySession(r.session), Current: copyRun(r.run(r.session.CurrentRunID)), Children: slices.Clone(r.children), Waiting: r.waiting()}
		found.Calls = callsWhere(m.begin().family(r.root()), func(c *session.Call) bool {
			if c.ConsumedAt == 0 {
				found.Open += session.Awaited([]session.Call{*c})
			}
			return c.ConsumedAt == 0 && (r.root() == key || c.SessionID == key.SessionID)
		})
		found.Session.State, err = r.state(r.session.StateBase, r.session.StateVersion)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Run implements store.Reader.
func (m *Store) Run(ctx context.Context, key session.Key, runID string) (run *session.Run, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		if run = copyRun(r.run(runID)); run == nil {
			return session.NoRun(runID)
		}
		return nil
	})
	return run, err
}

// Runs implements store.Reader.
func (m *Store) Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) (page []session.Run, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		for _, run := range slices.Backward(r.runs) {
			if len(page) < limit && run.Turn > 0 && (beforeTurn == 0 || run.Turn < beforeTurn) {
				run.Outcome.Output = ""
				page = append(page, *copyRun(&run))
			}
		}
		return nil
	})
	return page, err
}

// Waiting implements store.Reader.
func (m *Store) Waiting(ctx context.Context, key session.Key) (runs []session.Run, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		runs = r.waiting()
		return nil
	})
	return runs, err
}

// Messages implements store.Reader.
func (m *Store) Messages(ctx context.Context, key session.Key, page store.Page) (messages []session.Message, total int64, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		total = int64(len(r.messages))
		from := min(page.From, total)
		end, size := from, 0
		for end < total && end-from < int64(page.Limit) {
			size += len(r.messages[end].Body)
			if size > page.MaxBytes && end > from {
				break
			}
			end++
		}
		messages = copyMessages(r.messages[from:end])
		return nil
	})
	return messages, total, err
}

// Checkpoint implements store.Reader.
func (m *Store) Checkpoint(ctx context.Context, key session.Key, id string) (c *session.Checkpoint, text string, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		if c = r.checkpoint(func(c *session.Checkpoint) bool { return id == "" || c.ID == id }); c == nil {
			return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "session %q has no checkpoint %q", key.SessionID, id)
		}
		text, err = r.state(c.StateBase, c.StateVersion)
		return err
	})
	return c, text, err
}

// Checkpoints implements store.Reader.
func (m *Store) Checkpoints(ctx context.Context, key session.Key, beforeStep int32, offset, limit int) (page []session.Checkpoint, total int64, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		total = int64(len(r.checkpoints))
		for _, c := range slices.Backward(r.checkpoints) {
			switch {
			case beforeStep != 0 && c.Step >= beforeStep:
			case offset > 0:
				offset--
			case len(page) < limit:
				page = append(page, *copyCheckpoint(&c))
			}
		}
		return nil
	})
	return page, total, err
}

// Owners implements store.Reader.
func (m *Store) Owners(ctx context.Context, key session.Key, callIDs []string) (owners map[string]string, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		owners = map[string]string{}
		for _, call := range callsWhere(m.begin().family(r.root()), func(c *session.Call) bool { return slices.Contains(callIDs, c.CallID) }) {
			owners[call.CallID] = call.SessionID
		}
		return nil
	})
	return owners, err
}

// Family implements store.Reader.
func (m *Store) Family(ctx context.Context, key session.Key, limit int) (family []session.Key, err error) {
	err = m.read(ctx, key, func(*rows) error {
		family = m.below(key, limit)
		return nil
	})
	return family, err
}

// below returns the session and at most limit of its family in all, each
// level by the ids.
func (m *Store) below(key session.Key, limit int) []session.Key {
	family := []session.Key{key}
	for i := 0; i < len(family) && len(family) < limit; i++ {
		var children []string
		for id, r := range m.sessions {
			if id.Tenant == key.Tenant && r.session.ParentID == family[i].SessionID {
				children = append(children, id.SessionID)
			}
		}
		slices.Sort(children)
		for _, id := range children {
			family = append(family, session.Key{Tenant: key.Tenant, SessionID: id})
		}
	}
	return family[:min(limit, len(family))]
}
