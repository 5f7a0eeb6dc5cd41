package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Announce implements store.Registry.
func (m *Store) Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	e := executor{heard: now}
	for _, a := range agents {
		m.agents[a.Type] = a
		e.agents = append(e.agents, a.Type)
	}
	m.executors[executorID] = e
	return nil
}

// Beat implements store.Registry.
func (m *Store) Beat(ctx context.Context, executorID string, now session.Millis) (bool, error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	e, known := m.executors[executorID]
	if !known {
		return false, nil
	}
	e.heard = now
	m.executors[executorID] = e
	return true, nil
}

// Stops implements store.Registry.
func (m *Store) Stops(ctx context.Context, executorIDs ...string) ([]store.StoppedRun, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var stopped []store.StoppedRun
	for _, r := range m.sessions {
		for _, run := range r.runs {
			if run.Status == session.RunRunning && slices.Contains(executorIDs, run.ExecutorID) && run.Stop != nil {
				stopped = append(stopped, store.StoppedRun{ExecutorID: run.ExecutorID, RunID: run.RunID, Stop: *run.Stop})
			}
		}
	}
	slices.SortFunc(stopped, func(a, b store.StoppedRun) int { return cmp.Compare(a.RunID, b.RunID) })
	return stopped, nil
}

// Forget implements store.Registry.
func (m *Store) Forget(ctx context.Context, heardBefore session.Millis) (int, error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	forgotten := 0
	for id, e := range m.executors {
		if e.heard < heardBefore {
			delete(m.executors, id)
			forgotten++
		}
	}
	return forgotten, nil
}

// Heard implements store.Registry.
func (m *Store) Heard(ctx context.Context) (map[string]session.Millis, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	heard := map[string]session.Millis{}
	for id, e := range m.executors {
		heard[id] = e.heard
	}
	return heard, nil
}

// ForgetUnheard implements store.Registry.
func (m *Store) ForgetUnheard(ctx context.Context, since map[string]session.Millis) ([]string, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var gone []string
	for id, then := range since {
		if e, known := m.executors[id]; known && e.heard == then {
			delete(m.executors, id)
			gone = append(gone, id)
		}
	}
	return gone, nil
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
