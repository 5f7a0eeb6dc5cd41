package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// spansLimit is how long spans may take to reach the collector.
const spansLimit = 2 * time.Minute

func TestATraceGoesOnInTheExecutorThatTakesOver(t *testing.T) {
	t.Parallel()
	collector := harness.StartCollector(t)
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), Executors: 2, Endpoint: collector.Endpoint})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	c := s.Client
	c.Traceparent = "00-" + trace + "-b7ad6b7169203331-01"

	// The first executor commits a step with a tool and dies in the second step.
	asking := c.Chat(t, "traced", "teller", "note and tell")
	asking.UntilText(len("Let me see. ") + len(story())/2)
	first := s.Busy()
	waitSpan(t, collector, trace, "of the executor that will be killed", func(span harness.Span) bool {
		return span.Service == "holdfast-executor" && span.Instance == first.Name
	})
	first.Kill()
	model.release("note and tell")
	if got, want := asking.ReadAll().Text(), "Let me see. "+story(); got != want {
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
		harness.WaitFor(t, spansLimit, name+" to be measured", func() (bool, string) { return collector.HasMetric(name), "it is not" })
	}
}

// approving is an agents file with a tool that needs approval.
const approving = `
models:
  scripted:
    script: |
      models:
        careful:
          rules:
            - when: {toolResult: note}
              reply: 'It is noted.'
            - reply: [{text: 'May I? '}, {call: {name: note, arguments: {text: careful}}}]
agents:
  - {name: careful, description: Asks before it takes notes., model: scripted/careful, tools: [{use: note, approval: always}]}
`

func TestAnApprovalContinuesTheFirstTraceThroughARestartOfEverything(t *testing.T) {
	t.Parallel()
	collector := harness.StartCollector(t)
	s := harness.Start(t, harness.Options{Agents: approving, Endpoint: collector.Endpoint})
	const first, second = "4bf92f3577b34da6a3ce929d0e0e4736", "9c6b9f0e7a1d4c52b8e3f60718293a4b"
	asking := s.Client
	asking.Traceparent = "00-" + first + "-00f067aa0ba902b7-01"
	question := asking.Chat(t, "approved", "careful", "note it").ReadAll().Call("note")
	if question == nil || question.Approval == nil {
		t.Fatalf("nobody was asked: %+v", question)
	}
	s.WaitStatus(t, "approved", "suspended_client_tool")

	everything := []*harness.Process{s.Gateway, s.Executors[0], s.Stream, s.State}
	for _, p := range everything {
		p.Stop(harness.StopLimit)
	}
	for _, p := range everything {
		p.StartOnly()
	}
	for _, p := range everything {
		p.WaitReady()
	}

	answering := s.Client
	answering.Traceparent = "00-" + second + "-b7ad6b7169203331-01"
	approved := true
	taken, err := answering.Submit(t.Context(), "approved", harness.ToolAnswer{
		ToolCallID: question.ToolCallID, Kind: "approval-response", ApprovalID: question.Approval.ID, Approved: &approved,
	})
	if err != nil || taken.Status != "accepted" || taken.RunID == "" {
		t.Fatalf("the approval = %+v, %v; want it accepted, and the run that goes on", taken, err)
	}
	s.WaitStatus(t, "approved", "completed")
	if n := len(s.Effects.Lines("careful")); n != 1 {
		t.Errorf("it is noted %d times, want once", n)
	}

	ofExecutor := func(span harness.Span) bool { return span.Service == "holdfast-executor" }
	waitSpan(t, collector, first, "of the run that goes on", func(span harness.Span) bool {
		return ofExecutor(span) && span.Attrs["run.id"] == taken.RunID
	})
	waitSpan(t, collector, first, "of the call that was approved", func(span harness.Span) bool {
		return ofExecutor(span) && span.Attrs["gen_ai.tool.call.id"] == question.ToolCallID
	})
	var suspended, continued harness.Span
	harness.WaitFor(t, spansLimit, "the span of the suspended run, and a link to it", func() (bool, string) {
		spans := collector.Trace(first)
		for _, span := range spans {
			switch {
			case !ofExecutor(span) || span.Name != "invoke_agent careful":
			case slices.Contains(span.Events, "suspend"):
				suspended = span
			case len(span.Links) > 0:
				continued = span
			}
		}
		return suspended.SpanID != "" && slices.Equal(continued.Links, []string{suspended.SpanID}), fmt.Sprint(spans)
	})
	if suspended.Attrs["status"] != "suspended_client_tool" || continued.Attrs["status"] != "completed" {
		t.Errorf("the runs ended %q and %q, want a suspension and its end", suspended.Attrs["status"], continued.Attrs["status"])
	}
	for _, span := range collector.Trace(first) { // no contents leave by default
		for key, value := range span.Attrs {
			if strings.Contains(value, "May I?") || strings.Contains(value, "It is noted.") || strings.Contains(value, "note it") {
				t.Errorf("the span %s has contents: %s=%s", span.Name, key, value)
			}
		}
	}
	waitSpan(t, collector, second, "of the request that approves", func(span harness.Span) bool {
		return span.Service == "holdfast-gateway" && span.Kind == "SPAN_KIND_SERVER"
	})
	if spans := collector.Trace(second); slices.ContainsFunc(spans, ofExecutor) {
		t.Errorf("the run that goes on is in the trace of who approves: %v", spans)
	}
}

func waitSpan(t *testing.T, c *harness.Collector, trace, which string, is func(harness.Span) bool) {
	t.Helper()
	harness.WaitFor(t, spansLimit, "a span "+which, func() (bool, string) {
		spans := c.Trace(trace)
		return slices.ContainsFunc(spans, is), fmt.Sprint(spans)
	})
}
