package gateway_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/grant"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// callbackURL returns the path to which the result of a run's call is posted.
func callbackURL(t testing.TB, run *Run, callID string, expires time.Time) string {
	t.Helper()
	return callbackOf(t, grant.Callback{
		Tenant: "default", Session: run.GetSessionId(), Run: run.GetRunId(), Call: callID, Expires: expires,
	})
}

func callbackOf(t testing.TB, c grant.Callback) string {
	t.Helper()
	keys, err := grant.NewCallbackKeys(CallbackKeys)
	if err != nil {
		t.Fatal(err)
	}
	return "/callbacks/" + grant.SignCallback(keys.Of(c.Tenant, c.Session), c)
}

func callbackCall(id string, until time.Time) *statev1.Call {
	return &statev1.Call{ToolCallId: id, ToolName: "pay", Kind: statev1.CallKind_CALL_KIND_CALLBACK, DeadlineAt: until.UnixMilli(), Input: `{"sum":1}`}
}

// posts are the rows of the table in docs/callbacks.md: each makes its post, in a session of its own whose run waits for
// the callback of c1 at path.
func posts(t *testing.T, h *fixture) map[string]func(run *Run, path string) *reply {
	const paid = `{"result":{"paid":true}}`
	post := func(path, body string) *reply { return h.request(t, http.MethodPost, path, body) }
	first := func(path string) {
		if r := post(path, paid); r.StatusCode != http.StatusOK {
			t.Errorf("the first post: got %d %s", r.StatusCode, text(t, r))
		}
	}
	soon := time.Now().Add(time.Hour)
	return map[string]func(run *Run, path string) *reply{
		"the first one":         func(_ *Run, path string) *reply { return post(path, paid) },
		"the same body again":   func(_ *Run, path string) *reply { first(path); return post(path, `{"result": {"paid" : true}}`) },
		"another body after it": func(_ *Run, path string) *reply { first(path); return post(path, `{"error":{"message":"no"}}`) },
		"after the deadline":    func(run *Run, _ string) *reply { return post(callbackURL(t, run, "c1", time.Now()), paid) },
		"with another token":    func(_ *Run, path string) *reply { return post(path[:len(path)-1]+"-", paid) },
		"with a token of another tenant's session": func(run *Run, _ string) *reply {
			keys, _ := grant.NewCallbackKeys(CallbackKeys)
			forged := grant.SignCallback(keys.Of("other", run.GetSessionId()), grant.Callback{
				Tenant: "default", Session: run.GetSessionId(), Run: run.GetRunId(), Call: "c1", Expires: soon,
			})
			return post("/callbacks/"+forged, paid)
		},
		"too many with other tokens, from one address": func(_ *Run, path string) *reply {
			for range 20 {
				if r := post("/callbacks/x", paid); r.StatusCode == http.StatusTooManyRequests {
					first(path) // a good token still passes
					return r
				}
			}
			return post("/callbacks/x", paid)
		},
		"before the run has suspended, for too long": func(run *Run, _ string) *reply {
			live := h.begin(t, run.GetSessionId()+" live", "hi", nil)
			return post(callbackURL(t, live, "c1", soon), paid)
		},
		"after the session was deleted": func(run *Run, path string) *reply {
			h.request(t, http.MethodDelete, "/sessions/"+run.GetSessionId(), "")
			return post(path, paid)
		},
		"after the session was rewound to before the call": func(run *Run, path string) *reply {
			next := h.begin(t, run.GetSessionId()+" twice", "hi", nil)
			next.Complete(AssistantMessage(1, "Hello."))
			point := next.Checkpoint()
			next = h.begin(t, next.GetSessionId(), "pay", next)
			next.Suspend([]*statev1.Call{callbackCall("c2", soon)}, AssistantMessage(2, "", "c2"))
			if r := h.request(t, http.MethodPost, "/rewind", `{"sessionId":"`+next.GetSessionId()+`","checkpointId":"`+point+`"}`); r.StatusCode != http.StatusOK {
				t.Errorf("the rewind: got %d %s", r.StatusCode, text(t, r))
			}
			return post(callbackURL(t, next, "c2", soon), paid)
		},
		"after the run was aborted": func(run *Run, path string) *reply {
			h.request(t, http.MethodPost, "/abort?sessionId="+run.GetSessionId(), "")
			return post(path, paid)
		},
		"after a new message has ended the wait": func(run *Run, path string) *reply {
			h.begin(t, run.GetSessionId(), "never mind", run)
			return post(path, paid)
		},
		"after an operator has answered": func(run *Run, path string) *reply {
			if r := h.request(t, http.MethodPost, "/submit-tool-result", `{"sessionId":"`+run.GetSessionId()+`","toolCallId":"c1","result":1}`); r.StatusCode != http.StatusOK {
				t.Errorf("the operator: got %d %s", r.StatusCode, text(t, r))
			}
			return post(path, paid)
		},
		"while the run is interrupted": func(run *Run, path string) *reply {
			h.request(t, http.MethodPost, "/interrupt?sessionId="+run.GetSessionId(), "")
			return post(path, paid)
		},
		"with neither result nor error": func(_ *Run, path string) *reply { return post(path, `{}`) },
		"with no JSON":                  func(_ *Run, path string) *reply { return post(path, `paid`) },
		"with a result that is too large": func(_ *Run, path string) *reply {
			return post(path, `{"result":"`+strings.Repeat("x", 1_000_000)+`"}`)
		},
		"as a GET": func(_ *Run, path string) *reply { return h.request(t, http.MethodGet, path, "") },
	}
}

// documentedPost is a row of the table in the manual.
var documentedPost = regexp.MustCompile("(?m)^\\| ([^|]+) \\| (\\d{3}) \\| (?:`([A-Z_]+)`)? ?\\|$")

func TestEveryPostOfAResultHasTheDocumentedAnswer(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/callbacks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := documentedPost.FindAllStringSubmatch(string(page), -1)
	if want := len(posts(t, nil)); len(rows) != want {
		t.Fatalf("the table has %d rows, and %d posts are tested", len(rows), want)
	}
	for i, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			h := open(t, func(c *gateway.Config) { c.StatePatience, c.AuthFailures = 20*time.Millisecond, 10 })
			post := posts(t, h)[row[1]]
			if post == nil {
				t.Fatal("nothing tests this row")
			}
			until := time.Now().Add(time.Hour)
			run := h.begin(t, "s"+strconv.Itoa(i), "hi", nil)
			run.Suspend([]*statev1.Call{callbackCall("c1", until)})
			r := post(run, callbackURL(t, run, "c1", until))
			got := text(t, r)
			if code := strconv.Itoa(r.StatusCode); code != row[2] || row[3] != "" && !strings.Contains(got, `"code":"`+row[3]+`"`) {
				t.Errorf("got %s %s, want %s %s", code, got, row[2], row[3])
			}
		})
	}
}

func TestAPostBeforeTheSuspensionWaitsForIt(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	until := time.Now().Add(time.Hour)
	run.RecordPlan("c1")
	before := h.State.CallCount()
	answered := h.postAsync(t, callbackURL(t, run, "c1", until), `{"result":1}`)
	waitFor(t, "the post is repeated", func() bool { return h.State.CallCount() >= before+4 })
	run.Suspend([]*statev1.Call{callbackCall("c1", until)}, AssistantMessage(1, "", "c1"))
	if r := <-answered; r.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", r.StatusCode, text(t, r))
	}
}

// Whoever reaches a session may see that a call waits, but only its URL and an operator answer it: a user must not confirm
// the own payment.
func TestAUserCannotAnswerForTheOtherSystem(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"read": "scopes: [read]", "chat": "scopes: [chat]", "approve": "scopes: [chat, approve]"})
	run := openOver(t, listen(t), h.World, nil).begin(t, "s1", "hi", nil)
	until := time.Now().Add(time.Hour)
	run.Suspend([]*statev1.Call{callbackCall("c1", until)})
	path := callbackURL(t, run, "c1", until)
	for _, scope := range []string{"chat", "approve"} {
		for _, body := range []string{`"result":{"paid":true}`, `"error":"no"`} {
			r := h.request(t, http.MethodPost, "/submit-tool-result", `{"sessionId":"s1","toolCallId":"c1",`+body+`}`, "Authorization", keys[scope])
			wantFault(t, r, http.StatusBadRequest, "KIND_MISMATCH")
		}
	}
	r := h.request(t, http.MethodGet, "/calls", "", "Authorization", keys["read"])
	if got := text(t, r); !strings.Contains(got, `"kind":"callback"`) || !strings.Contains(got, fmt.Sprint(until.UnixMilli())) || strings.Contains(got, "/callbacks/") {
		t.Errorf("the list is %s, want the call with its kind and deadline, and without its URL", got)
	}
	if r := h.request(t, http.MethodPost, path, `{"result":1}`); r.StatusCode != http.StatusOK {
		t.Errorf("the post without a key: got %d %s", r.StatusCode, text(t, r))
	}
}

// Pages of any origin get no answer that their scripts could read, and the token is nowhere else.
func TestACallbackIsNoAddressForPages(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.CORSOrigins = []string{"https://app.example"} })
	run := h.begin(t, "s1", "hi", nil)
	path := callbackURL(t, run, "c1", time.Now())
	for _, method := range []string{http.MethodPost, http.MethodOptions} {
		r := h.request(t, method, path, `{"result":1}`, "Origin", "https://app.example", "Access-Control-Request-Method", "POST")
		for header := range r.Header {
			if strings.HasPrefix(header, "Access-Control-") {
				t.Errorf("%s: got the header %s", method, header)
			}
		}
	}
}

func callbackExchanges(t *testing.T, h *fixture) map[string][]exchange {
	t.Helper()
	run := h.begin(t, "later", "hi", nil)
	until := time.Now().Add(time.Hour)
	run.Suspend([]*statev1.Call{callbackCall("c1", until)})
	path := callbackURL(t, run, "c1", until)
	return map[string][]exchange{"POST /callbacks/{token}": {
		{about: "a result", path: path, body: `{"result":{"paid":true}}`, status: http.StatusOK},
		{about: "a repetition", path: path, body: `{"result":{"paid":true}}`, status: http.StatusOK},
		{about: "another result", path: path, body: `{"error":{"message":"no","publicMessage":"No.","code":"x"}}`, status: http.StatusConflict, code: "CALL_ANSWERED"},
		{about: "too late", path: callbackURL(t, run, "c1", time.Now()), body: `{"result":1}`, status: http.StatusGone, code: "CALLBACK_EXPIRED"},
		{about: "forged", path: "/callbacks/x", body: `{"result":1}`, status: http.StatusNotFound, code: "CALLBACK_UNKNOWN"},
		{about: "no answer", path: path, body: `{}`, status: http.StatusBadRequest, code: "ANSWER_INVALID"},
		{about: "no JSON", path: path, body: `[]`, status: http.StatusBadRequest, code: "BODY_INVALID"},
	}}
}

func TestAPostIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	until := time.Now().Add(time.Hour)
	run.Suspend([]*statev1.Call{callbackCall("c1", until)})
	path := callbackURL(t, run, "c1", until)
	h.request(t, http.MethodPost, path, `{"result":1}`)
	got := text(t, h.request(t, http.MethodGet, "/audit", "")) // written with the answer
	if !strings.Contains(got, `"call.answered"`) || !strings.Contains(got, `"actor":"callback"`) || strings.Contains(got, strings.TrimPrefix(path, "/callbacks/")) {
		t.Errorf("got %s, want the answer by callback, and not the token", got)
	}
}
