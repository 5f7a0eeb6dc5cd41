package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func TestAReadIsRetriedWhenIdleConnectionsWereClosed(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	key := session.Key{Tenant: "t", SessionID: "s"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{created(key)}, nil
	}))
	reads := map[string]func(context.Context) (int, error){
		"a snapshot": func(ctx context.Context) (int, error) {
			got, err := s.Parts().Session(ctx, key)
			if err != nil {
				return 0, err
			}
			return int(got.Session.Version), nil
		},
		"a list": func(ctx context.Context) (int, error) {
			got, err := s.Sessions(ctx, "t", store.SessionQuery{Limit: 10})
			return len(got), err
		},
		"usage": func(ctx context.Context) (int, error) {
			got, err := s.UsageSums(ctx, "t", store.UsageQuery{}, 10)
			return len(got) + 1, err
		},
		"memories": func(ctx context.Context) (int, error) {
			got, err := memories{s}.Recall(ctx, "t", store.MemoryQuery{Limit: 10})
			return len(got) + 1, err
		},
	}
	for name, read := range reads {
		fillPool(t, s)
		cutConnections(t, s)
		if n, err := read(t.Context()); n != 1 || err != nil {
			t.Errorf("%s: got %d, %v, want 1", name, n, err)
		}
	}
	fillPool(t, s)
	cutConnections(t, s)
	if _, err := s.Parts().Session(t.Context(), session.Key{Tenant: "t", SessionID: "nobody"}); fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		t.Errorf("got %v, want SESSION_NOT_FOUND", err)
	}
}

// fillPool fills the pool with idle connections.
func fillPool(t *testing.T, s *Store) {
	t.Helper()
	all := make([]*pgxpool.Conn, connections)
	for i := range all {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all[i] = conn
	}
	for _, conn := range all {
		conn.Release()
	}
}
