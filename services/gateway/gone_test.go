package gateway_test

import (
	"strings"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// secondTurn begins the second turn of a session whose log has forgotten the
// first one, and more: its records end above where the first turn did.
func secondTurn(t *testing.T, h *house) *Run {
	t.Helper()
	first := h.begin(t, "s1", "hi", nil)
	first.Say(1, Started(), Text("one"))
	first.Complete()
	h.begin(t, "another", "hi", nil).Say(1, Started())
	h.Stream.Forget("default", "s1")
	return h.begin(t, "s1", "again", first)
}

func TestARunIsToldWholeAlthoughWhatStoodBeforeItIsGone(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := secondTurn(t, h)
	chat := h.resume(t, "/chat/s1/stream")
	native := h.resume(t, "/sse?sessionId=s1&runId="+run.GetRunId())
	stream, err := clients(t, h)["connect"].Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1", RunId: run.GetRunId()})
	if err != nil {
		t.Fatal(err)
	}
	run.Say(2, Started(), StepStarted(), Text("two"))
	// Of a run that is over nobody knows whether what is gone was older than it.
	chat.until(`"delta":"two"`)
	native.until(`"delta":"two"`)
	var text string
	for text == "" && stream.Receive() {
		text += stream.Msg().GetChunk().GetChunk().GetTextDelta().GetDelta()
	}
	run.Complete()
	if got := datas(chat.rest()); !strings.HasSuffix(got, "[DONE]\n") || strings.Contains(got, `"error"`) {
		t.Errorf("the chat stream is not whole:\n%s", got)
	}
	if got := datas(native.rest()); !strings.Contains(got, `"status":"completed"`) {
		t.Errorf("the native stream is not whole:\n%s", got)
	}
	var ended bool
	for stream.Receive() {
		text += stream.Msg().GetChunk().GetChunk().GetTextDelta().GetDelta()
		ended = stream.Msg().GetEnd().GetStatus() == "completed"
	}
	if text != "two" || !ended || stream.Err() != nil {
		t.Errorf("the Connect stream gave %q, ended %v, %v", text, ended, stream.Err())
	}
}

func TestARunWhoseOwnBeginningIsGoneIsNotToldAsIfItWereWhole(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := secondTurn(t, h)
	chat := h.resume(t, "/chat/s1/stream")
	native := h.resume(t, "/sse?sessionId=s1&runId="+run.GetRunId())
	run.Say(2, Text("rest")) // without its first chunk
	if got := datas(chat.rest()); strings.Contains(got, "rest\"") || !strings.Contains(got, `"type":"error"`) {
		t.Errorf("the chat stream hides that its beginning is gone:\n%s", got)
	}
	if got := names(native.rest()); !strings.HasSuffix(got, "truncated ") {
		t.Errorf("the native stream hides that its beginning is gone: %s", got)
	}
}
