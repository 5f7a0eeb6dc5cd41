package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// spansLimit is how long spans may take to reach the collector.
const spansLimit = 15 * time.Second

func TestATraceGoesOnInTheExecutorThatTakesOver(t *testing.T) {
	t.Parallel()
	collector := harness.StartCollector(t)
	s := harness.Start(t, harness.Options{Agents: agents(), Executors: 2, Endpoint: collector.Endpoint})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	c := s.Client
	c.Traceparent = "00-" + trace + "-b7ad6b7169203331-01"

	// The first executor commits a step with a tool, and dies in the second.
	asking := c.Chat(t, "traced", "worker", "note and tell")
	asking.UntilText(len("Let me see. ") + len(story())/2)
	first := s.Busy()
	waitSpan(t, collector, trace, "of the executor that will be killed", func(span harness.Span) bool {
		return span.Service == "holdfast-executor" && span.Instance == first.Name
	})
	first.Kill()
	if got, want := asking.Whole().Text(), "Let me see. "+story(); got != want {
		t.Fatalf("the answer is %q, want %q", got, want)
	}

	waitSpan(t, collector, trace, "of the executor that took over", func(span harness.Span) bool {
		return span.Service == "holdfast-executor" && span.Instance != first.Name
	})
	waitSpan(t, collector, trace, "of the gateway's request", func(span harness.Span) bool {
		return span.Service == "holdfast-gateway" && span.Kind == "SPAN_KIND_SERVER" && span.ParentID == "b7ad6b7169203331"
	})
	for _, service := range []string{"holdfast-state", "holdfast-stream"} {
		waitSpan(t, collector, trace, "of "+service, func(span harness.Span) bool { return span.Service == service })
	}
	for _, name := range []string{"holdfast.state.batch.size", "holdfast.state.queue.time"} {
		harness.WaitFor(t, spansLimit, name+" to be measured", func() (bool, string) { return collector.Measured(name), "it is not" })
	}
}

func waitSpan(t *testing.T, c *harness.Collector, trace, which string, is func(harness.Span) bool) {
	t.Helper()
	harness.WaitFor(t, spansLimit, "a span "+which, func() (bool, string) {
		spans := c.Trace(trace)
		return slices.ContainsFunc(spans, is), fmt.Sprint(spans)
	})
}
