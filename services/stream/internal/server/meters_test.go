package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

func TestWhatHappensIsMeasured(t *testing.T) {
	t.Parallel()
	metrics := sdkmetric.NewManualReader()
	log := &faulty{Log: memory.New(memory.Options{})}
	var now time.Time
	s, err := server.New(log, hub.New(log, hub.Limits{Records: 8, Bytes: 1 << 20}), server.Options{
		ChunkBytes: 1 << 20,
		Meter:      sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)).Meter("test"),
		Now:        func() time.Time { now = now.Add(time.Second / 4); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	last := mustAppend(t, s, chunkRequest(2, 1, 1))
	mustAppend(t, s, chunkRequest(2, 2, 1))
	for range 3 {
		if _, err := s.Append(t.Context(), chunkRequest(1, 1, 1)); err == nil {
			t.Fatal("an old writer is not refused")
		}
	}
	history(t, s, &streamv1.ReadRequest{Stream: ref})
	if _, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 3, Number: 1, RunId: "run", FromSequence: last}); err != nil {
		t.Fatal(err)
	}
	history(t, s, &streamv1.ReadRequest{Stream: ref, RecordedSequence: last + 1000}) // of a log that has lost it
	got := measured(t, metrics)
	want := []string{
		"holdfast.stream.append.time {} 2 times, 0.5",
		"holdfast.stream.appends {outcome=WRITER_FENCED} 3",
		"holdfast.stream.appends {outcome=stored} 2",
		"holdfast.stream.doubts.founded {} 1",
		"holdfast.stream.readers {} 0",
		"holdfast.stream.rewinds {} 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// measured says what every instrument has measured, in order.
func measured(t *testing.T, reader sdkmetric.Reader) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s {%s} %d", m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s {%s} %d times, %v", m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Count, p.Sum))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}
