package store

import (
	"context"
	"math"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Outbox stores who is told what, and the deliveries of it.
//
// The transaction of a change stores a delivery of each of its events (session.Change.Events) for each subscription of
// the tenant that wants it. The same statement that writes the events reads the subscriptions, so no copy of them in
// memory can be stale.
type Outbox interface {
	// PutSubscription adds a subscription, or replaces the one with its id but for CreatedBy and CreatedAt. When it
	// returns, every event of a transaction that commits later is stored for it: it waits for the
	// transactions that have begun before. Unavailable (STORE_UNAVAILABLE) if one of them takes too long; the subscription
	// is stored then. Exhausted (SUBSCRIPTIONS_FULL) if it would be new, and the tenant has most others.
	PutSubscription(ctx context.Context, tenant string, s session.Subscription, most int) error

	// Subscription returns a subscription. NotFound (SUBSCRIPTION_NOT_FOUND).
	Subscription(ctx context.Context, tenant, id string) (*session.Subscription, error)

	// Subscriptions returns all of a tenant, by id.
	Subscriptions(ctx context.Context, tenant string) ([]session.Subscription, error)

	// DeleteSubscription deletes a subscription with its deliveries. It reports whether there was one.
	DeleteSubscription(ctx context.Context, tenant, id string) (bool, error)

	// AddDelivery adds a delivery of an event to one subscription, whatever it wants. sessionID may be empty. It returns the
	// number. NotFound (SUBSCRIPTION_NOT_FOUND).
	AddDelivery(ctx context.Context, tenant, subscriptionID, sessionID string, e session.Event) (int64, error)

	// ClaimDeliveries claims due deliveries for an executor. The subscriptions take turns, each with at most
	// DeliveryClaim.Each in progress. Of a session and a subscription, only the first pending delivery is claimed. The
	// deliveries in progress at unregistered executors are due at once. It claims none for an unregistered executor. idle reports that no
	// tenant has a subscription.
	ClaimDeliveries(ctx context.Context, c DeliveryClaim) (claimed []ClaimedDelivery, idle bool, err error)

	// UpdateDeliveries calls decide with each claimed delivery of the references, and writes what it has changed. It omits
	// those with another claim. The next deliveries of the same session and subscription are due
	// when this one is, or at now after its end. It returns how many it has changed. A crash of the database may lose the last changes.
	UpdateDeliveries(ctx context.Context, refs []DeliveryRef, now session.Millis, decide func(*session.Delivery)) (int, error)

	// Deliveries returns a page of a tenant's deliveries, the newest first.
	Deliveries(ctx context.Context, tenant string, q DeliveryQuery) ([]session.Delivery, error)

	// Replay makes a delivery that has ended due at now, with a new time for retries; or all dead ones of
	// the subscription if number is 0. It returns how many.
	Replay(ctx context.Context, tenant, subscriptionID string, number int64, now session.Millis) (int64, error)

	// ExpireDeliveries deletes at most limit deliveries that expire at now or earlier, and of each subscription with pending
	// ones at most limit of the oldest undelivered ones above most. It returns their number.
	ExpireDeliveries(ctx context.Context, now session.Millis, most, limit int) (int64, error)

	// DropOutbox deletes all subscriptions and deliveries of a tenant.
	DropOutbox(ctx context.Context, tenant string) error

	// OutboxBacklog counts the deliveries of all tenants, or of one. It reads at most so many of each status.
	OutboxBacklog(ctx context.Context, tenant string, most int64) (OutboxBacklog, error)
}

// DeliveryClaim asks for due deliveries.
type DeliveryClaim struct {
	ExecutorID string
	ClaimID    string // new
	Now        session.Millis
	Until      session.Millis // when the claim ends, and the deliveries are due again
	Each       int            // most in progress of a subscription
	Limit      int
	MaxBytes   int // of an output or of an input; longer ones are omitted
}

// DeliveryRef names an attempt.
type DeliveryRef struct {
	Tenant  string
	Number  int64
	ClaimID string
}

// ClaimedDelivery is a delivery with what to send, and where. What was deleted meanwhile is nil.
type ClaimedDelivery struct {
	Tenant string
	session.Delivery
	URL     string
	Secrets []string
	Session *session.Session // with ParentID, UserID, Metadata and Status
	Run     *session.Run     // with its outcome and times
	Call    *session.Call    // without its opaque messages
	Omitted bool             // the output or the input is longer than DeliveryClaim.MaxBytes
}

// DeliveryQuery selects deliveries. The zero value of a field is no condition.
type DeliveryQuery struct {
	SubscriptionID string
	Status         session.DeliveryStatus
	Before         int64 // only lower numbers
	Limit          int   // at least 1
}

// OrLast returns the exclusive upper bound of a page; 0 is none.
func OrLast(before int64) int64 {
	if before == 0 {
		return math.MaxInt64
	}
	return before
}

// OutboxBacklog is what is not delivered.
type OutboxBacklog struct {
	Pending int64
	Oldest  session.Millis // when the event of the oldest pending one happened; 0 for none
	Dead    int64
}

// SubscriptionNotFound is the fault of an unknown subscription: NotFound (SUBSCRIPTION_NOT_FOUND).
func SubscriptionNotFound(id string) error {
	return fault.New(fault.NotFound, "SUBSCRIPTION_NOT_FOUND", "there is no webhook %q", id)
}

// SubscriptionsFull is the fault of too many subscriptions: Exhausted (SUBSCRIPTIONS_FULL).
func SubscriptionsFull(most int) error {
	return fault.New(fault.Exhausted, "SUBSCRIPTIONS_FULL",
		"the tenant has %d webhooks already; delete one, or let one receive more kinds", most)
}
