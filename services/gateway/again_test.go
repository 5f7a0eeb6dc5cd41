package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestACursorIsServedAlthoughAnotherReaderSawTheEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, say("s1", "hi"))
	answer(h.Started(t, "default", "s1", nil))
	events := stream.rest()
	if got := h.request(t, http.MethodGet, "/chat/s1/stream", "").StatusCode; got != http.StatusNoContent {
		t.Errorf("without a cursor: got %d, want 204", got)
	}
	for i, e := range events {
		if e.id == "" {
			continue
		}
		want := datas(events[i+1:])
		if got := datas(h.resume(t, "/chat/s1/stream", "Last-Event-ID", e.id).rest()); got != want {
			t.Errorf("after %s: got\n%s\nwant\n%s", e.id, got, want)
		}
		if got := datas(h.resume(t, "/chat/s1/stream?fromSequence="+e.id).rest()); got != want {
			t.Errorf("from %s: got\n%s\nwant\n%s", e.id, got, want)
		}
	}
}

func TestARunWhoseRestWasLostIsToldOnceMore(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, say("s1", "hi"))
	run := h.Started(t, "default", "s1", nil)
	run.Say(1, Started(), StepStarted(), Text("One"))
	stream.until("One")
	h.Stream.Away(true)
	run.Say(1, Text("lost"))
	run.Complete(Says(1, "One, stored."))
	h.Stream.Forget("default", "s1")
	h.Stream.Away(false)
	if got := datas(stream.rest()); !strings.Contains(got, `"type":"error"`) {
		t.Errorf("got %s", got)
	}
	if got := datas(h.resume(t, "/chat/s1/stream").rest()); !strings.Contains(got, "One, stored.") || !strings.HasSuffix(got, "[DONE]\n") {
		t.Errorf("got %s", got)
	}
}

func TestACursorThatIsVoidGetsTheMessageAnewAlthoughWhatStoodBeforeItIsGone(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := secondTurn(t, h)
	begun := run.Say(2, Started())
	run.Say(2, StepStarted(), Text("Void"))
	run.Rewind(begun)
	void := h.resume(t, "/chat/s1/stream", "Last-Event-ID", "7")
	run.Say(2, StepStarted(), Text("two"), StepCommitted(), Completed())
	run.Complete(Says(2, "two"))
	got := datas(void.rest())
	if !strings.Contains(got, `"delta":"two"`) || !strings.HasSuffix(got, "[DONE]\n") || strings.Contains(got, `"error"`) {
		t.Errorf("got %s", got)
	}
}
