// Package memory keeps the rows of the state service in the process. It is for
// tests, under real or fake time: everything is gone with the process.
//
// One mutex makes every method atomic. Rows are copied on the way in and on
// the way out, so that nobody can change a row but through Update.
package memory

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var _ store.Store = (*Store)(nil)

// Store is a store.Store. The zero value is not usable; New makes one.
type Store struct {
	mu        sync.Mutex
	closed    bool
	sessions  map[session.Key]*rows
	executors map[string]session.Millis // when they were heard last
	agents    map[string]session.Agent
}

// rows is everything that belongs to one session.
type rows struct {
	session     session.Session
	runs        []session.Run // by turn
	messages    []session.Message
	ids         map[string]bool  // of the messages
	states      map[int64]string // by the session's version that wrote them
	journal     *session.Journal
	checkpoints []session.Checkpoint
	usage       []session.UsageEntry
}

// New returns an empty store.
func New() *Store {
	return &Store{
		sessions:  map[session.Key]*rows{},
		executors: map[string]session.Millis{},
		agents:    map[string]session.Agent{},
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

// Update implements store.Updater.
func (m *Store) Update(ctx context.Context, key session.Key, need session.Need, decide store.Decide) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	change, err := decide(m.view(key, need))
	if err != nil || change == nil {
		return err
	}
	return m.apply(key, change)
}

// UpdateDue implements store.Updater.
func (m *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.Decide) ([]store.Decided, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var done []store.Decided
	for _, c := range m.candidates(due, limit) {
		need.RunID, need.Open = c.runID, true
		v := m.view(c.key, need)
		v.HolderSilent = !m.lives(v.Run.ExecutorID)
		change, err := decide(v)
		if err != nil {
			return nil, err
		}
		if change != nil {
			done = append(done, store.Decided{View: v, Change: change})
		}
	}
	for _, d := range done {
		if err := m.apply(d.View.Session.Key, d.Change); err != nil {
			return nil, err
		}
	}
	return done, nil
}

func (m *Store) lives(executorID string) bool {
	_, known := m.executors[executorID]
	return known
}
