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

// Expiry expires sessions. All fields must be set.
type Expiry struct {
	Store  store.Lister
	Expire func(context.Context, session.Key) (session.ExpiryResult, error) // expires one session
	Now    func() time.Time
	Log    *slog.Logger
}

// Summary is the result of an expiry.
type Summary struct {
	Detected        int // found
	Marked          int // failed as expired
	AlreadyTerminal int // ended or deleted meanwhile
	Errors          int // could not be expired
}

// Run expires at most limit sessions, the longest overdue first. A failure is logged and
// counted, and does not stop the others. With an error, the summary covers the sessions done
// until then.
func (e Expiry) Run(ctx context.Context, limit int) (Summary, error) {
	var mu sync.Mutex // guards sum
	var sum Summary
	find := func(ctx context.Context, limit int) ([]session.Key, error) {
		return e.Store.Expired(ctx, session.Millis(e.Now().UnixMilli()), limit)
	}
	err := forEachDue(ctx, limit, find, func(ctx context.Context, key session.Key) error {
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

func (s *Summary) count(became session.ExpiryResult, err error) {
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
