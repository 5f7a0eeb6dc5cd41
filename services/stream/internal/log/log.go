// Package log is the contract of the log that carries the records of live steps: a
// conditional append, the last message of a session, what is stored of a session or of a
// family, and what is appended from now on.
//
// The log is cut into partitions. All sessions of a family (a tenant and a root
// session) share one, in one order. The offset of a message is its place in that
// order. It means something only to the process that learned it, and only for one
// generation: see Log.Generation.
//
// A log may lose its tail or everything at any moment. The process that
// notices a missing partition makes it again, and nothing else happens.
//
// logtest holds what every implementation must do.
package log

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Stream names the log of one session. The names are 1 to 256 bytes of UTF-8 without
// control characters.
type Stream struct {
	Tenant  string
	Root    string
	Session string
}

// Scope is what a reader reads: one session, or a whole family, which Stream.Session
// does not narrow.
type Scope struct {
	Stream

	Family bool
}

// Message is what one append stores. It must not be changed.
type Message struct {
	Offset  uint64 // above 0 once it is stored
	Session string
	Epoch   int64  // of the writer
	Last    int64  // the sequence of its last frame
	Body    []byte // the records
}

// Page is a part of what is stored.
type Page struct {
	Messages []*Message // in order
	// More says that messages follow the last one of the page, which is not empty then.
	More bool
}

// ErrConflict is the answer to an append whose expected message is not the last one;
// nothing was stored. Look with Last.
var ErrConflict = errors.New("another message is the last one")

// Writer writes sessions. Both methods answer Unavailable (LOG_UNAVAILABLE) when the log
// cannot be reached.
type Writer interface {
	// Last returns the last message of the session, nil when nothing is stored. It sees
	// every message that was acknowledged before the call.
	Last(ctx context.Context, s Stream) (*Message, error)
	// Append stores m, whose Offset and Session are not read, behind the message whose
	// offset is expected (0: nothing is stored) and returns its offset. After Unavailable
	// it may have been stored.
	//
	// ErrConflict: another message is the last one. Exhausted (LOG_FULL): the log has no
	// room.
	Append(ctx context.Context, s Stream, expected uint64, m *Message) (offset uint64, err error)
}

// Reader reads sessions and families.
type Reader interface {
	// Page returns messages of the scope behind the offset: at most limit, and not many
	// more bytes than PageBytes. It sees every message that was acknowledged before the
	// call. Unavailable (LOG_UNAVAILABLE).
	Page(ctx context.Context, s Scope, after uint64, limit int) (Page, error)
	// Follow returns a reader of what is stored after the call, and perhaps of some that
	// was stored shortly before. Leave must be called.
	Follow(s Scope) *Follower
}

// PageBytes is how large a page gets: small enough for each of many readers that wait
// for a slow client to hold one.
const PageBytes = 16 << 10

// Log is a log. Its methods may be called by many goroutines at once.
type Log interface {
	Writer
	Reader
	// Generation rises when messages may have been lost or replaced. An offset that was
	// learned in an earlier generation may name another message since.
	Generation(s Stream) uint64
	// Run does the background work until ctx ends. It then ends all followers, those to
	// come too, and returns nil.
	Run(ctx context.Context) error
	// Close lets go of the log. Call it after Run has returned.
	Close() error
}

// Partition returns which of count partitions holds the family: a stable function of
// tenant and root.
func Partition(s Stream, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Tenant))
	_, _ = h.Write([]byte{0}) // no id has a control character, so no two pairs run together
	_, _ = h.Write([]byte(s.Root))
	return int(h.Sum64() % uint64(count)) //nolint:gosec // count is positive, the remainder is below it
}

// Unavailable returns the fault of a log that cannot be reached. The cause is for the
// log file: it is wrapped, and does not travel.
func Unavailable(doing string, cause error) error {
	return fmt.Errorf("%s: %w: %w", doing,
		fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "the live log cannot be reached; try the same request again"), cause)
}
