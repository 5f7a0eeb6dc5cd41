package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestAReplayAfterADropAtAnyChunkIsTheUncutStream(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSuffix(uncut, "\n"), "\n")
	for cut := range len(lines) - 1 { // after the last line, [DONE], the run has ended for the reader
		h := open(t, nil)
		response := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"))
		playAnswer(h.AwaitRun(t, "default", "s1", nil))
		first := streamOf(t, response)
		for range cut {
			if _, err := first.next(); err != nil {
				t.Fatal(err)
			}
		}
		_ = response.Body.Close()
		resumed := h.request(t, http.MethodGet, "/chat/s1/stream", "")
		// The gateway may have written everything before the client disconnected.
		if resumed.StatusCode == http.StatusNoContent {
			continue
		}
		if got := mergeDeltas(dataLines(streamOf(t, resumed).rest())); got != mergeDeltas(uncut) {
			t.Errorf("cut at %d: got\n%s", cut, got)
		}
	}
}

func TestAnyCursorInALiveRunCanBeResumed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Let me "), Text("add."), Call("c1", `{"a":1}`), Result("c1", `{"sum":2}`), StepCommitted())
	run.Show(2, StepStarted(), Text("It is "), Text("2"))
	seen := stream.until(`"2"`)
	type tail struct {
		stream *reader
		want   string // what the client received up to the cursor
	}
	var tails []tail
	for i, e := range seen {
		has := dataLines(seen[:i+1])
		tails = append(tails,
			tail{h.resume(t, "/chat/s1/stream", "Last-Event-ID", e.id), has},
			tail{h.resume(t, "/chat/s1/stream?fromSequence="+e.id), has})
	}
	run.Show(2, Text("."))
	stream.until(`"."`)
	for i := range tails { // all read the attempt before it is committed
		tails[i].want += dataLines(tails[i].stream.until(`"."`))
	}
	run.Show(2, StepCommitted(), Completed())
	run.Complete()
	for _, tail := range tails {
		if got := mergeDeltas(tail.want + dataLines(tail.stream.rest())); got != mergeDeltas(uncut) {
			t.Errorf("got\n%s\nwant\n%s", got, mergeDeltas(uncut))
		}
	}
	if got := dataLines(stream.rest()); !strings.HasSuffix(mergeDeltas(uncut), mergeDeltas(got)) {
		t.Errorf("got %s", got)
	}
}

func TestACursorThatIsVoidGetsTheMessageAnew(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	begun := run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Void"))
	events := stream.until("Void")
	run.Rewind(begun)
	resumed := h.resume(t, "/chat/s1/stream", "Last-Event-ID", events[len(events)-1].id)
	playAnswer(run)
	if got := mergeDeltas(dataLines(resumed.rest())); got != mergeDeltas(uncut) {
		t.Errorf("got\n%s\nwant\n%s", got, mergeDeltas(uncut))
	}
}

func TestACursorBeforeTheRunGetsAllOfIt(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	playAnswer(first)
	events := stream.rest()
	stream = h.chat(t, chatBody("s1", "two"))
	run := h.AwaitRun(t, "default", "s1", first)
	resumed := h.resume(t, "/chat/s1/stream", "Last-Event-ID", events[5].id)
	run.Show(3, Started(), StepStarted(), Text("Two."), StepCommitted(), Completed())
	run.Complete()
	if a, b := dataLines(stream.rest()), dataLines(resumed.rest()); a != b || !strings.Contains(a, `"start"`) {
		t.Errorf("got %s, want %s", b, a)
	}
}

func TestARunWithAnUnseenEndIsReplayed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	response := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(0, Started())
	streamOf(t, response).until("start")
	h.disconnect(t, response)
	run.Show(1, StepStarted(), Text("Hi."), StepCommitted(), Completed())
	run.Complete()
	if got := dataLines(h.resume(t, "/chat/s1/stream").rest()); !strings.Contains(got, "Hi.") || !strings.HasSuffix(got, "[DONE]\n") {
		t.Errorf("got %s", got)
	}
}

func TestAnOldRunIsNotReplayed(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.ReplayWindow = 0 })
	response := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	h.disconnect(t, response)
	run.Complete()
	if got := h.request(t, http.MethodGet, "/chat/s1/stream", "").StatusCode; got != http.StatusNoContent {
		t.Errorf("got %d, want 204", got)
	}
}

func TestARunMissingInTheLogIsReadFromTheStore(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	response := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	h.disconnect(t, response)
	playAnswer(run)
	h.Stream.LoseRecords("default", "s1")
	got := dataLines(h.resume(t, "/chat/s1/stream").rest())
	for _, part := range []string{`{"type":"start","messageId":"msg_run1"}`, `"delta":"Let me add."`, `"output":{"sum":2}`, `"delta":"It is 2."`, `"finishReason":"stop"`, "[DONE]"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is missing in %s", part, got)
		}
	}
}

func TestARunWhoseEndTheLogHasLostDoesNotHang(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat = 20 * time.Millisecond })
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.WithoutBoundaries(func() { run.Complete(AssistantMessage(1, "Stored.")) })
	if got := dataLines(stream.rest()); !strings.Contains(got, "Stored.") || !strings.HasSuffix(got, "[DONE]\n") {
		t.Errorf("got %s", got)
	}
}

func TestThereIsNothingToResumeOfASessionThatIsNotThere(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	if got := h.request(t, http.MethodGet, "/chat/nobody/stream", "").StatusCode; got != http.StatusNoContent {
		t.Errorf("got %d, want 204", got)
	}
}
