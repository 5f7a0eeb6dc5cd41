package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway"
)

// facts are the facts for programs in the body of an error.
type facts struct {
	Code          string
	Kind          string
	Retryable     bool
	LimitBytes    int64
	SizeBytes     int64
	CurrentStatus string
	CurrentRunID  string
}

func (h *fixture) refusal(t *testing.T, method, path, body string) string {
	t.Helper()
	answer := h.request(t, method, path, body, "Accept", "application/json")
	var got facts
	if err := json.Unmarshal([]byte(text(t, answer)), &got); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %+v", answer.StatusCode, got)
}

func TestRefusalsCarryFactsForPrograms(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes, c.StatePatience = 2<<20, 10*time.Millisecond })
	live := h.begin(t, "live", "hi", nil)
	h.suspend(t, "waiting", clientCall("c1"))
	run := h.State.Newest("default", "waiting").GetRunId()
	result := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		want               facts
	}{
		"an unknown session": {
			http.MethodGet, "/status?sessionId=unknown", "", http.StatusNotFound, facts{Code: "SESSION_NOT_FOUND", Kind: "session"},
		},
		"an unknown run": {
			http.MethodGet, "/sse?sessionId=live&runId=unknown", "", http.StatusNotFound, facts{Code: "RUN_NOT_FOUND", Kind: "run"},
		},
		"an unknown call": {
			http.MethodPost, "/submit-tool-result", `{"sessionId":"waiting","toolCallId":"c9","result":1}`, http.StatusNotFound,
			facts{Code: "UNKNOWN_TOOL_CALL", Kind: "tool_call"},
		},
		"an unknown agent": {
			http.MethodPost, "/chat", `{"id":"new","message":"hi","agentType":"unknown"}`, http.StatusNotFound, facts{Code: "AGENT_NOT_FOUND", Kind: "agent"},
		},
		"an unknown route": {http.MethodGet, "/nothing", "", http.StatusNotFound, facts{Code: "ROUTE_NOT_FOUND", Kind: "route"}},
		"a live run": {
			http.MethodPost, "/chat", `{"id":"live","message":"hi","onBusy":"reject"}`, http.StatusConflict,
			facts{Code: "SESSION_BUSY", CurrentStatus: "active", CurrentRunID: live.GetRunId()},
		},
		"another agent": {
			http.MethodPost, "/chat", `{"id":"waiting","message":"hi","agentType":"nobody"}`, http.StatusConflict,
			facts{Code: "AGENT_MISMATCH", CurrentStatus: "suspended_client_tool", CurrentRunID: run},
		},
		"a large body": {
			http.MethodPost, "/submit-tool-result", strings.Repeat(" ", 2<<20+1), http.StatusRequestEntityTooLarge,
			facts{Code: "BODY_TOO_LARGE", Kind: "body", LimitBytes: 2 << 20, SizeBytes: 2<<20 + 1},
		},
		"a large result": {
			http.MethodPost, "/submit-tool-result", `{"sessionId":"waiting","toolCallId":"c1","result":"` + result + `"}`, http.StatusRequestEntityTooLarge,
			facts{Code: "RESULT_TOO_LARGE", Kind: "result", LimitBytes: 1_000_000, SizeBytes: 1<<20 + 2},
		},
	} {
		if got, want := h.refusal(t, tc.method, tc.path, tc.body), fmt.Sprintf("%d %+v", tc.status, tc.want); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	h.State.FailNext(1000)
	if got := h.refusal(t, http.MethodGet, "/agents", ""); !strings.Contains(got, "Retryable:true") {
		t.Errorf("an outage: got %s", got)
	}
	h.State.FailNext(0)
}

func TestWhatIsTooLargeInAChatNamesItsLimit(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes, c.MaxUploadBytes, c.MaxFileBytes = 2<<20, 4<<20, 1<<20 })
	large, upload := photo(1<<20+1), pngURL(photo(1<<20))
	for name, tc := range map[string]struct {
		path, body string
		want       facts
	}{
		"a text":             {"/chat", `{"id":"new","message":"` + strings.Repeat("x", 2<<20) + `"}`, facts{Code: "BODY_TOO_LARGE", Kind: "body", LimitBytes: 2 << 20}},
		"many files":         {"/chat", chatOf("new", photoMessage("m1", "look", upload, upload, upload, upload)), facts{Code: "BODY_TOO_LARGE", Kind: "body", LimitBytes: 4 << 20}},
		"a file":             {"/chat", chatOf("new", photoMessage("m1", "look", pngURL(large))), facts{Code: "FILE_TOO_LARGE", Kind: "file", LimitBytes: 1 << 20}},
		"a file sent before": {"/files", string(large), facts{Code: "FILE_TOO_LARGE", Kind: "file", LimitBytes: 1 << 20}},
	} {
		if got, want := h.refusal(t, http.MethodPost, tc.path, tc.body), fmt.Sprintf("413 %+v", tc.want); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestEachConflictOfAChatNamesTheStateOfTheSession(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	want := func(session, code, status, body string) {
		t.Helper()
		run := h.State.Newest("default", session).GetRunId()
		if got, want := h.refusal(t, http.MethodPost, "/chat", body), fmt.Sprintf("409 %+v", facts{Code: code, CurrentStatus: status, CurrentRunID: run}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	answers := func(session, message, call string) string {
		return fmt.Sprintf(`{"id":%q,"message":{"id":%q,"role":"assistant","parts":[%s]}}`, session, message, call)
	}
	h.suspend(t, "waiting", clientCall("c1"))
	message := h.State.Newest("default", "waiting").GetMessageId()
	want("waiting", "RUN_STALE", "suspended_client_tool", answers("waiting", "m9", ""))
	want("waiting", "SESSION_SUSPENDED", "suspended_client_tool", answers("waiting", message,
		`{"type":"tool-add","toolCallId":"c1","state":"output-available","output":1,"approval":{"id":"x","approved":true}},
		{"type":"tool-add","toolCallId":"z1","state":"output-available","output":1}`))
	_, c := startAsking(t, h, "c1")
	text(t, h.request(t, http.MethodPost, "/chat/s1/abort", ""))
	want("s1", "OWNER_NOT_CONTINUABLE", "failed", c.output("c1", 1).post("s1"))
}
