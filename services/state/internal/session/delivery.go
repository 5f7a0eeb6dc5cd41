package session

import "math"

// Subscription is a receiver of a tenant's events.
type Subscription struct {
	ID        string // unique in its tenant
	URL       string
	Kinds     []EventKind // empty for all, also for later ones
	Agents    []string    // events of these agents' sessions; empty for all
	Secrets   []string    // that sign each delivery, the newest first: one, or two while one replaces the other
	Paused    bool        // events are stored and not sent
	CreatedBy string      // as in state.v1.Caller
	CreatedAt Millis
	UpdatedAt Millis
}

// Delivery is an event on its way to one subscription.
type Delivery struct {
	Number         int64 // unique; rises with the order of the events of a session
	SubscriptionID string
	SessionID      string
	Event
	Status     DeliveryStatus
	DueAt      Millis // not claimed before; of a claimed one, when the claim ends
	FirstAt    Millis // of the first attempt since the last replay; 0 before
	Attempts   int32  // since the last replay, with the one in progress
	Error      string // of the last failed attempt; empty for none
	ExecutorID string // that sends it; empty for none
	ClaimID    string // of the attempt in progress; a secret
	EndedAt    Millis // when it was delivered or became dead; 0 before
	ExpiresAt  Millis // the row is deleted
}

// DeliveryStatus is the status of a delivery.
type DeliveryStatus string

// The statuses. A dead delivery is not sent again unless it is replayed.
const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryDead      DeliveryStatus = "dead"
)

// Retries says how long deliveries are retried and kept.
type Retries struct {
	For           Millis // after the first attempt, when a delivery becomes dead
	KeepDelivered Millis
	KeepDead      Millis
}

// The pauses between attempts double from the first to the longest.
const (
	firstRetry   Millis = 5 * 1000
	longestRetry Millis = 60 * 60 * 1000
)

// MaxDeliveryAge is how long a delivery may be pending, as of a paused subscription, before it is deleted.
const MaxDeliveryAge Millis = 40 * 24 * 60 * 60 * 1000

// MaxDeliveryError bounds the stored error of an attempt, in bytes.
const MaxDeliveryError = 1024

// Delivered ends a delivery that its receiver has accepted. The row of a deleted session names a user, and is not kept.
func (d *Delivery) Delivered(r Retries, now Millis) {
	d.end(DeliveryDelivered, now, r.KeepDelivered)
	d.Error = ""
	if d.Kind == EventSessionDeleted {
		d.ExpiresAt = now
	}
}

// Failed makes a delivery due again, or dead if the time for its retries is over. wait is what the receiver asks for, 0 for
// nothing. random is in [0, 1): it spreads the attempts.
func (d *Delivery) Failed(r Retries, now Millis, text string, wait Millis, random float64) {
	pause := firstRetry * Millis(math.Exp2(float64(min(max(d.Attempts-1, 0), 20))))
	pause = min(max(pause, wait), longestRetry)
	pause -= Millis(random * float64(pause) / 4)
	if now+pause > d.FirstAt+r.For {
		d.end(DeliveryDead, now, r.KeepDead)
	} else {
		d.DueAt, d.ExecutorID, d.ClaimID = now+pause, "", ""
	}
	d.Error = text
}

func (d *Delivery) end(as DeliveryStatus, now, keep Millis) {
	d.Status, d.EndedAt, d.ExpiresAt = as, now, now+keep
	d.ExecutorID, d.ClaimID = "", ""
}
