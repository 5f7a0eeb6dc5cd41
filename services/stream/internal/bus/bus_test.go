package bus_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

func TestAPartitionIsStableAndSharedByTheFamily(t *testing.T) {
	t.Parallel()
	// Written down, because records are looked for where it says.
	for root, want := range map[string]int{"a": 4, "session-1": 5, "日本語": 15} {
		for _, session := range []string{root, "child"} {
			if got := bus.Partition(bus.Stream{Tenant: "acme", Root: root, Session: session}, 16); got != want {
				t.Errorf("%s in %s: got partition %d, want %d", session, root, got, want)
			}
		}
	}
}

func TestPartitionsAreFilledEvenly(t *testing.T) {
	t.Parallel()
	var counts [16]int
	for i := range 16_000 {
		counts[bus.Partition(bus.Stream{Tenant: "acme", Root: fmt.Sprint("session-", i)}, 16)]++
	}
	for partition, count := range counts {
		if count < 800 || count > 1200 {
			t.Errorf("partition %d has %d of 16,000 sessions, want about 1,000", partition, count)
		}
	}
}

func TestALaterPartitionStartsAboveAnEarlierOne(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	perSecond := bus.FirstSequence(made.Add(time.Second)) - bus.FirstSequence(made)
	if perSecond != 1_000_000 {
		t.Errorf("got room for %d records a second, want a million", perSecond)
	}
	if last := bus.FirstSequence(time.Date(2255, 1, 1, 0, 0, 0, 0, time.UTC)); last >= 1<<53 {
		t.Errorf("got %d, want a number that JSON holds exactly", last)
	}
	if got := bus.FirstSequence(time.Unix(-5, 0)); got != 1 {
		t.Errorf("a clock before 1970: got %d, want 1", got)
	}
}

func TestAnUnavailableLogTellsItsCauseToTheLogFileOnly(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial 10.0.0.7")
	err := bus.Unavailable("append", cause)
	f, ok := fault.From(err)
	if !ok || f.Reason != "LOG_UNAVAILABLE" || !errors.Is(err, fault.Unavailable) || !errors.Is(err, cause) {
		t.Errorf("got %v, want a fault that wraps its cause", err)
	}
	if f.Detail == "" || errors.Is(f, cause) {
		t.Errorf("got a fault %v that shows its cause", f)
	}
}
