package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// dueStore is a store with sessions that are due until they are done.
type dueStore struct {
	store.Store
	mu     sync.Mutex
	due    []session.Key
	done   map[session.Key]int // the number of tries of each
	fails  map[session.Key]bool
	atOnce int // sessions in progress
	most   int // the highest atOnce
	looks  int
	broken error
}

// parts returns the store with its wrapped parts.
func (l *dueStore) parts() store.Store {
	s := l.Store
	s.Lister = l
	return s
}

func newListed(t *testing.T, n int) *dueStore {
	t.Helper()
	l := &dueStore{Store: sqlitetest.Open(t), done: map[session.Key]int{}, fails: map[session.Key]bool{}}
	for i := range n {
		l.due = append(l.due, session.Key{Tenant: "t", SessionID: fmt.Sprint(i)})
	}
	return l
}

func (l *dueStore) find(limit int) ([]session.Key, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	if l.broken != nil {
		return nil, l.broken
	}
	var keys []session.Key
	for _, key := range l.due {
		if len(keys) < limit && (l.done[key] == 0 || l.fails[key]) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (l *dueStore) Overdue(_ context.Context, _ session.Millis, limit int) ([]session.Key, error) {
	return l.find(limit)
}

func (l *dueStore) Expired(_ context.Context, _ session.Millis, limit int) ([]session.Key, error) {
	return l.find(limit)
}

var errStuck = errors.New("it cannot be done")

func (l *dueStore) do(key session.Key) error {
	l.mu.Lock()
	l.done[key]++
	l.atOnce++
	l.most = max(l.most, l.atOnce)
	l.mu.Unlock()
	time.Sleep(time.Millisecond) // fake time: the others begin meanwhile
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atOnce--
	if l.fails[key] {
		return errStuck
	}
	return nil
}

func (l *dueStore) expiry() sweep.Expiry {
	return sweep.Expiry{
		Store: l, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Expire: func(_ context.Context, key session.Key) (session.ExpiryResult, error) {
			if err := l.do(key); err != nil {
				return "", err
			}
			switch key.SessionID {
			case "1":
				return session.ExpiryAlreadyTerminal, nil
			case "2":
				return "", session.SessionNotFound(key)
			case "3":
				return session.ExpiryNotDue, nil
			}
			return session.ExpiryMarked, nil
		},
	}
}

func TestAnExpiryCountsItsResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListed(t, 250)
		for i := range 120 { // more than a page of failing ones comes first
			l.fails[l.due[10+i]] = true
		}
		got, err := l.expiry().Run(t.Context(), 1000)
		want := sweep.Summary{Detected: 250, Marked: 127, AlreadyTerminal: 2, Errors: 120}
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		for key, n := range l.done {
			if n != 1 {
				t.Errorf("%v was tried %d times, want once", key, n)
			}
		}
		if l.most != 8 {
			t.Errorf("got %d at once, want 8", l.most)
		}
	})
}

func TestAnExpiryStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListed(t, 250)
		got, err := l.expiry().Run(t.Context(), 120)
		if err != nil || got.Detected != 120 || len(l.done) != 120 {
			t.Errorf("got %+v, %v and %d done, want 120", got, err, len(l.done))
		}
	})
}

func TestAnExpiryReturnsTheErrorOfItsQuery(t *testing.T) {
	t.Parallel()
	l := newListed(t, 1)
	l.broken = store.Unavailable(errors.New("gone"))
	if _, err := l.expiry().Run(t.Context(), 10); !errors.Is(err, l.broken) {
		t.Errorf("got %v, want the store's failure", err)
	}
}

func TestAnExpiryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListed(t, 5000)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		got, err := l.expiry().Run(ctx, 5000)
		if !errors.Is(err, context.DeadlineExceeded) || got.Detected == 0 || got.Detected == 5000 {
			t.Errorf("got %+v, %v; want a part", got, err)
		}
	})
}

func TestDeadlinesAndExpiryHaveTheirOwnPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListed(t, 3)
		l.fails[l.due[0]] = true // is tried by each sweep, and delays no other
		w := worker(l.parts())
		w.TimeOut = func(_ context.Context, key session.Key) error { return l.do(key) }
		var expiries int
		w.Expire = func(context.Context, int) (sweep.Summary, error) {
			expiries++
			return sweep.Summary{}, store.Unavailable(errors.New("gone"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Run(ctx) })
		time.Sleep(3*time.Minute + time.Second)
		cancel()
		wg.Wait()
		if l.done[l.due[0]] < 350 || l.done[l.due[1]] != 1 || l.done[l.due[2]] != 1 || expiries != 3 {
			t.Errorf("got %v tries and %d expiries", l.done, expiries)
		}
	})
}
