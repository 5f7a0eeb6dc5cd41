// Package log is the contract of the live log: a conditional append, the last message of a session, the stored
// messages of a session or a family, and new messages.
//
// The log is divided into partitions. All sessions of a family (a tenant and a root session) share one
// partition, in one order. The offset of a message is its place in that order. It is valid only in the process
// that learned it, and only for one generation: see Log.Generation.
//
// A log may lose its tail or everything at any moment. The process that notices a missing partition creates it
// again. Nothing else happens.
//
// Package logtest is the conformance suite of implementations.
package log

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Stream names the log of one session. The ids are 1 to 256 bytes of UTF-8 without control characters.
type Stream struct {
	Tenant  string
	Root    string
	Session string
}

// Scope selects one session, or a whole family regardless of Stream.Session.
type Scope struct {
	Stream

	Family bool
}

// Message is the unit of an append. It must not be modified.
type Message struct {
	Offset  uint64 // above 0 once stored; 0 for a notification: it has only a session
	Session string
	Epoch   int64  // the writer's epoch
	Last    int64  // sequence of its last frame
	Body    []byte // the encoded records
}

// Page is a range of stored messages.
type Page struct {
	Messages []*Message // in order
	// More means that messages follow the page. The page is not empty then.
	More bool
}

// ErrConflict means that the expected message of an append is not the last one. Nothing was stored. Call Last.
var ErrConflict = errors.New("another message is the last one")

// Writer writes sessions. All methods return Unavailable (LOG_UNAVAILABLE) if the log is unreachable.
type Writer interface {
	// Last returns the last message of the session, or nil for an empty log. It sees every message acknowledged
	// before the call.
	Last(ctx context.Context, s Stream) (*Message, error)
	// Append stores m after the message with the expected offset (0: the log is empty) and returns the new
	// offset. It ignores the Offset and Session of m. After Unavailable, m may have been stored.
	//
	// ErrConflict: another message is the last one. Exhausted (LOG_FULL): the log has no room.
	Append(ctx context.Context, s Stream, expected uint64, m *Message) (offset uint64, err error)
	// Notify passes a notification of the session to the followers of all processes, as a message with the offset
	// 0. It is not stored, and may get lost. Unavailable (LOG_UNAVAILABLE).
	Notify(ctx context.Context, s Stream) error
	// Erase removes the stored messages of the session, of the whole family if Session is empty, or of the whole
	// tenant if Root is empty too. Offsets are not used again, and followers notice nothing. A writer that goes on
	// gets ErrConflict first. Unavailable (LOG_UNAVAILABLE): some may be left.
	Erase(ctx context.Context, s Stream) error
}

// Reader reads sessions and families.
type Reader interface {
	// Page returns messages of the scope after the offset: at most limit, and about PageBytes. It sees every
	// message acknowledged before the call. Unavailable (LOG_UNAVAILABLE).
	Page(ctx context.Context, s Scope, after uint64, limit int) (Page, error)
	// Follow returns a reader of all messages stored after the call, and possibly of some stored shortly before.
	// Leave must be called.
	Follow(s Scope) *Follower
}

// PageBytes is the approximate size of a page. It is small, because each of many readers with slow clients may
// hold a page.
const PageBytes = 16 << 10

// Log is a live log. It is safe for concurrent use.
type Log interface {
	Writer
	Reader
	// Generation rises when messages may have been lost or replaced. An offset from an earlier generation may
	// now belong to another message.
	Generation(s Stream) uint64
	// Run does the background work until ctx ends. It then ends all present and future followers and returns
	// nil.
	Run(ctx context.Context) error
	// Close releases the log. Call it after Run has returned.
	Close() error
}

// Partition returns the family's partition: a stable function of tenant and root.
func Partition(s Stream, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Tenant))
	_, _ = h.Write([]byte{0}) // ids have no control characters, so the separator is unambiguous
	_, _ = h.Write([]byte(s.Root))
	return int(h.Sum64() % uint64(count)) //nolint:gosec // count is positive, the remainder is below it
}

// Unavailable returns the fault of an unreachable log. It wraps the cause for our own log; the cause does not
// travel.
func Unavailable(doing string, cause error) error {
	return fmt.Errorf("%s: %w: %w", doing,
		fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "the live log cannot be reached; try the same request again"), cause)
}
