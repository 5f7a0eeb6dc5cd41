package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

var errPoison = errors.New("no such column")

// writeTogether runs the commands as one batch, after a batch of one other command. It
// returns their errors, and the batches in which they were written.
func writeTogether(t *testing.T, answer func(ctx context.Context, batch []string) ([]error, error), names ...string) (errs []error, asked []string) {
	t.Helper()
	b := newHolding()
	b.answer = func(ctx context.Context, batch []string) ([]error, error) {
		if batch[0] == "z" {
			return nil, nil
		}
		return answer(ctx, batch)
	}
	inBubble(t, oneLaneConfig(), b, nil, func(b *bench) {
		first := b.do("z")
		var calls []*call
		for _, name := range names {
			calls = append(calls, b.do(name))
		}
		b.releaseAll()
		b.wantWritten(first)
		for _, c := range calls {
			<-c.done
			errs = append(errs, c.err)
		}
		b.wantWritten(b.do("z")) // the lane still works
		asked = b.batches()
		asked = asked[1 : len(asked)-1]
	})
	return errs, asked
}

// wantOnly checks that only the guilty command has the error.
func wantOnly(t *testing.T, errs []error, guilty int, want error) {
	t.Helper()
	for i, err := range errs {
		if i == guilty && !errors.Is(err, want) {
			t.Errorf("guilty command %d = %v, want %v", i, err, want)
		}
		if i != guilty && err != nil {
			t.Errorf("neighbour %d = %v, want nil", i, err)
		}
	}
}

func wantAsked(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("batches = %q, want %q", got, want)
	}
}

func TestACommandThatItsRulesRefuseFailsAloneAtOnce(t *testing.T) {
	t.Parallel()
	stale := fault.New(fault.Stale, "EPOCH_STALE", "")
	errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
		return []error{nil, stale, nil}, nil
	}, "a", "b", "c")
	wantOnly(t, errs, 1, stale)
	wantAsked(t, asked, "a b c")
}

func TestAnUnavailableRuleOfOneCommandIsNoOutage(t *testing.T) {
	t.Parallel()
	busy := fault.New(fault.Unavailable, "AGENT_UNKNOWN", "")
	errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
		if len(batch) > 1 {
			return nil, errPoison
		}
		if batch[0] == "b" {
			return []error{busy}, nil
		}
		return nil, nil
	}, "a", "b", "c")
	wantOnly(t, errs, 1, busy)
	wantAsked(t, asked, "a b c", "a", "b", "c")
}

func TestAPoisonedCommandFailsAlone(t *testing.T) {
	t.Parallel()
	errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
		if slices.Contains(batch, "c") {
			return nil, errPoison
		}
		return nil, nil
	}, "a", "b", "c", "d")
	wantOnly(t, errs, 2, errPoison)
	wantAsked(t, asked, "a b c d", "a", "b", "c", "d")
}

func TestAPoisonedCommandThatIsAloneIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	errs, asked := writeTogether(t, func(context.Context, []string) ([]error, error) { return nil, errPoison }, "a")
	wantOnly(t, errs, 0, errPoison)
	wantAsked(t, asked, "a")
}

func TestAnOutageIsNotMultiplied(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]error{
		"away": fmt.Errorf("begin: %w", fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "")),
		"late": fmt.Errorf("commit: %w", context.DeadlineExceeded),
		"both": group.Conflict(fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, names := range [][]string{{"a"}, {"a", "b", "c"}} {
				errs, asked := writeTogether(t, func(context.Context, []string) ([]error, error) { return nil, outage }, names...)
				for i, err := range errs {
					if !errors.Is(err, outage) {
						t.Errorf("command %d = %v, want %v", i, err, outage)
					}
				}
				wantAsked(t, asked, strings.Join(names, " "))
			}
		})
	}
}

func TestAnOutageAmongSecondTriesEndsThem(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "")
	errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
		switch {
		case len(batch) > 1:
			return nil, errPoison
		case batch[0] == "b":
			return nil, away
		}
		return nil, nil
	}, "a", "b", "c", "d")
	if errs[0] != nil {
		t.Errorf("before the outage = %v, want nil", errs[0])
	}
	for i, err := range errs[1:] {
		if !errors.Is(err, away) {
			t.Errorf("from the outage on, %d = %v, want %v", i, err, away)
		}
	}
	wantAsked(t, asked, "a b c d", "a", "b")
}

func TestSecondTriesShareTheTimeOfTheBatch(t *testing.T) {
	t.Parallel()
	errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
		time.Sleep(14 * time.Second) // in the bubble; it ignores its context
		if len(batch) > 1 {
			return nil, errPoison
		}
		return nil, nil
	}, "a", "b", "c", "d")
	wantAsked(t, asked, "a b c d", "a", "b") // 14 s, 28 s, 42 s
	for i, err := range errs {
		want := error(nil)
		if i > 1 {
			want = context.DeadlineExceeded
		}
		if err != want {
			t.Errorf("command %d = %v, want %v", i, err, want)
		}
	}
}

func TestAConflictIsTriedFiveTimes(t *testing.T) {
	t.Parallel()
	deadlock := errors.New("deadlock detected")
	errs, asked := writeTogether(t, func(context.Context, []string) ([]error, error) { return nil, group.Conflict(deadlock) }, "a")
	wantOnly(t, errs, 0, deadlock)
	wantOnly(t, errs, 0, group.ErrConflict)
	wantAsked(t, asked, "a", "a", "a", "a", "a")
}

func TestAConflictThatEndsIsNoErrorAndDelaysNoOtherCommand(t *testing.T) {
	t.Parallel()
	tries := 0
	errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
		if tries++; len(batch) > 1 || (batch[0] == "b" && tries < 8) {
			return nil, group.Conflict(errPoison)
		}
		return nil, nil
	}, "a", "b", "c")
	wantOnly(t, errs, -1, nil)
	wantAsked(t, asked, "a b c", "a", "b", "c", "b", "b", "b", "b")
}

func TestAPanicFailsAlone(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"b"}, {"b", "a", "c"}} {
		errs, asked := writeTogether(t, func(_ context.Context, batch []string) ([]error, error) {
			if slices.Contains(batch, "b") {
				panic(group.Conflict(errPoison)) // a panic is no conflict, whatever its value
			}
			return nil, nil
		}, names...)
		if err := errs[0]; err == nil || !strings.Contains(err.Error(), "panic: ") || !strings.Contains(err.Error(), "isolation_test.go") {
			t.Errorf("guilty command = %v, want the panic and its stack", err)
		}
		if errors.Is(errs[0], group.ErrConflict) {
			t.Error("the panic is a conflict")
		}
		wantOnly(t, errs[1:], -1, nil)
		want := names
		if len(names) > 1 {
			want = append([]string{strings.Join(names, " ")}, names...)
		}
		wantAsked(t, asked, want...)
	}
}

func TestAnswersThatFitNoCommandFailAllAndAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	errs, asked := writeTogether(t, func(context.Context, []string) ([]error, error) { return []error{nil}, nil }, "a", "b")
	for i, err := range errs {
		if fault.KindOf(err) != fault.Internal || err == nil {
			t.Errorf("command %d = %v, want an internal error", i, err)
		}
	}
	wantAsked(t, asked, "a b")
}
