package gateway_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/position"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// begin starts a run without a reader.
func (h *fixture) begin(t testing.TB, session, text string, former *Run) *Run {
	t.Helper()
	response := h.request(t, http.MethodPost, "/chat", chatBody(session, text))
	run := h.AwaitRun(t, "default", session, former)
	h.disconnect(t, response)
	return run
}

func names(events []event) string {
	var all []string
	for _, e := range events {
		all = append(all, strings.TrimSpace(e.name+" "+placeOfID(e.id)))
	}
	return strings.Join(all, ", ")
}

func TestMessagesAreUIMessagesAndPagesSplitNone(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	var former *Run
	for _, text := range []string{"one", "two", "three"} {
		run := h.begin(t, "s1", text, former)
		run.Complete(AssistantMessage(1, "Let me add.", "c-"+text), ToolMessage(1, "c-"+text, "2"), AssistantMessage(2, "It is 2."))
		former = run
	}
	whole := undated(text(t, h.request(t, http.MethodGet, "/messages?sessionId=s1", "")))
	first := `{"id":"u-one","role":"user","parts":[{"type":"text","text":"one"}]},` +
		`{"id":"msg_run1","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"Let me add.","state":"done"},` +
		`{"type":"tool-add","state":"output-available","toolCallId":"c-one","input":{"a":1},"output":2},` +
		`{"type":"step-start"},{"type":"text","text":"It is 2.","state":"done"}],"metadata":{"runId":"run_1","agentType":"demo"}}`
	if !strings.HasPrefix(whole, `{"messages":[`+first+`,{"id":"u-two"`) || !strings.HasSuffix(whole, `],"total":12,"offset":0,"limit":50,"hasMore":false}`+"\n") {
		t.Errorf("got %s", whole)
	}
	for _, limit := range []int{1, 2, 3, 5, 7} {
		var joined []string
		for offset, more := 0, true; more; offset += limit {
			page := undated(text(t, h.request(t, http.MethodGet, "/messages?sessionId=s1&offset="+strconv.Itoa(offset)+"&limit="+strconv.Itoa(limit), "")))
			list, _, _ := strings.Cut(strings.TrimPrefix(page, `{"messages":[`), `],"total"`)
			if list != "" {
				joined = append(joined, list)
			}
			more = strings.Contains(page, `"hasMore":true`)
		}
		if got := `{"messages":[` + strings.Join(joined, ","); !strings.HasPrefix(whole, got+"]") {
			t.Errorf("limit %d: got %s", limit, got)
		}
	}
	wantFault(t, h.request(t, http.MethodGet, "/messages?sessionId=s1&limit=0", ""), 400, "PARAMETER_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/messages?sessionId=s1&offset=-1", ""), 400, "PARAMETER_INVALID")
}

func TestStatusReportsTheStateOfASession(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	if got, want := text(t, h.request(t, http.MethodGet, "/status?sessionId=s1", "")), `{"sessionId":"s1","agentType":"demo","status":"active","stepCount":0,"runId":"run_1","isExecuting":true}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	run.Complete(AssistantMessage(1, "Hi."))
	if got, want := text(t, h.request(t, http.MethodGet, "/status?sessionId=s1", "")), `{"sessionId":"s1","agentType":"demo","status":"completed","stepCount":1,"output":"done","runId":"run_1","checkpointId":"`+run.Checkpoint()+`","isExecuting":false}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	failed := h.begin(t, "s2", "hi", nil)
	failed.Fail("It failed.", "x")
	if got := text(t, h.request(t, http.MethodGet, "/status?sessionId=s2", "")); !strings.Contains(got, `"status":"failed","stepCount":0,"error":"It failed."`) {
		t.Errorf("got %s", got)
	}
}

func TestTheNativeStreamSendsEverythingAfterTheCursor(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	first := run.Show(1, Started())
	run.Show(1, StepStarted())
	stream := h.resume(t, fmt.Sprint("/sse?sessionId=s1&fromSequence=", first))
	events := stream.until("{}")
	text := run.Show(1, Text("One"))
	run.Show(1, StepCommitted(), Completed())
	run.Complete()
	events = append(events, stream.rest()...)
	if got, want := names(events), "chunk 1.33.2, caught-up 1.33.2, chunk 1.33.3, chunk 1.committed, chunk 1.last, end 1.ended"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := fmt.Sprintf(`{"sequence":%d,"chunk":{"type":"text_delta","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"delta":"One"}}`, text)
	if got := events[2].data; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := events[5].data, `{"status":"completed","output":"done"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheNativeStreamWaitsForARunThatHasWrittenNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.begin(t, "s1", "one", nil)
	first.Show(1, Started(), StepStarted(), StepCommitted(), Completed())
	first.Complete()
	run := h.begin(t, "s1", "two", first) // queued
	stream := h.resume(t, "/sse?sessionId=s1")
	events := stream.until("{}")
	run.Show(2, Started(), Text("Two"))
	run.Complete()
	events = append(events, stream.rest()...)
	want := "chunk 1.stored.1, chunk 1.stored.2, chunk 1.committed, chunk 1.last, caught-up 1.ended, " +
		"chunk 2.33.1, chunk 2.33.2, chunk 2.committed, chunk 2.last, end 2.ended"
	if got := names(events); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFinishedSessionIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.begin(t, "s1", "one", nil)
	begun := first.Show(1, Started())
	first.Complete()
	second := h.begin(t, "s1", "two", first)
	shown := second.Show(2, Started())
	second.Fail("It failed.", "provider_error")
	const one, two = "chunk 1.committed, chunk 1.last", "chunk 2.outside-1, fail 2.outside"
	const begun2 = "chunk 2.outside-2, "
	for query, want := range map[string]string{
		"sessionId=s1": "chunk 1.stored.1, " + one + ", " + begun2 + two,
		fmt.Sprint("sessionId=s1&fromSequence=", begun):             one + ", " + begun2 + two,
		fmt.Sprint("sessionId=s1&fromSequence=", shown):             two,
		"sessionId=s1&runId=run_1":                                  "chunk 1.stored.1, " + one + ", end 1.ended",
		fmt.Sprint("sessionId=s1&runId=run_1&fromSequence=", begun): one + ", end 1.ended",
		"sessionId=s1&runId=run_2":                                  begun2 + two,
		fmt.Sprint("sessionId=s1&runId=run_2&fromSequence=", shown): two,
		fmt.Sprint("sessionId=s1&fromSequence=", second.End()):      "fail 2.outside",
	} {
		if got := names(h.resume(t, "/sse?"+query).rest()); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	last := h.resume(t, "/sse?sessionId=s1&fromSequence=0", "Last-Event-ID", fmt.Sprint(shown)).rest()
	if got, want := last[1].data, `{"error":"It failed.","errorDetail":{"code":"provider_error"},"recoverable":false}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wantFault(t, h.request(t, http.MethodGet, "/sse?sessionId=s1&runId=nobody", ""), 404, "RUN_NOT_FOUND")
}

func TestTheNativeStreamReportsVoidChunks(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	at := run.Show(1, Started())
	run.Show(1, Text("void"))
	stream := h.resume(t, "/sse?sessionId=s1&runId=run_1")
	events := stream.until("{}")
	run.Rewind(at)
	run.Show(1, Text("good"))
	run.Complete()
	events = append(events, stream.rest()...)
	want := "chunk 1.33.1, chunk 1.33.2, caught-up 1.33.2, rewound, chunk 1.34.1, chunk 1.34.2, chunk 1.committed, chunk 1.last, end 1.ended"
	if got := names(events); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := events[3].data; got != `{"at":0}` {
		t.Errorf("got %s", got)
	}
}

// A cursor is a position in a conversation. Every client is served, whatever its cursor.
func TestAnUnknownCursorIsRewound(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started())
	run.Complete()
	const whole = "chunk 1.stored.1, chunk 1.committed, chunk 1.last, end 1.ended"
	for cursor, want := range map[int64]string{
		4711:              "rewound, " + whole,
		position.Ended(9): "rewound 1.ended, end 1.ended",
	} {
		if got := names(h.resume(t, fmt.Sprint("/sse?sessionId=s1&fromSequence=", cursor)).rest()); got != want {
			t.Errorf("%s: got %s, want %s", placeName(cursor), got, want)
		}
	}
	wantFault(t, h.request(t, http.MethodGet, fmt.Sprint("/sse?sessionId=s1&fromSequence=", int64(1)<<53), ""), 400, "CURSOR_INVALID")
}
