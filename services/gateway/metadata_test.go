package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestTheMetadataOfAUsersMessageComesBackAsItWasSent(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	const metadata = `{"createdAt":1,"tags":["a",null],"note":"5 \u003c 6"}`
	h.disconnect(t, h.request(t, http.MethodPost, "/chat", `{"id":"s1","messages":[{"id":"u1","role":"user","metadata":`+metadata+`,"parts":[{"type":"text","text":"hi"}]}]}`))
	playText(t, h, nil, 1, "hello")
	want := `"parts":[{"type":"text","text":"hi"}],"metadata":` + strings.ReplaceAll(metadata, `\u003c`, "<") + `}`
	for _, path := range []string{"/messages?sessionId=s1", "/snapshot?sessionId=s1"} {
		got := strings.ReplaceAll(text(t, h.request(t, http.MethodGet, path, "")), `\u003c`, "<")
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s in it", path, got, want)
		}
	}
}

func TestMetadataThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	post := func(size int) *reply {
		metadata := `"` + strings.Repeat("x", size-2) + `"`
		return h.request(t, http.MethodPost, "/chat", `{"id":"s1","messages":[{"id":"u1","role":"user","metadata":`+metadata+`,"parts":[{"type":"text","text":"hi"}]}]}`)
	}
	wantFault(t, post(64<<10+1), http.StatusBadRequest, "METADATA_INVALID")
	kept := post(64 << 10)
	if kept.StatusCode != http.StatusOK {
		t.Errorf("got %d for 64 KiB", kept.StatusCode)
	}
	h.disconnect(t, kept)
}

func TestAFailedRunIsShownAgainWithItsError(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted(), Text("Half a"), StepCommitted())
	run.Fail("It broke.", "tool_failed", AssistantMessage(1, "Half a"))
	second := h.begin(t, "s1", "well?", run)
	second.Fail("It broke again.", "tool_failed")
	for _, path := range []string{"/messages?sessionId=s1", "/snapshot?sessionId=s1"} {
		got := text(t, h.request(t, http.MethodGet, path, ""))
		for _, want := range []string{
			`{"type":"text","text":"Half a","state":"done"},{"type":"data-error","id":"run_1","data":{"code":"tool_failed","error":"It broke."}}]`,
			`{"id":"msg_run2","role":"assistant","parts":[{"type":"data-error","id":"run_2","data":{"code":"tool_failed","error":"It broke again."}}]`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %s in it", path, got, want)
			}
		}
	}
}
