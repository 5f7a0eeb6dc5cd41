// Package fault names the failures that a caller can act on.
//
// A fault says three things: its Kind (what the caller should do), its reason
// (what happened, an UPPER_SNAKE word that never changes and that programs may
// compare), and its detail (a sentence for people, free to change). Everything
// else that goes wrong is an ordinary error, wrapped once per room, and counts
// as Internal.
//
// A Kind is itself an error, so a caller asks the same question beside the
// database and behind two network hops:
//
//	if errors.Is(err, fault.Stale) {
//		return reload(ctx)
//	}
//
// Detail and Meta travel to the caller, over the public API too: what only we
// may know belongs in the error that wraps the fault.
package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// Fault is a failure that a caller can act on. It is immutable once it has
// been returned, and so may be shared between goroutines; With makes a copy.
type Fault struct {
	Kind   Kind
	Reason string            // UPPER_SNAKE, stable: programs compare it
	Detail string            // for people; may change, may be empty
	Meta   map[string]string // facts for programs, nil when there are none
}

// New returns a fault of the kind. The reason is UPPER_SNAKE and stable; the
// detail is made from format and args as by fmt.Sprintf.
func New(kind Kind, reason, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// With returns a copy of f that has one more metadata pair. An earlier value of
// the key is replaced; f itself does not change.
func (f *Fault) With(key, value string) *Fault {
	with := *f
	with.Meta = make(map[string]string, len(f.Meta)+1)
	maps.Copy(with.Meta, f.Meta)
	with.Meta[key] = value
	return &with
}

// Error returns "REASON: detail", or the reason alone when there is no detail.
func (f *Fault) Error() string {
	if f.Detail == "" {
		return f.Reason
	}
	return f.Reason + ": " + f.Detail
}

// Is reports whether target is the Kind of f, so that errors.Is(err,
// fault.Stale) asks for the kind.
func (f *Fault) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && kind == f.Kind
}

// From finds the first fault in err and the errors that it wraps. A Kind that
// was returned or wrapped as a bare error counts as a fault whose reason is the
// kind's name (NOT_FOUND) and whose detail is empty.
func From(err error) (*Fault, bool) {
	if f, ok := errors.AsType[*Fault](err); ok && f != nil {
		return f, true
	}
	if kind, ok := errors.AsType[Kind](err); ok {
		return &Fault{Kind: kind, Reason: kind.reason()}, true
	}
	return nil, false
}

// KindOf returns the kind of the first fault in err. An ended context
// (context.Canceled, context.DeadlineExceeded) that is not a fault is
// Unavailable: the work may not have been done, and may be tried again.
// Everything else, nil too, is Internal.
func KindOf(err error) Kind {
	if f, ok := From(err); ok {
		return f.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Internal
}

// ReasonOf returns the reason of the first fault in err, and "" when there is
// none.
func ReasonOf(err error) string {
	if f, ok := From(err); ok {
		return f.Reason
	}
	return ""
}
