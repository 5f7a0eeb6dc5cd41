package fault_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAFaultIsItsKindAndNoOther(t *testing.T) {
	t.Parallel()
	for _, kind := range fault.Kinds() {
		err := fmt.Errorf("commit step: %w", fault.New(kind, "REASON", "detail"))
		for _, other := range fault.Kinds() {
			if got, want := errors.Is(err, other), kind == other; got != want {
				t.Errorf("errors.Is(%v fault, %v) = %v, want %v", kind, other, got, want)
			}
		}
		if errors.Is(err, context.Canceled) {
			t.Errorf("a %v fault is context.Canceled", kind)
		}
	}
}

func TestKindAndReasonAreFoundThroughWraps(t *testing.T) {
	t.Parallel()
	stale := fault.New(fault.Stale, "EPOCH_STALE", "epoch 3 is over")
	tests := []struct {
		name   string
		err    error
		kind   fault.Kind
		reason string
	}{
		{"nil", nil, fault.Internal, ""},
		{"plain", errors.New("disk full"), fault.Internal, ""},
		{"fault", stale, fault.Stale, "EPOCH_STALE"},
		{"wrapped twice", fmt.Errorf("a: %w", fmt.Errorf("b: %w", stale)), fault.Stale, "EPOCH_STALE"},
		{"joined", errors.Join(errors.New("other"), stale), fault.Stale, "EPOCH_STALE"},
		{"bare kind", fmt.Errorf("find: %w", fault.NotFound), fault.NotFound, "NOT_FOUND"},
		{"canceled", fmt.Errorf("wait: %w", context.Canceled), fault.Unavailable, ""},
		{"deadline", context.DeadlineExceeded, fault.Unavailable, ""},
		{"fault before context", errors.Join(context.Canceled, stale), fault.Stale, "EPOCH_STALE"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := fault.KindOf(test.err); got != test.kind {
				t.Errorf("KindOf = %v, want %v", got, test.kind)
			}
			if got := fault.ReasonOf(test.err); got != test.reason {
				t.Errorf("ReasonOf = %q, want %q", got, test.reason)
			}
		})
	}
}

func TestWithLeavesTheFirstFaultAlone(t *testing.T) {
	t.Parallel()
	first := fault.New(fault.Exhausted, "RATE_LIMITED", "slow down")
	second := first.With("retry_after", "3s")
	third := second.With("retry_after", "5s").With("tenant", "t1")

	if first.Meta != nil {
		t.Errorf("first.Meta = %v, want nil", first.Meta)
	}
	if want := map[string]string{"retry_after": "3s"}; !maps.Equal(second.Meta, want) {
		t.Errorf("second.Meta = %v, want %v", second.Meta, want)
	}
	if want := map[string]string{"retry_after": "5s", "tenant": "t1"}; !maps.Equal(third.Meta, want) {
		t.Errorf("third.Meta = %v, want %v", third.Meta, want)
	}
}

func TestAFaultReadsAsReasonAndDetail(t *testing.T) {
	t.Parallel()
	if got, want := fault.New(fault.Invalid, "BAD_NAME", "%q is no name", "a b").Error(), `BAD_NAME: "a b" is no name`; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got, want := fault.New(fault.Invalid, "BAD_NAME", "").Error(), "BAD_NAME"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestEveryKindHasItsOwnName(t *testing.T) {
	t.Parallel()
	seen := map[string]fault.Kind{}
	for _, kind := range fault.Kinds() {
		if other, ok := seen[kind.String()]; ok || kind.String() == "" {
			t.Errorf("kinds %d and %d are both called %q", other, kind, kind)
		}
		seen[kind.Error()] = kind
	}
	if got, want := fault.Kind(200).String(), "kind 200"; got != want {
		t.Errorf("String of an unknown kind = %q, want %q", got, want)
	}
}

func ExampleNew() {
	commit := func() error {
		return fault.New(fault.Stale, "EPOCH_STALE", "run %s was claimed again", "r1").With("epoch", "4")
	}
	err := fmt.Errorf("commit step: %w", commit())
	fmt.Println(errors.Is(err, fault.Stale), fault.ReasonOf(err))
	fmt.Println(err)
	// Output:
	// true EPOCH_STALE
	// commit step: EPOCH_STALE: run r1 was claimed again
}
