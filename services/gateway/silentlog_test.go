package gateway_test

import (
	"strings"
	"testing"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestARunThatASilentReplicaDoesNotTellIsReadFromTheLog(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat = 20 * time.Millisecond })
	chat := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	said := run.Show(1, Started(), StepStarted(), Text("One"))
	chat.until("One")
	native := h.resume(t, "/sse?sessionId=s1")
	native.until("{}")
	stream, err := clients(t, h)["grpc"].Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1", FromSequence: said})
	if err != nil {
		t.Fatal(err)
	}
	h.Stream.WithholdLive(true)
	run.Show(1, Text(" two"), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "One two"))
	late := h.resume(t, "/chat/s1/stream?fromSequence=0") // no replica has sent it a frame
	if got := dataLines(chat.rest()); !strings.Contains(got, `"delta":" two"`) || !strings.HasSuffix(got, "[DONE]\n") || strings.Contains(got, `"error"`) || strings.Contains(got, "One") {
		t.Errorf("chat: got %s", got)
	}
	if got := dataLines(late.rest()); strings.Count(got, `"delta":"One two"`) != 1 || !strings.HasSuffix(got, "[DONE]\n") {
		t.Errorf("late: got %s", got)
	}
	if got, want := names(native.rest()), "chunk 1.33.4, chunk 1.committed, chunk 1.last, end 1.ended"; got != want {
		t.Errorf("native: got %s, want %s", got, want)
	}
	if got, want := frames(t, stream), `1.33.4 text_delta, 1.committed step_committed, 1.last run_completed, 1.ended completed "done"`; strings.TrimPrefix(got, "caught up, ") != want {
		t.Errorf("connect: got %s, want %s", got, want)
	}
}
