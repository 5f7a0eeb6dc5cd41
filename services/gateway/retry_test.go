package gateway_test

import (
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// finished is the refused output of a run, as its step keeps it.
func finished(step int32) *eventv1.Message {
	m := Returns(step, "c1", "{}")
	m.GetParts()[0].GetToolResult().ToolName = "__finish__"
	return m
}

func TestARetryTakesNoStepBackThatHasRunATool(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		code string
		step []*eventv1.Message
		back string
	}{
		"a text that a guard has refused":   {"framework_guard_refused", []*eventv1.Message{Says(3, "Bad.")}, "cp-2"},
		"an output that a guard has failed": {"framework_guard_failed", []*eventv1.Message{Says(3, "", "c1"), finished(3)}, "cp-2"},
		"a text at the deadline":            {"framework_deadline_exceeded", []*eventv1.Message{Says(3, "Half a")}, "cp-2"},
		"the last step that was allowed":    {"framework_max_steps", []*eventv1.Message{Says(3, "No end.")}, ""},
		"a tool in that step":               {"framework_max_steps", []*eventv1.Message{Says(3, "", "c1"), Returns(3, "c1", "1")}, ""},
		"a tool before the deadline":        {"framework_deadline_exceeded", []*eventv1.Message{Says(3, "", "c1"), Returns(3, "c1", "1")}, ""},
		"a tool before a missed output": {
			"framework_completion_missed", []*eventv1.Message{Says(3, "", "c1", "c2", "c3", "c4"), finished(3), Returns(3, "c2", "1"), Returns(3, "c3", "1"), Returns(3, "c4", "1")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, client, first := stopped(t)
			h.chat(t, say("s1", "again"))
			run := h.Started(t, "default", "s1", first)
			run.Commit(Says(2, "Good."))
			run.Fail("It went wrong.", tc.code, tc.step...)
			r := &agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY, RequestKey: "k1"}
			got, err := client.Resume(t.Context(), r)
			if err != nil || got.GetRunId() != "run-3" {
				t.Fatalf("got %v, %v", got, err)
			}
			if back := last(h).GetRewindTo(); back != tc.back {
				t.Errorf("it begins behind %q, want %q", back, tc.back)
			}
			if got, err := client.Resume(t.Context(), r); err != nil || !got.GetRepeated() {
				t.Errorf("again, while it runs: got %v, %v", got, err)
			}
			h.Started(t, "default", "s1", run).Fail("It went wrong.", "x", Says(4, "Bad."))
			if got, err := client.Resume(t.Context(), r); err != nil || got.GetRunId() != "run-3" || !got.GetRepeated() {
				t.Errorf("again, when it has failed: got %v, %v", got, err)
			}
		})
	}
}

func TestARunThatWasAbortedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	h, client, first := stopped(t)
	h.chat(t, say("s1", "again"))
	run := h.Started(t, "default", "s1", first)
	run.Fail("The run was cancelled.", "framework_cancelled", Says(2, "Half a"))
	if _, err := client.Resume(t.Context(), &agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY}); reason(err) != "RUN_CANCELLED" {
		t.Errorf("got %v, want RUN_CANCELLED", err)
	}
	can, err := client.CanResume(t.Context(), &agentv1.CanResumeRequest{SessionId: "s1"})
	if err != nil || can.GetCanResume() || can.GetReason() != "aborted" || can.GetStatus() != "failed" {
		t.Errorf("got %v, %v", can, err)
	}
	h.chat(t, say("s1", "something else"))
	if next := h.Started(t, "default", "s1", run); next.GetTurn() != 3 {
		t.Errorf("got %v, want that a message is taken", next.Run)
	}
}
