package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func TestACutConnectionIsUnavailableAndTheStoreRecovers(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	key := session.Key{Tenant: "t", SessionID: "s"}
	err := s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
		cutConnections(t, s)
		return []*session.Change{created(key)}, nil
	})
	if fault.ReasonOf(err) != "STORE_UNAVAILABLE" || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v (%v), want STORE_UNAVAILABLE", err, fault.KindOf(err))
	}
	if err := readAfterCut(t, s, key); fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		t.Errorf("after the cut: got %v, want SESSION_NOT_FOUND", err)
	}
}

// readAfterCut reads a session, and retries for each idle connection that was cut.
func readAfterCut(t *testing.T, s *Store, key session.Key) (err error) {
	t.Helper()
	for range connections + 1 {
		if _, err = s.Parts().Session(t.Context(), key); fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
			return err
		}
	}
	return err
}

// cutConnections terminates every other connection to the database.
func cutConnections(t *testing.T, s *Store) {
	t.Helper()
	t.Cleanup(s.pool.Reset) // checkPlans cannot use cut connections
	conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if err != nil {
		t.Error(err)
	}
}

func TestADatabaseThatIsNotThereYetIsUnavailable(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://nobody@127.0.0.1:1/none", 1, commits, nil)
	if fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
		t.Errorf("got %v, want STORE_UNAVAILABLE", err)
	}
}

func TestABadURLIsNotQuoted(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://user:secret@host:port/db", 1, commits, nil)
	if fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}

func TestAValueThatIsTooLongForTheDatabaseIsRefusedAsTooLarge(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	long := session.Key{Tenant: "t", SessionID: incompressible(20_000)}
	err := s.Update(t.Context(), targets(session.Need{}, long), 1, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{created(long)}, nil
	})
	if fault.ReasonOf(err) != "STATE_SIZE_EXCEEDED" || fault.KindOf(err) != fault.TooLarge {
		t.Errorf("got %v (%v), want STATE_SIZE_EXCEEDED", err, fault.KindOf(err))
	}
}
