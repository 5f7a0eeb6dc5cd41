package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// stop() of useChat closes the stream and nothing else: the run goes on.
func (h *fixture) startAndStop(t *testing.T) *Run {
	t.Helper()
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Once upon"))
	stream.until("Once upon")
	return run
}

func TestAMessageAfterAStopInterruptsTheRunAndKeepsWhatItSaid(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.startAndStop(t)
	stream := h.chat(t, chatBody("s1", "two"))
	run.Interrupt(AssistantMessage(1, "Once upon"))
	playText(t, h, run, 2, "Two.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
	if got, want := storedConversation(t, h), "u-hi: hi; msg_run1: Once upon; u-two: two; msg_run2: Two."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnEditOrARegenerationAfterAStopEndsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, want string }{
		"a regeneration":              {regenerateBody(userMessage("u-hi", "hi")), "u-hi: hi; msg_run2: Two."},
		"a regeneration of an answer": {strings.Replace(regenerateBody(userMessage("u-hi", "hi")), "{", `{"messageId":"msg_run1",`, 1), "u-hi: hi; msg_run2: Two."},
		"an edit":                     {editBody("u-hi", "hello"), "u-hi: hello; msg_run2: Two."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			run := h.startAndStop(t)
			reader := h.resume(t, "/chat/s1/stream")
			stream := h.chat(t, tc.body)
			playText(t, h, run, 1, "Two.")
			if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
				t.Errorf("got %s", got)
			}
			if got := storedConversation(t, h); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if _, err := reader.all(); err != nil { // of the ended run
				t.Errorf("another reader: %v", err)
			}
		})
	}
}

func TestAPolicyOfTheAgentOrTheRequestComesBeforeTheDefault(t *testing.T) {
	t.Parallel()
	h := open(t, nil, &statev1.Agent{AgentType: "demo", OnBusy: statev1.BusyPolicy_BUSY_POLICY_REJECT})
	run := h.startAndStop(t)
	for _, body := range []string{chatBody("s1", "two"), editBody("u-hi", "hello"), strings.Replace(regenerateBody(userMessage("u-hi", "hi")), "{", `{"messageId":"msg_run1",`, 1)} {
		wantFault(t, h.request(t, http.MethodPost, "/chat", body), 409, "SESSION_BUSY")
	}
	stream := h.chat(t, editBody("u-hi", "hello"), "X-Holdfast-On-Busy", "interrupt")
	playText(t, h, run, 1, "Two.")
	stream.rest()
	if got, want := storedConversation(t, h), "u-hi: hello; msg_run2: Two."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAMessageOverASocketInterruptsTheRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.startAndStop(t)
	s := h.talk(t)
	s.say(`{"type":"send","requestId":"r1","id":"s1","messages":[{"id":"u2","role":"user","parts":[{"type":"text","text":"two"}]}]}`)
	waitFor(t, "the message waits", func() bool { return h.State.Newest("default", "s1").GetStop() != nil })
	run.Interrupt(AssistantMessage(1, "Once upon"))
	playText(t, h, run, 2, "Two.")
	if got := s.until(`"end"`); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}
