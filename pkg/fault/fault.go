// Package fault names the failures on which a caller can act.
//
// A fault has a Kind (what the caller should do), a reason (what happened: a stable UPPER_SNAKE word for
// programs), and a detail (a sentence for people, free to change). Every other failure is an ordinary error,
// wrapped once per package, and counts as Internal.
//
// A Kind is itself an error, so the same question works beside the database and behind two network hops:
//
//	if errors.Is(err, fault.Stale) {
//		return reload(ctx)
//	}
//
// Detail and Meta travel to the caller, also over the public API. Internal facts belong in the error that wraps
// the fault.
package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
)

// Fault is a failure on which a caller can act. It is immutable once returned, so goroutines may share it; With
// makes a copy.
type Fault struct {
	Kind   Kind
	Reason string            // UPPER_SNAKE, stable, for programs
	Detail string            // for people; may change, may be empty
	Meta   map[string]string // facts for programs; may be nil
}

// New returns a fault of the kind. The reason is UPPER_SNAKE and stable; format and args make the detail as in
// fmt.Sprintf.
func New(kind Kind, reason, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// With returns a copy of f with one more metadata pair. It replaces an earlier value of the key.
func (f *Fault) With(key, value string) *Fault {
	with := *f
	with.Meta = make(map[string]string, len(f.Meta)+1)
	maps.Copy(with.Meta, f.Meta)
	with.Meta[key] = value
	return &with
}

// Metadata keys of a fault of the kind TooLarge.
const (
	SizeBytes  = "sizeBytes"
	LimitBytes = "limitBytes"
)

// WithSizes returns a copy of f with the size and the limit of what is too large, in bytes. A size of 0 is unknown.
func (f *Fault) WithSizes(size, limit int64) *Fault {
	with := f.With(LimitBytes, strconv.FormatInt(limit, 10))
	if size > 0 {
		with = with.With(SizeBytes, strconv.FormatInt(size, 10))
	}
	return with
}

// Metadata keys of a fault of the kind Exhausted.
const (
	LimitName        = "limit"
	LimitValue       = "limitValue"
	RetryAfterMillis = "retryAfterMs"
)

// WithLimit returns a copy of f with the name and the value of the reached limit.
func (f *Fault) WithLimit(name string, value float64) *Fault {
	return f.With(LimitName, name).With(LimitValue, strconv.FormatFloat(value, 'f', -1, 64))
}

// WithRetryAfter returns a copy of f with how long the caller should wait before it repeats the request, in whole
// milliseconds, rounded up.
func (f *Fault) WithRetryAfter(wait time.Duration) *Fault {
	return f.With(RetryAfterMillis, strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
}

// RetryAfter returns the wait of WithRetryAfter; 0 for none.
func (f *Fault) RetryAfter() time.Duration {
	ms, _ := strconv.ParseInt(f.Meta[RetryAfterMillis], 10, 64) // 0 if it is missing
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, as in the HTTP header Retry-After.
func (f *Fault) RetryAfterSeconds() int64 {
	return int64((f.RetryAfter() + time.Second - 1) / time.Second)
}

// Error returns "REASON: detail", or the reason alone without a detail.
func (f *Fault) Error() string {
	if f.Detail == "" {
		return f.Reason
	}
	return f.Reason + ": " + f.Detail
}

// Is reports whether target is the Kind of f, as used by errors.Is(err, fault.Stale).
func (f *Fault) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && kind == f.Kind
}

// From returns the first fault in err's tree. A bare Kind counts as a fault with the kind's name as its reason
// (NOT_FOUND) and no detail.
func From(err error) (*Fault, bool) {
	if f, ok := errors.AsType[*Fault](err); ok && f != nil {
		return f, true
	}
	if kind, ok := errors.AsType[Kind](err); ok {
		return &Fault{Kind: kind, Reason: kind.reason()}, true
	}
	return nil, false
}

// KindOf returns the kind of the first fault in err's tree. An ended context (context.Canceled,
// context.DeadlineExceeded) without a fault is Unavailable: the work may not have been done and may be retried.
// Everything else, including nil, is Internal.
func KindOf(err error) Kind {
	if f, ok := From(err); ok {
		return f.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Internal
}

// ReasonOf returns the reason of the first fault in err's tree, or "".
func ReasonOf(err error) string {
	if f, ok := From(err); ok {
		return f.Reason
	}
	return ""
}
