// Package memory keeps the rows of the state service in the process. It is for
// tests, under real or fake time: everything is gone with the process.
//
// One mutex makes every method atomic. A command writes into copies of the rows
// that it touches, which take the place of the others when the last of its
// changes has passed what the schemas of the other stores enforce. Rows are
// copied on the way in and on the way out too, so that nobody can change one but
// through the store.
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var _ store.Store = (*Store)(nil)

var errClosed = errors.New("the memory store is closed")

// Store is a store.Store. The zero value is not usable; New makes one.
type Store struct {
	mu        sync.Mutex
	closed    bool
	sessions  map[session.Key]*rows
	families  map[session.Key]map[string]bool // the session ids of a family, by the key of its root
	executors map[string]executor
	agents    map[string]session.Agent
	memories  map[string]map[string]record // by tenant and id
}

// executor is one that is registered.
type executor struct {
	heard  session.Millis // last
	agents []string       // that it announces
}

// New returns an empty store.
func New() *Store {
	return &Store{
		sessions:  map[session.Key]*rows{},
		families:  map[session.Key]map[string]bool{},
		executors: map[string]executor{},
		agents:    map[string]session.Agent{},
		memories:  map[string]map[string]record{},
	}
}

// Close makes every later call fail as unavailable.
func (m *Store) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// enter takes the lock, unless the store is closed or ctx has ended.
func (m *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return store.Unavailable(errClosed)
	}
	return nil
}

// Update implements store.Updater. Nothing waits here, so bytes does not count.
func (m *Store) Update(ctx context.Context, targets []session.Target, _ int, decide store.Decide) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	t := m.begin()
	views := make([]*session.View, len(targets))
	for i, target := range targets {
		v, err := t.view(target.Key, target.Need)
		if err != nil {
			return err
		}
		views[i] = v
	}
	changes, err := decide(views)
	if err != nil || changes == nil {
		return err
	}
	if len(changes) != len(targets) {
		return fmt.Errorf("got %d changes for %d sessions", len(changes), len(targets))
	}
	for i, change := range changes {
		if change == nil {
			continue
		}
		if err := t.apply(targets[i].Key, change); err != nil {
			return err
		}
	}
	t.commit()
	return nil
}

// UpdateDue implements store.Updater.
func (m *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	t := m.begin()
	var done []store.Decided
	for _, c := range m.candidates(due, limit) {
		need.RunID, need.Open = c.runID, true
		v, err := t.view(c.key, need)
		if err != nil {
			return nil, err
		}
		v.HolderSilent = !m.lives(v.Run.ExecutorID)
		change, err := decide(v)
		if err != nil {
			return nil, err
		}
		if change == nil {
			continue
		}
		if err := t.apply(c.key, change); err != nil {
			return nil, err
		}
		done = append(done, store.Decided{View: v, Change: change})
	}
	t.commit()
	return done, nil
}

func (m *Store) lives(executorID string) bool {
	_, known := m.executors[executorID]
	return known
}

// served reports whether an executor that is registered announces the agent.
func (m *Store) served(agentType string) bool {
	for _, e := range m.executors {
		if slices.Contains(e.agents, agentType) {
			return true
		}
	}
	return false
}
