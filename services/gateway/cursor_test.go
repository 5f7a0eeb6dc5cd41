package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// answers are the request bodies that answer the calls.
var answers = map[string]string{
	"c1": `{"toolCallId":"c1","result":"of c1"}`,
	"y1": `{"toolCallId":"y1","kind":"approval-response","approvalId":"a-y1","approved":true}`,
}

// A client has the streams of both runs of a message up to some event, and resumes there, while the
// second run is live and after it.
func TestAnyCursorInAContinuedMessageCanBeResumed(t *testing.T) {
	t.Parallel()
	for call, body := range answers {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			stream := h.chat(t, chatBody("s1", "hi"))
			first := h.AwaitRun(t, "default", "s1", nil)
			playAsk(first, 1, call)
			events := stream.rest()
			end := events[len(events)-2] // before [DONE]
			if end.id == "" || !strings.Contains(end.data, `"finish"`) {
				t.Fatalf("got %v", end)
			}
			if r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", body); r.StatusCode != http.StatusOK {
				t.Fatalf("got %d", r.StatusCode)
			}
			second := h.AwaitRun(t, "default", "s1", first)
			behind := h.resume(t, "/chat/s1/stream", "Last-Event-ID", end.id)
			live := map[string]*reader{}
			for _, e := range events {
				live[e.id] = h.resume(t, "/chat/s1/stream?fromSequence="+e.id)
			}
			playContinuation(second, call)
			rest := behind.rest()
			if got := dataLines(rest); strings.Contains(got, `"start"`) || !strings.Contains(got, "It is ") {
				t.Errorf("behind the end of the first run: got %s", got)
			}
			whole := clientAfter(t, events, rest)
			wantTail := func(what string, seen, tail []event) {
				t.Helper()
				c := clientAfter(t, seen, tail)
				if c.String() != whole.String() || c.reason != "stop" || strings.Contains(dataLines(tail), `"start"`) {
					t.Errorf("%s: got\n%s\nwant\n%s\nfrom %s", what, c, whole, dataLines(tail))
				}
			}
			all := slices.Concat(events[:len(events)-1], rest)
			for i, e := range all {
				if e.id == all[len(all)-1].id { // nothing follows the end
					continue
				}
				what := fmt.Sprintf("behind %s, %s", e.id, e.data)
				wantTail(what, all[:i+1], h.resume(t, "/chat/s1/stream", "Last-Event-ID", e.id).rest())
				if tail := live[e.id]; tail != nil {
					wantTail(what+", live", all[:i+1], tail.rest())
				}
			}
		})
	}
}

// clientAfter returns a client that received seen, and then tail as the rest.
func clientAfter(t *testing.T, seen, tail []event) *uiClient {
	t.Helper()
	c := &uiClient{}
	c.apply(t, slices.Concat(slices.DeleteFunc(slices.Clone(seen), func(e event) bool { return e.data == "[DONE]" }), tail))
	return c
}

// The client resumes at the last chunk of an attempt, and the attempt becomes void afterwards. Only
// the reset of the step says so.
func TestAClientAtTheEndOfAVoidAttemptReceivesAReset(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("void"))
	seen := stream.until(`"void"`)
	_, stored := h.Stream.Reads()
	back := h.resume(t, "/chat/s1/stream", "Last-Event-ID", seen[len(seen)-1].id)
	waitFor(t, "the client to have read what is stored", func() bool {
		_, now := h.Stream.Reads()
		return now > stored
	})
	run.Rewind(0)
	run.Show(1, Started(), StepStarted(), Text("said"), StepCommitted(), Completed())
	run.Complete()
	rest := back.rest()
	if got := clientAfter(t, seen, rest).String(); strings.Contains(got, "void") || !strings.Contains(got, "said") {
		t.Errorf("the client holds\n%s\nwant nothing of the attempt that is void; it was told %s", got, dataLines(rest))
	}
}

func TestAPlaceThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, id := range []string{"x", "1.", "1.0", "1.-1", "1.x", "0.1", "start", "1.start.1", "1.START", "1.1001", "1.1.1", "-1", ".1"} {
		if got := h.request(t, http.MethodGet, "/chat/s1/stream?fromSequence="+id, ""); got.StatusCode != http.StatusBadRequest || got.Header.Get("X-Holdfast-Error-Code") != "CURSOR_INVALID" {
			t.Errorf("%s: got %d %s", id, got.StatusCode, got.Header.Get("X-Holdfast-Error-Code"))
		}
	}
}
