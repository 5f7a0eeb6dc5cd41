package session

import (
	"fmt"
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Quotas are the bounds on a new run. Their counters were read before the command, for the run of one user.
type Quotas struct {
	UserID  string
	Bounds  []Bound                  // the first that is reached refuses the run
	Limited func(userID string) bool // the user has bounds of its own, so these hold for no other
}

// OtherUserError is the error of a new run in the session of another user than the one whose quotas were read. The
// caller reads the quotas of that user, and repeats the command. Nothing was written.
type OtherUserError struct{ UserID string }

// Error implements error.
func (e *OtherUserError) Error() string { return "the session has another user, with other quotas" }

// check refuses a change with a new run, whose request has so many bytes. Nil Quotas accept all.
func (q *Quotas) check(own *Change, bytes int64) error {
	if q == nil || own == nil || own.NewRun == nil {
		return nil
	}
	if userID := own.Session.UserID; userID != q.UserID && (q.Limited(userID) || q.Limited(q.UserID)) {
		return &OtherUserError{userID}
	}
	for _, b := range q.Bounds {
		if err := b.Check(bytes); err != nil {
			return err
		}
	}
	return nil
}

// Bound is a bound of a tenant or of a user, and what counts against it.
type Bound struct {
	Kind  BoundKind
	Whose string // "tenant" or "user"
	Limit float64
	Burst int64  // of BoundStarts: most starts at once
	Wait  Millis // of BoundStarts: until the next start
	Used  int64  // of the other kinds
}

// BoundKind is what a Bound counts.
type BoundKind string

// The kinds of Bound.
const (
	BoundStarts BoundKind = "startsPerSecond"
	BoundQueued BoundKind = "queued" // queued and waiting runs
	BoundBytes  BoundKind = "bytes"  // of messages and files
)

// Check gives Exhausted (QUOTA_STARTS, QUOTA_QUEUED, QUOTA_BYTES) for one more of what is counted, or for so many bytes.
// Its metadata tells when to try again: a run ends often, and stored bytes are deleted rarely.
func (b Bound) Check(bytes int64) error {
	const queuedRetry, bytesRetry = Millis(1000), Millis(60_000)
	wait := b.Wait
	var reason, detail string
	switch {
	case b.Kind == BoundStarts && b.Wait > 0:
		reason = "QUOTA_STARTS"
		detail = fmt.Sprintf("the %s may start %g runs a second, and %d at once; send the request again in a moment", b.Whose, b.Limit, b.Burst)
	case b.Kind == BoundQueued && b.Used >= int64(b.Limit):
		reason = "QUOTA_QUEUED"
		wait = queuedRetry
		detail = fmt.Sprintf("%d runs of the %s wait already, which is the limit; send the request again after some have begun",
			int64(b.Limit), b.Whose)
	case b.Kind == BoundBytes && b.Used+bytes > int64(b.Limit):
		reason = "QUOTA_BYTES"
		wait = bytesRetry
		detail = fmt.Sprintf("the messages and files of the %s have about %d bytes, and may have %d; delete sessions, or ask for more",
			b.Whose, b.Used, int64(b.Limit))
	default:
		return nil
	}
	return &fault.Fault{Kind: fault.Exhausted, Reason: reason, Detail: detail, Meta: map[string]string{
		fault.LimitName: b.Whose + "." + string(b.Kind), fault.LimitValue: strconv.FormatFloat(b.Limit, 'f', -1, 64),
		fault.RetryAfterMillis: strconv.FormatInt(int64(wait), 10),
	}}
}
