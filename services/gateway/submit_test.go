package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func clientCall(id string) *statev1.Call {
	return &statev1.Call{ToolCallId: id, ToolName: "where_am_i", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL}
}

func approvalCall(id string) *statev1.Call {
	return &statev1.Call{ToolCallId: id, ToolName: "pay", Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "approval of " + id}
}

// suspend starts a session that waits for the calls.
func (h *fixture) suspend(t *testing.T, session string, calls ...*statev1.Call) *Run {
	t.Helper()
	run := h.begin(t, session, "hi", nil)
	run.Suspend(calls)
	return run
}

// answered returns the answer of the session's first call with an id that begins with c.
func (h *fixture) answered(t *testing.T, session string) *statev1.CallAnswer {
	t.Helper()
	for _, c := range h.State.PendingCalls("default", session) {
		if strings.HasPrefix(c.GetToolCallId(), "c") {
			return c.GetAnswer()
		}
	}
	t.Fatalf("%q has no call", session)
	return nil
}

func TestAnAnswerIsTakenAndContinuesTheSession(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"s1", "a/b ☃", "/", "..", ".", "%2F", "a?b#c&d", "日本語", "a.*.>", strings.Repeat("s", 256)} {
		for path, prefix := range map[string]string{
			"/chat/" + url.PathEscape(id) + "/submit-tool-result": `{`,
			"/submit-tool-result": `{"sessionId":` + quote(id) + `,`,
		} {
			if strings.Trim(id, ".") == "" && prefix == "{" {
				continue // a URL treats them as path steps
			}
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				h := open(t, nil)
				h.suspend(t, id, clientCall("c/1 ☃"), approvalCall("c2"))
				want := func(body, answer string) {
					t.Helper()
					r := h.request(t, http.MethodPost, path, prefix+body)
					if got := text(t, r); r.StatusCode != http.StatusOK || got != answer+"\n" {
						t.Errorf("%s: got %d %s, want %s", body, r.StatusCode, got, answer)
					}
				}
				want(`"toolCallId":"c/1 ☃","result":{"a" : null, "b":"é\u00e9"}}`, `{"status":"accepted","continuation":"none"}`)
				want(`"toolCallId":"c/1 ☃","result":2}`, `{"status":"already_completed","continuation":"none"}`)
				if got := h.answered(t, id).GetResult(); got != `{"a":null,"b":"é\u00e9"}` {
					t.Errorf("the answer is %s", got)
				}
				want(`"toolCallId":"c2","kind":"approval-response","approvalId":"approval of c2","approved":false,"reason":"no"}`,
					`{"status":"accepted","continuation":"new_run","runId":"run_2"}`)
				want(`"toolCallId":"c2","kind":"approval-response","approvalId":"approval of c2","approved":true}`,
					`{"status":"already_completed","continuation":"live_run","runId":"run_2"}`)
			})
		}
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestEachAnswerArrivesAsItWasGiven(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for i, tc := range []struct {
		body string
		call *statev1.Call
		want *statev1.CallAnswer
	}{
		{`"result":null`, clientCall("c"), &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `null`}}},
		{`"kind":"client-tool-result","result":"x","error":null`, clientCall("c"), &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `"x"`}}},
		{`"result":false,"approved":null,"approvalId":null,"reason":null`, clientCall("c"), &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `false`}}},
		{`"result":12345678901234567890.5`, clientCall("c"), &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `12345678901234567890.5`}}},
		{`"error":"no camera"`, clientCall("c"), &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "no camera"}}},
		{`"error":"the dialog broke"`, approvalCall("c"), &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "the dialog broke"}}},
		{`"kind":"approval-response","approvalId":"approval of c","approved":true`, approvalCall("c"),
			&statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "approval of c", Approved: true}}}},
		{`"kind":"approval-response","approvalId":"approval of c","approved":false,"reason":"too\nmuch"`, approvalCall("c"),
			&statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "approval of c", Reason: "too\nmuch"}}}},
	} {
		session := fmt.Sprint("s", i)
		h.suspend(t, session, tc.call, clientCall("another"))
		r := h.request(t, http.MethodPost, "/chat/"+session+"/submit-tool-result", `{"toolCallId":"c",`+tc.body+`,"more":[1]}`)
		if got := text(t, r); r.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d %s", tc.body, r.StatusCode, got)
		}
		tc.want.Source = statev1.AnswerSource_ANSWER_SOURCE_CLIENT
		if got := h.answered(t, session); !proto.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.body, got, tc.want)
		}
	}
}

func TestAnAnswerOfAnotherKindIsRefusedAndStoresNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", clientCall("tool"), approvalCall("pay"))
	for body, code := range map[string]string{
		// Keys that do not fit the kind.
		`{"toolCallId":"tool"}`:                                                                          "ANSWER_INVALID",
		`{"toolCallId":"tool","error":null}`:                                                             "ANSWER_INVALID",
		`{"toolCallId":"tool","error":""}`:                                                               "ANSWER_INVALID",
		`{"toolCallId":"tool","result":1,"error":"x"}`:                                                   "ANSWER_INVALID",
		`{"toolCallId":"tool","result":1,"approved":true}`:                                               "ANSWER_INVALID",
		`{"toolCallId":"tool","result":1,"approvalId":"approval of pay"}`:                                "ANSWER_INVALID",
		`{"toolCallId":"tool","error":"x","reason":"y"}`:                                                 "ANSWER_INVALID",
		`{"toolCallId":"pay","approvalId":"approval of pay","approved":true}`:                            "ANSWER_INVALID",
		`{"toolCallId":"pay","kind":"approval-response"}`:                                                "ANSWER_INVALID",
		`{"toolCallId":"pay","kind":"approval-response","approved":true}`:                                "ANSWER_INVALID",
		`{"toolCallId":"pay","kind":"approval-response","approvalId":"approval of pay"}`:                 "ANSWER_INVALID",
		`{"toolCallId":"pay","kind":"approval-response","approvalId":"a","approved":true,"result":null}`: "ANSWER_INVALID",
		`{"toolCallId":"pay","kind":"approval-response","approvalId":"a","approved":true,"error":"x"}`:   "ANSWER_INVALID",
		`{"toolCallId":"pay","kind":"approval-response","approvalId":"","approved":true}`:                "ID_INVALID",
		`{"toolCallId":"tool","kind":"tool-result","result":1}`:                                          "ANSWER_INVALID",
		"{\"toolCallId\":\"tool\",\"result\":\"\xff\"}":                                                  "ANSWER_INVALID",
		// Answers that do not fit the call.
		`{"toolCallId":"pay","result":{"approved":true}}`:                                                        "KIND_MISMATCH",
		`{"toolCallId":"tool","kind":"approval-response","approvalId":"approval of tool","approved":true}`:       "KIND_MISMATCH",
		`{"toolCallId":"pay","kind":"approval-response","approvalId":"approval of another","approved":true}`:     "KIND_MISMATCH",
		`{"toolCallId":"pay","KIND":"approval-response","kind":"client-tool-result","result":{"approved":true}}`: "KIND_MISMATCH",
		// Bodies that are no answer.
		`{"toolCallId":"tool","result":}`:               "BODY_INVALID",
		`{"toolCallId":"tool","result":1}{}`:            "BODY_INVALID",
		`{"toolCallId":1,"result":1}`:                   "BODY_INVALID",
		`{"toolCallId":"tool","error":{"message":"x"}}`: "BODY_INVALID",
		`{"toolCallId":"pay","approved":"true"}`:        "BODY_INVALID",
		`[]`:                                            "BODY_INVALID",
		``:                                              "BODY_INVALID",
		`{"sessionId":"s2","toolCallId":"tool","result":1}`:            "BODY_INVALID",
		`{"toolCallId":"","result":1}`:                                 "ID_INVALID",
		`{"result":1}`:                                                 "ID_INVALID",
		`{"toolCallId":"a\u0000b","result":1}`:                         "ID_INVALID",
		`{"toolCallId":"` + strings.Repeat("x", 257) + `","result":1}`: "ID_INVALID",
	} {
		t.Run(body[:min(len(body), 60)], func(t *testing.T) {
			wantFault(t, h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", body), http.StatusBadRequest, code)
		})
	}
	for _, call := range h.State.PendingCalls("default", "s1") {
		if call.GetAnswer() != nil {
			t.Errorf("%s has the answer %v", call.GetToolCallId(), call.GetAnswer())
		}
	}
}

func TestAnAnswerToNoPendingCallIsATypedError(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", clientCall("c1"))
	long := strings.Repeat("x", 256)
	post := func(path, body string, headers ...string) *reply {
		return h.request(t, http.MethodPost, path, body, headers...)
	}
	wantFault(t, post("/chat/s1/submit-tool-result", `{"toolCallId":"`+long+`","result":1}`), 404, "UNKNOWN_TOOL_CALL")
	wantFault(t, post("/chat/nobody/submit-tool-result", `{"toolCallId":"c1","result":1}`), 404, "SESSION_NOT_FOUND")
	wantFault(t, post("/submit-tool-result", `{"sessionId":"nobody","toolCallId":"c1","result":1}`), 404, "SESSION_NOT_FOUND")
	wantFault(t, post("/submit-tool-result", `{"toolCallId":"c1","result":1}`), 400, "ID_INVALID")
	wantFault(t, post("/submit-tool-result", `{"sessionId":"a\u0007","toolCallId":"c1","result":1}`), 400, "ID_INVALID")
	wantFault(t, post("/chat/a%00b/submit-tool-result", `{"toolCallId":"c1","result":1}`), 400, "ID_INVALID")
	wantFault(t, post("/chat/%ff/submit-tool-result", `{"toolCallId":"c1","result":1}`), 400, "ID_INVALID")
	wantFault(t, post("/chat/"+long+"x/submit-tool-result", `{"toolCallId":"c1","result":1}`), 400, "ID_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/chat/s1/submit-tool-result", ""), 405, "METHOD_NOT_ALLOWED")
	wantFault(t, h.request(t, http.MethodGet, "/submit-tool-result", ""), 405, "METHOD_NOT_ALLOWED")
	wantFault(t, post("/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":1}`, "Origin", "https://evil.example"), 403, "ORIGIN_REFUSED")
	wantFault(t, post("/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":1}`, "Host", "evil.example"), 403, "HOST_REFUSED")
	if got := h.answered(t, "s1"); got != nil {
		t.Errorf("the call has the answer %v", got)
	}
	text(t, post("/chat/s1/abort", ""))
	wantFault(t, post("/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":1}`), 409, "OWNER_NOT_CONTINUABLE")
}

func TestAnswersAreBoundedAtTheirEdge(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	post := func(session, body string) *reply {
		return h.request(t, http.MethodPost, "/chat/"+session+"/submit-tool-result", `{"toolCallId":"c1",`+body+`}`)
	}
	of := func(size int) string { return strings.Repeat("x", size) }
	// White space and escapes do not count.
	for i, body := range []string{
		`"result":"` + of(1_000_000-2) + `"`,
		`"result":[` + strings.Repeat(" ", 1_000_000) + `"` + of(1_000_000-4) + `"]`,
		`"error":"` + of(8192) + `"`,
		`"error":"` + strings.Repeat(`\u0078`, 8192) + `"`,
	} {
		session := fmt.Sprint("within", i)
		h.suspend(t, session, clientCall("c1"))
		if r := post(session, body); r.StatusCode != http.StatusOK {
			t.Errorf("%.30s: got %d %s", body, r.StatusCode, text(t, r))
		}
	}
	h.suspend(t, "s1", clientCall("c1"))
	wantFault(t, post("s1", `"result":"`+of(1_000_000-1)+`"`), 413, "RESULT_TOO_LARGE")
	wantFault(t, post("s1", `"result":"`+of(7<<20)+`"`), 413, "RESULT_TOO_LARGE")
	wantFault(t, post("s1", `"result":"`+of(8<<20)+`"`), 413, "BODY_TOO_LARGE")
	wantFault(t, post("s1", `"error":"`+of(8193)+`"`), 413, "RESULT_TOO_LARGE")
	wantFault(t, post("s1", `"result":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)), 400, "BODY_INVALID")
	if got := h.answered(t, "s1"); got != nil {
		t.Errorf("the call has the answer %.50v", got)
	}
}

func TestAnAnswerOutlivesAShortAbsenceOfTheStateService(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", clientCall("c1"))
	h.State.FailNext(2)
	r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":1}`)
	if got, want := text(t, r), `{"status":"accepted","continuation":"new_run","runId":"run_2"}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	away := open(t, func(c *gateway.Config) { c.StatePatience = 0 })
	away.suspend(t, "s1", clientCall("c1"))
	away.State.FailNext(1)
	wantFault(t, away.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":1}`), 503, "STORE_UNAVAILABLE")
}

func TestTwoAnswersAtOnceAreOneAnswer(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", clientCall("c1"))
	var pending []<-chan *reply
	for i := range 8 {
		pending = append(pending, h.postAsync(t, "/chat/s1/submit-tool-result", fmt.Sprintf(`{"toolCallId":"c1","result":%d}`, i)))
	}
	counts := map[string]int{}
	for _, answered := range pending {
		var got struct{ Status, RunID string }
		if err := json.Unmarshal([]byte(text(t, <-answered)), &got); err != nil {
			t.Fatal(err)
		}
		counts[got.Status]++
	}
	if counts["accepted"] != 1 || counts["already_completed"] != 7 {
		t.Errorf("got %v, want one accepted and seven already_completed", counts)
	}
}

func TestAnAnswerThatComesLateOrToAStoppedSessionSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	late := clientCall("c1")
	late.DeadlineAt = time.Now().UnixMilli()
	first := h.suspend(t, "s1", late)
	h.AwaitRun(t, "default", "s1", first).Suspend([]*statev1.Call{clientCall("c2")}, ToolMessage(2, "c1", `"too late"`))
	r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":1}`)
	if got, want := text(t, r), `{"status":"late_answer_after_timeout","continuation":"none"}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	h.suspend(t, "s2", clientCall("c1"))
	text(t, h.request(t, http.MethodPost, "/chat/s2/interrupt", ""))
	r = h.request(t, http.MethodPost, "/chat/s2/submit-tool-result", `{"toolCallId":"c1","result":1}`)
	if got, want := text(t, r), `{"status":"accepted","continuation":"caller_resumes"}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnAnswerReachesACallOfASubAgentThroughTheRoot(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.suspend(t, "s1", clientCall("mine"))
	run.Child("below").Suspend([]*statev1.Call{clientCall("theirs")})
	r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"theirs","result":1}`)
	if got, want := text(t, r), `{"status":"accepted","continuation":"new_run","runId":"run_3"}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnAnswerNeedsTheKeyOfItsTenant(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	h.chat(t, chatBody("s1", "hi"), "Authorization", acme)
	h.AwaitRun(t, "acme", "s1", nil).Suspend([]*statev1.Call{clientCall("c1")})
	const body = `{"sessionId":"s1","toolCallId":"c1","result":1}`
	for _, path := range []string{"/submit-tool-result", "/chat/s1/submit-tool-result"} {
		wantFault(t, h.request(t, http.MethodPost, path, body), 401, "API_KEY_MISSING")
		wantFault(t, h.request(t, http.MethodPost, path, body, "Authorization", acme+"x"), 401, "API_KEY_WRONG")
		wantFault(t, h.request(t, http.MethodPost, path, body, "Authorization", other), 404, "SESSION_NOT_FOUND")
	}
	if calls := h.State.PendingCalls("acme", "s1"); calls[0].GetAnswer() != nil {
		t.Errorf("the call has the answer %v", calls[0].GetAnswer())
	}
	if r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", body, "Authorization", acme); r.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", r.StatusCode, text(t, r))
	}
}

func TestTheConnectServiceTakesAnswers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"connect", "json", "grpc", "grpc-web"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			h.suspend(t, "s/1", clientCall("c1"), approvalCall("c2"), clientCall("c3"))
			client := clients(t, h)[name]
			for _, tc := range []struct {
				r    *agentv1.SubmitToolResultRequest
				want *agentv1.SubmitToolResultResponse
			}{
				{&agentv1.SubmitToolResultRequest{ToolCallId: "c1", Answer: &agentv1.SubmitToolResultRequest_Result{Result: "{}"}},
					&agentv1.SubmitToolResultResponse{Status: agentv1.SubmitToolResultResponse_STATUS_ACCEPTED, Continuation: agentv1.SubmitToolResultResponse_CONTINUATION_NONE}},
				{&agentv1.SubmitToolResultRequest{ToolCallId: "c1", Answer: &agentv1.SubmitToolResultRequest_Error{Error: "x"}},
					&agentv1.SubmitToolResultResponse{Status: agentv1.SubmitToolResultResponse_STATUS_ALREADY_COMPLETED, Continuation: agentv1.SubmitToolResultResponse_CONTINUATION_NONE}},
				{&agentv1.SubmitToolResultRequest{ToolCallId: "c2", Answer: &agentv1.SubmitToolResultRequest_Approval{Approval: &agentv1.ApprovalResponse{ApprovalId: "approval of c2", Approved: true, Reason: "fine"}}},
					&agentv1.SubmitToolResultResponse{Status: agentv1.SubmitToolResultResponse_STATUS_ACCEPTED, Continuation: agentv1.SubmitToolResultResponse_CONTINUATION_NONE}},
				{&agentv1.SubmitToolResultRequest{ToolCallId: "c3", Answer: &agentv1.SubmitToolResultRequest_Error{Error: "no camera"}},
					&agentv1.SubmitToolResultResponse{Status: agentv1.SubmitToolResultResponse_STATUS_ACCEPTED, Continuation: agentv1.SubmitToolResultResponse_CONTINUATION_NEW_RUN, RunId: "run_2"}},
			} {
				tc.r.SessionId = "s/1"
				got, err := client.SubmitToolResult(t.Context(), tc.r)
				if err != nil || !proto.Equal(got, tc.want) {
					t.Errorf("%v: got %v, %v; want %v", tc.r, got, err, tc.want)
				}
			}
		})
	}
}

func TestBadAnswersAreTypedErrorsOfTheConnectService(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", clientCall("c1"), approvalCall("c2"))
	result := func(call, result string) *agentv1.SubmitToolResultRequest {
		return &agentv1.SubmitToolResultRequest{SessionId: "s1", ToolCallId: call, Answer: &agentv1.SubmitToolResultRequest_Result{Result: result}}
	}
	for name, client := range clients(t, h) {
		for _, tc := range []struct {
			r      *agentv1.SubmitToolResultRequest
			kind   error
			reason string
		}{
			{result("nobody", "1"), fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{result("", "1"), fault.Invalid, "ID_INVALID"},
			{result("c2", "1"), fault.Invalid, "KIND_MISMATCH"},
			{result("c1", ""), fault.Invalid, "ANSWER_INVALID"},
			{result("c1", "no JSON"), fault.Invalid, "ANSWER_INVALID"},
			{result("c1", `"`+strings.Repeat("x", 1_000_000)+`"`), fault.TooLarge, "RESULT_TOO_LARGE"},
			{&agentv1.SubmitToolResultRequest{SessionId: "s1", ToolCallId: "c1"}, fault.Invalid, "ANSWER_INVALID"},
			{&agentv1.SubmitToolResultRequest{ToolCallId: "c1"}, fault.Invalid, "ID_INVALID"},
		} {
			_, err := client.SubmitToolResult(t.Context(), tc.r)
			if err := rpc.FromConnect(err); !errors.Is(err, tc.kind) || fault.ReasonOf(err) != tc.reason {
				t.Errorf("%s: %.80v: got %v, want %v, %s", name, tc.r, err, tc.kind, tc.reason)
			}
		}
	}
	if got := h.answered(t, "s1"); got != nil {
		t.Errorf("the call has the answer %v", got)
	}
}
