package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Session implements store.Reader.
func (m *Store) Session(ctx context.Context, key session.Key) (*session.Session, *session.Run, error) {
	if err := m.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer m.mu.Unlock()
	r := m.sessions[key]
	if r == nil {
		return nil, nil, session.NoSession(key)
	}
	return r.copySession(true), copyRun(r.run(r.session.CurrentRunID)), nil
}

// Run implements store.Reader.
func (m *Store) Run(ctx context.Context, key session.Key, runID string) (*session.Run, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	r := m.sessions[key]
	if r == nil {
		return nil, session.NoSession(key)
	}
	run := copyRun(r.run(runID))
	if run == nil {
		return nil, session.NoRun(runID)
	}
	return run, nil
}

// Runs implements store.Reader.
func (m *Store) Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) ([]session.Run, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	r := m.sessions[key]
	if r == nil {
		return nil, session.NoSession(key)
	}
	var page []session.Run
	for _, run := range slices.Backward(r.runs) {
		if len(page) < limit && (beforeTurn == 0 || run.Turn < beforeTurn) {
			page = append(page, *copyRun(&run))
		}
	}
	return page, nil
}

// Messages implements store.Reader.
func (m *Store) Messages(ctx context.Context, key session.Key, page store.Page) ([]session.Message, int64, error) {
	if err := m.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer m.mu.Unlock()
	r := m.sessions[key]
	if r == nil {
		return nil, 0, session.NoSession(key)
	}
	total := int64(len(r.messages))
	from := min(page.From, total)
	end, size := from, 0
	for end < total && end-from < int64(page.Limit) {
		size += len(r.messages[end].Body)
		if size > page.MaxBytes && end > from {
			break
		}
		end++
	}
	return copyMessages(r.messages[from:end]), total, nil
}

// Announce implements store.Registry.
func (m *Store) Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.executors[executorID] = now
	for _, a := range agents {
		m.agents[a.Type] = a
	}
	return nil
}

// Beat implements store.Registry.
func (m *Store) Beat(ctx context.Context, executorID string, now session.Millis) (bool, error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if !m.lives(executorID) {
		return false, nil
	}
	m.executors[executorID] = now
	return true, nil
}

// Forget implements store.Registry.
func (m *Store) Forget(ctx context.Context, heardBefore session.Millis) (int, error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	forgotten := 0
	for id, heard := range m.executors {
		if heard < heardBefore {
			delete(m.executors, id)
			forgotten++
		}
	}
	return forgotten, nil
}

// Agents implements store.Registry.
func (m *Store) Agents(ctx context.Context) ([]session.Agent, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var list []session.Agent
	for _, a := range m.agents {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b session.Agent) int { return cmp.Compare(a.Type, b.Type) })
	return list, nil
}
