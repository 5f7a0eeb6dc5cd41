package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestACursorIsServedUntilItIsTheEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	told := stream.rest()
	end := told[len(told)-2] // before [DONE]
	replay := h.resume(t, "/chat/s1/stream").rest()
	if got, want := mergeDeltas(dataLines(replay)), mergeDeltas(dataLines(told)); got != want {
		t.Errorf("without a cursor: got\n%s\nwant\n%s", got, want)
	}
	for i, e := range replay {
		if e.id == end.id {
			continue
		}
		want := dataLines(replay[i+1:])
		if got := dataLines(h.resume(t, "/chat/s1/stream", "Last-Event-ID", e.id).rest()); got != want {
			t.Errorf("after %s: got\n%s\nwant\n%s", e.id, got, want)
		}
		if got := dataLines(h.resume(t, "/chat/s1/stream?fromSequence="+e.id).rest()); got != want {
			t.Errorf("from %s: got\n%s\nwant\n%s", e.id, got, want)
		}
	}
	if got := h.request(t, http.MethodGet, "/chat/s1/stream?fromSequence="+end.id, "").StatusCode; got != http.StatusNoContent {
		t.Errorf("behind the end: got %d, want 204", got)
	}
}

func TestAnAnswerIsWholeAlthoughTheLogWasLostUnderItsReader(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("One"))
	seen := stream.until("One")
	h.Stream.SetUnavailable(true)
	run.Show(1, Text(" and more"))
	run.Complete(AssistantMessage(1, "One and more"))
	h.Stream.LoseRecords("default", "s1")
	h.Stream.SetUnavailable(false)
	c := &uiClient{}
	c.apply(t, append(seen, stream.rest()...))
	if got := c.String(); !strings.Contains(got, "One and more") || strings.Contains(got, "OneOne") || c.reason != "stop" {
		t.Errorf("got %s", got)
	}
}
