package sweep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Expiry gives up sessions whose time is over. All fields have to be set.
type Expiry struct {
	Store  store.Lister
	Expire func(context.Context, session.Key) (session.Expired, error) // gives up one session
	Now    func() time.Time
	Log    *slog.Logger
}

// Summary is what an expiry did.
type Summary struct {
	Detected        int // sessions that were found
	Marked          int // given up
	AlreadyTerminal int // over, or gone, before their turn came
	Errors          int // could not be given up
}

// Run gives up at most so many sessions, the longest expired first. One that
// cannot be given up is logged, counted, and does not hold up the others. With
// an error the summary says what was done until then.
func (e Expiry) Run(ctx context.Context, most int) (Summary, error) {
	var mu sync.Mutex // guards sum
	var sum Summary
	find := func(ctx context.Context, limit int) ([]session.Key, error) {
		return e.Store.Expired(ctx, session.Millis(e.Now().UnixMilli()), limit)
	}
	err := forEachDue(ctx, most, find, func(ctx context.Context, key session.Key) error {
		became, err := e.Expire(ctx, key)
		if err != nil && fault.KindOf(err) == fault.NotFound {
			became, err = session.ExpiryAlreadyTerminal, nil
		}
		if err != nil {
			e.Log.WarnContext(ctx, "session could not be expired", "tenant", key.Tenant, "session", key.SessionID, "error", err)
		}
		mu.Lock()
		defer mu.Unlock()
		sum.count(became, err)
		return err
	})
	return sum, err
}

func (s *Summary) count(became session.Expired, err error) {
	s.Detected++
	switch {
	case err != nil:
		s.Errors++
	case became == session.ExpiryMarked:
		s.Marked++
	case became == session.ExpiryAlreadyTerminal:
		s.AlreadyTerminal++
	}
}
