// Package bus is the contract of the log that carries the records: where they
// are stored, how they are read again, and how they are told as they come.
//
// The log is cut into partitions. All sessions of a family (a tenant and a
// root session) share one; its sequences rise by one for each record written to
// it. Retention removes records from the front of a partition, or of a session,
// and a partition that is made anew starts above every sequence that an earlier
// one of the name can have given, so that a cursor never means two records.
//
// A power cut may take the end of a log that had acknowledged it, and what is
// written next would get sequences that others know for something else. No log
// can see that by itself, but whoever knows a sequence that was acknowledged can:
// see Renewer.
//
// bustest holds what every implementation must do.
package bus

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Stream names the stream of one session. The names are 1 to 256 bytes of
// UTF-8 without control characters.
type Stream struct {
	Tenant  string
	Root    string
	Session string
}

// Scope is what a reader reads: one stream, or those of a whole family, which
// Stream.Session does not narrow.
type Scope struct {
	Stream
	Family bool
}

// ErrConflict is the answer to an append whose expected tail is not the last
// record; nothing was stored. Look again with Last.
var ErrConflict = errors.New("another record is the last one")

// ErrUnknown is wrapped by errors of an append of which it is not known
// whether it was stored.
var ErrUnknown = errors.New("not known whether the record was stored")

// Writer writes streams.
type Writer interface {
	// Last returns the last record of the stream, nil when nothing is kept. It
	// sees every record that was acknowledged before the call.
	Last(ctx context.Context, s Stream) (*chunklog.Record, error)
	// Append stores the record behind the record whose sequence is expected (0:
	// nothing is kept) and returns its sequence. It does not keep r, but may
	// keep r.Payload.
	//
	// ErrConflict: another record is the last one. An error that wraps
	// ErrUnknown: look with Last. Exhausted (LOG_FULL), Unavailable
	// (LOG_UNAVAILABLE): it was not stored.
	Append(ctx context.Context, s Stream, expected uint64, r *chunklog.Record) (uint64, error)
	// Void removes the records of the stream with these sequences. Those that
	// are gone already are passed over; repeating it is safe.
	Void(ctx context.Context, s Stream, sequences []uint64) error
	// Purge removes all records of the stream before the sequence. Repeating it
	// is safe.
	Purge(ctx context.Context, s Stream, before uint64) error
}

// Page is a part of what is stored.
type Page struct {
	Records []*chunklog.Record // in order
	// More says that records follow the last one of the page, which is not
	// empty then.
	More bool
}

// Info says what is stored of one stream, and where its partition stands.
type Info struct {
	First, Last uint64 // of the stream; 0 when nothing is kept
	Count       int64  // of the stream
	// Floor is the highest sequence that retention by age or size may have
	// removed from the partition. What is missing above it was voided, or lies
	// before First and was removed because the session had too many records.
	Floor uint64
	// Top is the highest sequence that the partition has given.
	Top uint64
	// Began is the sequence at which the partition was made, or was begun anew
	// for the last time: whatever is known with a lower one is of a log that
	// does not exist any more.
	Began uint64
}

// Reader reads what is stored.
type Reader interface {
	// History returns records of the scope after the cursor, as many as fit a
	// page of the implementation's size. It sees every record that was
	// acknowledged before the call.
	History(ctx context.Context, s Scope, after uint64) (Page, error)
	// Info returns where the stream and its partition stand.
	Info(ctx context.Context, s Stream) (Info, error)
}

// Sink takes what is appended to a scope. Its methods are called by one
// goroutine at a time and must not wait for anything, nor call the bus.
type Sink interface {
	// Deliver takes a record. Records come in order, each once.
	Deliver(r *chunklog.Record)
	// Gap says that records before the next one delivered may be missing: read
	// what is stored.
	Gap()
}

// Live tells what is appended.
type Live interface {
	// Follow tells the sink every record of the scope that is stored after the
	// call, and perhaps some that were stored shortly before, until stop is
	// called. After stop has returned the sink is not called any more.
	Follow(s Scope, sink Sink) (stop func())
}

// Renewer begins a partition anew that has lost its end.
type Renewer interface {
	// Renew settles the doubt of somebody who knows that the sequence was
	// acknowledged as that of a record of the stream, and does not find it, nor a
	// later one of the stream. It asks the log in a way that no copy which lags or
	// was deposed can answer. It returns false where the doubt was unfounded: the
	// stream has a record at or above the sequence, retention has removed it, or
	// the partition was begun anew since; read again.
	//
	// Else the partition is begun anew, above every sequence that it can have
	// given: all that is stored in it is gone, whichever session it is of, and
	// whoever follows one of its scopes is told of a gap. Of several callers at
	// once all get true, and a crash in the middle leaves what the next caller, or
	// Run, completes.
	Renew(ctx context.Context, s Stream, sequence uint64) (renewed bool, err error)
}

// Bus is a log. Its methods may be called by many goroutines at once; all but
// Follow wait for I/O, answer Unavailable (LOG_UNAVAILABLE) when the log
// cannot be reached, and give up after a time of their own when ctx has none.
type Bus interface {
	Writer
	Reader
	Live
	Renewer
	// Run does the background work, if there is any, until ctx ends; it then
	// returns nil.
	Run(ctx context.Context) error
	// Close lets go of the log. Call it after Run has returned.
	Close() error
}

// Partition returns which of count partitions holds the family: a stable
// function of tenant and root.
func Partition(s Stream, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Tenant))
	_, _ = h.Write([]byte{0}) // no id has a control character, so no two pairs run together
	_, _ = h.Write([]byte(s.Root))
	return int(h.Sum64() % uint64(count)) //nolint:gosec // count is positive, the remainder is below it
}

// FirstSequence returns where a partition that is made at this time starts. A
// partition is given less than one record a microsecond, so one that is made
// anew starts above all that was in the old one; and the number stays below
// 2^53, which JSON numbers hold exactly, until the year 2255.
func FirstSequence(now time.Time) uint64 {
	return uint64(max(now.UnixMicro(), 1)) //nolint:gosec // positive
}

// Unavailable returns the fault of a log that cannot be reached. The cause is
// for the log file: it is wrapped, and does not travel.
func Unavailable(doing string, cause error) error {
	return &unavailable{
		fault: fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "the chunk log cannot be reached; try the same request again"),
		doing: doing,
		cause: cause,
	}
}

type unavailable struct {
	fault *fault.Fault
	doing string
	cause error
}

func (u *unavailable) Error() string   { return u.doing + ": " + u.cause.Error() }
func (u *unavailable) Unwrap() []error { return []error{u.fault, u.cause} }
