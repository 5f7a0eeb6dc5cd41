package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// cutStream closes the stream of a reader, and waits until the gateway has noticed.
func (h *fixture) cutStream(t *testing.T, r *reply) {
	t.Helper()
	open := h.service.OpenStreams()
	_ = r.Body.Close()
	waitFor(t, "the reader is gone", func() bool { return h.service.OpenStreams() == open-1 })
}

func TestATabThatWasCutReceivesTheEndThatAnotherTabHasSeen(t *testing.T) {
	t.Parallel()
	for _, firstIsCut := range []bool{true, false} {
		h := open(t, nil)
		first := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"))
		run := h.AwaitRun(t, "default", "s1", nil)
		second := h.request(t, http.MethodGet, "/chat/s1/stream", "")
		run.Show(0, Started())
		run.Show(1, StepStarted(), Text("Let me "))
		lost, stays := first, second
		if !firstIsCut {
			lost, stays = second, first
		}
		streamOf(t, lost).until("Let me ")
		whole := streamOf(t, stays)
		begin := whole.until("Let me ")
		h.cutStream(t, lost)
		run.Show(1, Text("add."), Call("c1", `{"a":1}`), Result("c1", `{"sum":2}`), StepCommitted())
		run.Show(2, StepStarted(), Text("It is "), Text("2."), StepCommitted(), Completed())
		run.Complete(AssistantMessage(1, "Let me add.", "c1"), ToolMessage(1, "c1", `{"sum":2}`), AssistantMessage(2, "It is 2."))
		if got := mergeDeltas(dataLines(append(begin, whole.rest()...))); got != mergeDeltas(uncut) {
			t.Errorf("the other tab: got %s", got)
		}
		for _, tab := range []string{"a third tab, which was never cut", "the tab that was cut", "and once more"} {
			if got := mergeDeltas(dataLines(h.resume(t, "/chat/s1/stream").rest())); got != mergeDeltas(uncut) {
				t.Errorf("%s: got\n%s\nwant\n%s", tab, got, mergeDeltas(uncut))
			}
		}
	}
}

func TestATabThatWasCutBeforeAnotherTabAnswersReceivesAll(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	lost := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"))
	first := h.AwaitRun(t, "default", "s1", nil)
	first.Show(1, Started())
	streamOf(t, lost).until("start")
	stays := h.resume(t, "/chat/s1/stream")
	begin := stays.until("start")
	h.cutStream(t, lost)
	playAsk(first, 1, "c1")
	c := &uiClient{}
	c.apply(t, slices.Concat(begin, stays.rest()))
	stream := h.chat(t, c.output("c1", "of c1").post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
	c.apply(t, stream.rest())
	for range 2 {
		page := &uiClient{}
		page.replay(t, h.resume(t, "/chat/s1/stream").rest())
		if page.String() != c.String() || !strings.Contains(page.String(), "It is 2.") {
			t.Errorf("got\n%s\nwant\n%s", page, c)
		}
	}
}
