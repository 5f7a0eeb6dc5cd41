package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

func (b *bench) wantRefused(c *call, kind fault.Kind, reason string) {
	b.Helper()
	if !c.ended() || fault.KindOf(c.err) != kind || fault.ReasonOf(c.err) != reason {
		b.Errorf("ended %v with %v, want %v (%s) at once", c.ended(), c.err, kind, reason)
	}
}

func TestTheQueueTakesExactlyItsCommands(t *testing.T) {
	t.Parallel()
	config := oneLaneConfig()
	config.Queue = 3
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("a"), b.do("b"), b.do("a1"), b.do("c")} // one is in flight and three wait
		refused := b.do("d")
		b.wantRefused(refused, fault.Exhausted, "QUEUE_FULL")
		if f, _ := fault.From(refused.err); !strings.Contains(f.Detail, "HOLDFAST_STATE_QUEUE") {
			b.Errorf("detail %q does not name the variable", f.Detail)
		}
		b.wantWaiting(calls...)
		b.releaseOne() // b, a1 and c are in flight
		calls = append(calls, b.do("d"), b.do("e"), b.do("f"))
		b.wantRefused(b.do("g"), fault.Exhausted, "QUEUE_FULL")
		b.releaseAll()
		b.wantWritten(calls[1:]...)
		b.wantBatches("a", "b c a1", "d e f")
	})
}

func TestTheQueueTakesExactlyItsBytes(t *testing.T) {
	t.Parallel()
	config := oneLaneConfig()
	config.QueueBytes = 10
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		calls := []*call{b.doBytes("a", 10), b.doBytes("b", 4)}
		b.wantRefused(b.doBytes("c", 7), fault.Exhausted, "QUEUE_FULL")
		calls = append(calls, b.doBytes("d", 6), b.doBytes("e", 0))
		b.wantRefused(b.doBytes("f", 1), fault.Exhausted, "QUEUE_FULL")
		b.releaseAll()
		b.wantWritten(calls...)
		b.wantBatches("a", "b d e")
	})
}

func TestACommandLargerThanTheQueueIsTakenWhenNoneWaits(t *testing.T) {
	t.Parallel()
	config := oneLaneConfig()
	config.QueueBytes = 10
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		calls := []*call{b.doBytes("a", 1), b.doBytes("b", 11)}
		b.wantRefused(b.doBytes("c", 11), fault.Exhausted, "QUEUE_FULL")
		b.wantRefused(b.doBytes("d", 0), fault.Exhausted, "QUEUE_FULL")
		b.releaseOne()
		calls = append(calls, b.doBytes("c", 11))
		b.releaseAll()
		b.wantWritten(calls...)
	})
}

func TestCloseLetsTheQueueFinishAndRefusesNewCommands(t *testing.T) {
	t.Parallel()
	inBubble(t, oneLaneConfig(), newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("a"), b.do("a1"), b.do("b"), b.do("ab2")}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			b.Close()
		}()
		synctest.Wait()
		b.wantRefused(b.do("c"), fault.Unavailable, "STORE_CLOSING")
		b.releaseOne()
		b.releaseOne()
		select {
		case <-closed:
			b.Error("Close did not wait for the last command")
		default:
		}
		b.releaseAll()
		<-closed
		b.wantWritten(calls...)
		b.wantBatches("a", "b a1", "ab2")
		b.Close()
	})
}

func TestCloseReturnsAtOnceWhenNoCommandWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, defaultConfig(), &recorder{}, nil, func(b *bench) {
		b.wantWritten(b.do("a"))
		b.Close()
		b.wantRefused(b.do("a"), fault.Unavailable, "STORE_CLOSING")
	})
}

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	var got group.Config
	if err := config.Load(&got, nil); err != nil || got != defaultConfig() || got.Check() != nil {
		t.Errorf("the defaults = %+v (%v, %v), want %+v", got, err, got.Check(), defaultConfig())
	}
}

func TestABoundOfZeroIsRefused(t *testing.T) {
	t.Parallel()
	for variable, spoil := range map[string]func(*group.Config){
		"HOLDFAST_STATE_QUEUE ":        func(c *group.Config) { c.Queue = 0 },
		"HOLDFAST_STATE_QUEUE_BYTES ":  func(c *group.Config) { c.QueueBytes = 0 },
		"HOLDFAST_STATE_BATCH ":        func(c *group.Config) { c.Batch = -1 },
		"HOLDFAST_STATE_BATCH_BYTES ":  func(c *group.Config) { c.BatchBytes = 0 },
		"HOLDFAST_STATE_LANES ":        func(c *group.Config) { c.Lanes = 0 },
		"HOLDFAST_STATE_BATCH_WITHIN ": func(c *group.Config) { c.BatchTimeout = -time.Second },
	} {
		config := defaultConfig()
		spoil(&config)
		_, err := group.New(config, (&recorder{}).write, noop.Meter{})
		f, ok := fault.From(err)
		if !ok || f.Kind != fault.Invalid || f.Reason != "CONFIG_INVALID" || !strings.HasPrefix(f.Detail, variable) {
			t.Errorf("New = %v, want CONFIG_INVALID of %s", err, variable)
		}
	}
}

func TestConflictKeepsWhatItMarks(t *testing.T) {
	t.Parallel()
	err := group.Conflict(fault.New(fault.Stale, "VERSION_STALE", "somebody was faster"))
	if !errors.Is(err, group.ErrConflict) || fault.ReasonOf(err) != "VERSION_STALE" {
		t.Errorf("Conflict = %v, want both the mark and the fault", err)
	}
}

func TestCommandsAndBatchesAreMeasured(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	config := oneLaneConfig()
	config.Queue = 2
	b := newHolding()
	conflicts := 3
	b.answer = func(context.Context, []string) ([]error, error) {
		if conflicts--; conflicts >= 0 {
			return nil, group.Conflict(errPoison)
		}
		return nil, nil
	}
	inBubble(t, config, b, meter, func(b *bench) {
		calls := []*call{b.do("a"), b.do("b"), b.do("c")}
		b.wantRefused(b.do("d"), fault.Exhausted, "QUEUE_FULL")
		if got := read(b.T, reader)["holdfast.state.queue.length"]; got != "{command} 2" {
			b.Errorf("length = %s, want {command} 2", got)
		}
		time.Sleep(time.Second)
		b.releaseAll()
		b.wantWritten(calls...)
		for name, want := range map[string]string{
			"holdfast.state.queue.length":    "{command} 0",
			"holdfast.state.batch.size":      "{command} 2 times, 3 in all",
			"holdfast.state.queue.time":      "s 3 times, 2 in all",
			"holdfast.state.batch.conflicts": "{conflict} 3",
			"holdfast.state.queue.refused":   "{command} 1",
		} {
			if got := read(b.T, reader)[name]; got != want {
				b.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		b.Close()
		if got, ok := read(b.T, reader)["holdfast.state.queue.length"]; ok && got != "{command} 0" {
			b.Errorf("length after Close = %s", got)
		}
	})
}

// read returns the measurements of each instrument, with its unit.
func read(t *testing.T, reader sdkmetric.Reader) map[string]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatalf("Collect = %v", err)
	}
	got := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			got[m.Name] = m.Unit + " " + measured(m.Data)
		}
	}
	return got
}

func measured(data metricdata.Aggregation) string {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		return fmt.Sprint(d.DataPoints[0].Value)
	case metricdata.Histogram[int64]:
		return fmt.Sprintf("%d times, %d in all", d.DataPoints[0].Count, d.DataPoints[0].Sum)
	case metricdata.Histogram[float64]:
		return fmt.Sprintf("%d times, %v in all", d.DataPoints[0].Count, d.DataPoints[0].Sum)
	}
	return fmt.Sprintf("%T", data)
}
