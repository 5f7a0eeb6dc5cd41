package postgres

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// A transaction may have read the subscriptions before a new one was written, and commit after it. The new one is
// acknowledged only then, so its subscriber misses no event of a later transaction.
func TestASubscriptionIsAcknowledgedAfterTheTransactionsThatDoNotSeeIt(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	event := []any{"acme", "s", "e", "k", "s", "", "", "", int64(1), ""}
	if _, err := tx.Exec(t.Context(), writes[deliveryInsert].single.text, event...); err != nil {
		t.Fatal(err)
	}
	put := make(chan error, 1)
	go func() { put <- s.Parts().PutSubscription(t.Context(), "acme", session.Subscription{ID: "w"}, 1) }()
	for ask[int64](t, s, `SELECT count(*) FROM subscriptions`) == 0 { // until it is committed
	}
	for range 50 { // each is a round trip, and longer than a wait that does not wait
		_ = ask[int64](t, s, `SELECT count(*) FROM deliveries`)
	}
	select {
	case err := <-put:
		t.Fatalf("the subscription is acknowledged with %v, while a transaction that does not see it goes on", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), writes[deliveryInsert].single.text, event...); err != nil {
		t.Fatal(err)
	}
	if n := ask[int64](t, s, `SELECT count(*) FROM deliveries`); n != 1 {
		t.Errorf("got %d deliveries, want that of the later event alone", n)
	}
}
