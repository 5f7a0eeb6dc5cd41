package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// The AI SDK shows the body of a refused POST to users.
func TestARefusedPostIsASentenceUnlessTheClientAcceptsJSON(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	body := `{"id":"s1","agentType":"nobody","messages":[{"role":"user","parts":[{"type":"text","text":"hi"}]}]}`
	spoken := h.request(t, http.MethodPost, "/chat", body, "Accept", "*/*")
	if got, want := text(t, spoken), "There is no such agent: no executor has announced an agent \"nobody\"; use the type of an announced agent."; got != want || spoken.StatusCode != http.StatusNotFound {
		t.Errorf("got %d %q, want 404 %q", spoken.StatusCode, got, want)
	}
	if got := spoken.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("content type: got %q", got)
	}
	if code, detail := spoken.Header.Get("X-Holdfast-Error-Code"), spoken.Header.Get("X-Holdfast-Error-Detail"); code != "AGENT_NOT_FOUND" || !strings.Contains(detail, "nobody") {
		t.Errorf("got the code %q and the detail %q", code, detail)
	}
	coded := h.request(t, http.MethodPost, "/chat", body, "Accept", "application/json")
	if got := text(t, coded); !strings.HasPrefix(got, `{"error":"There is no such agent: no executor has announced an agent \"nobody\"; use the type of an announced agent.","code":"AGENT_NOT_FOUND"`) {
		t.Errorf("got %s", got)
	}
	quoted := h.request(t, http.MethodPost, "/chat", `{"id":"s1","messages":[{"parts":[{"url":"\x"}]}]}`)
	if got, want := quoted.Header.Get("X-Holdfast-Error-Detail"), `the body is not JSON: a url has the escape \"\\\\x\"`; got != want {
		t.Errorf("got the detail %s, want %s", got, want)
	}
	long := h.request(t, http.MethodPost, "/chat", `{"id":"s1","trigger":"`+strings.Repeat("ä\\n", 5000)+`"}`)
	wantFault(t, long, 400, "TRIGGER_UNSUPPORTED")
}

func TestAClientOfAnUnknownVersionReceivesPartsOfAllVersions(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.AISDK = 0 })
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	playAnswer(run)
	got := dataLines(stream.rest())
	for _, part := range []string{"finishReason", "reset-step", "null"} { // 5.0.0 accepts none of them
		if strings.Contains(got, part) {
			t.Errorf("got %s\nwith %s", got, part)
		}
	}
	if !strings.HasSuffix(got, `{"type":"finish"}`+"\n[DONE]\n") {
		t.Errorf("got %s", got)
	}
}

func TestTheVersionOfTheUserAgentCountsMoreThanTheAddress(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for agent, want := range map[string]string{
		"ai-sdk/6.0.0 runtime/node.js/v20.20.2": `{"type":"finish","finishReason":"other"}`,
		"app/1 ai-sdk/5.0.0":                    `{"type":"finish"}`,
		"ai-sdk/provider-utils/6.0.0":           `{"type":"finish","finishReason":"interrupted"}`,
	} {
		stream := streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk=7", chatBody(agent, "hi"), "User-Agent", agent))
		run := h.AwaitRun(t, "default", agent, nil)
		run.Show(0, Started())
		run.Show(1, StepStarted(), Text("cut"))
		stream.until("cut")
		run.Interrupt()
		if got := dataLines(stream.rest()); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", agent, got, want)
		}
	}
}

// The versions 5.0.0 and 6.0.0 append the path to the whole address.
func TestTheStreamIsResumedByAPathBehindTheQuery(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s 1", "hi"))
	playAnswer(h.AwaitRun(t, "default", "s 1", nil))
	stream.rest()
	for _, path := range []string{"/chat?aiSdk=6/s%201/stream", "/chat?x=1&aiSdk=6/s%201/stream"} {
		if got, want := dataLines(h.resume(t, path).rest()), dataLines(h.resume(t, "/chat/s%201/stream?aiSdk=6").rest()); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
	wantFault(t, h.request(t, http.MethodGet, "/chat?aiSdk=x/s/stream", ""), 400, "AI_SDK_INVALID")
	for _, path := range []string{"/chat", "/chat?aiSdk=6", "/chat?aiSdk=6/stream"} {
		refused := h.request(t, http.MethodGet, path, "")
		wantFault(t, refused, 405, "METHOD_NOT_ALLOWED")
		if got := refused.Header.Get("Allow"); got != "POST" {
			t.Errorf("%s: Allow: got %q", path, got)
		}
	}
}

func TestAMessageToAnotherAgentContinuesTheConversationWithIt(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := playText(t, h, nil, 1, "One.")
	stream.rest()
	stream = h.chat(t, strings.Replace(chatBody("s1", "two"), "{", `{"agentType":"other",`, 1))
	playText(t, h, run, 2, "Two.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
	if got := h.State.Get("default", "s1").GetSession().GetAgentType(); got != "other" {
		t.Errorf("the conversation belongs to %s, want other", got)
	}
	if got, want := storedConversation(t, h), "u-hi: hi; msg_run1: One.; u-two: two; msg_run2: Two."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
