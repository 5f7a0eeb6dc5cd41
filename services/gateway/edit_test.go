package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// userMessage returns a user message as clients send it.
func userMessage(id, text string) uiPart {
	return uiPart{"id": id, "role": "user", "parts": []any{uiPart{"type": "text", "text": text}}}
}

// regenerateBody returns the request of a client for another answer.
func regenerateBody(messages ...any) string {
	return toJSON(map[string]any{"id": "s1", "trigger": "regenerate-message", "messages": messages})
}

// editBody returns the request of a client that has edited its message.
func editBody(id, text string) string {
	return toJSON(map[string]any{"id": "s1", "trigger": "submit-message", "messageId": id, "messages": []any{userMessage(id, text)}})
}

// playText plays the run after former, with one step of the text.
func playText(t *testing.T, h *fixture, former *Run, step int32, text string) *Run {
	t.Helper()
	run := h.AwaitRun(t, "default", "s1", former)
	run.Show(step, Started(), StepStarted(), Text(text), StepCommitted(), Completed())
	run.Complete(AssistantMessage(step, text))
	return run
}

// storedConversation returns the stored messages, each as "id: text".
func storedConversation(t *testing.T, h *fixture) string {
	t.Helper()
	var page struct {
		Messages []struct {
			ID    string
			Parts []struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(text(t, h.request(t, http.MethodGet, "/messages?sessionId=s1", ""))), &page); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range page.Messages {
		said := ""
		for _, p := range m.Parts {
			said += p.Text
		}
		lines = append(lines, m.ID+": "+said)
	}
	return strings.Join(lines, "; ")
}

func TestAMessageIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	hi, one, two := userMessage("u-hi", "hi"), clientWith("msg_run1").message(), userMessage("u-two", "two")
	for name, tc := range map[string]struct {
		body            string
		message, answer string // of the intent
		sends           bool   // whether the message is sent
	}{
		"cut before the answer":    {regenerateBody(hi, one, two), "u-two", "", true},
		"an answer stands behind":  {regenerateBody(two, clientWith("msg_run2").message()), "u-two", "", true},
		"the message alone":        {`{"id":"s1","trigger":"regenerate-message","message":` + toJSON(two) + `}`, "u-two", "", true},
		"the message's id alone":   {`{"id":"s1","trigger":"regenerate-message","messageId":"u-two"}`, "u-two", "", false},
		"the answer's id alone":    {`{"id":"s1","trigger":"regenerate-message","messageId":"msg_run2"}`, "msg_run2", "", false},
		"no message of the user's": {`{"id":"s1","trigger":"regenerate-message","messageId":"msg_run2","messages":[]}`, "msg_run2", "", false},
		"the message and the answer's id": {toJSON(map[string]any{
			"id": "s1", "trigger": "regenerate-message", "messageId": "msg_run2", "messages": []any{hi, one, two},
		}), "u-two", "msg_run2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			h.chat(t, chatBody("s1", "hi"))
			first := playText(t, h, nil, 1, "One.")
			h.chat(t, chatBody("s1", "two"))
			second := playText(t, h, first, 2, "Two.")
			stream := h.chat(t, tc.body)
			playText(t, h, second, 3, "Two again.")
			if got := dataLines(stream.rest()); !strings.HasPrefix(got, `{"type":"start","messageId":"msg_run3"}`) || !strings.Contains(got, "Two again.") {
				t.Errorf("got %s", got)
			}
			if got, want := storedConversation(t, h), "u-hi: hi; msg_run1: One.; u-two: two; msg_run3: Two again."; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			got, want := lastStart(h), &statev1.Regenerate{MessageId: tc.message, AnswerId: tc.answer}
			if !proto.Equal(got.GetRegenerate(), want) || (len(got.GetMessages()) == 1) != tc.sends {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestAMessageIsPutInThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	first := playText(t, h, nil, 1, "One.")
	h.chat(t, chatBody("s1", "two"))
	second := playText(t, h, first, 2, "Two.")
	stream := h.chat(t, editBody("u-hi", "ho"))
	playText(t, h, second, 3, "Three.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Three.") {
		t.Errorf("got %s", got)
	}
	if got, want := storedConversation(t, h), "u-hi: ho; msg_run3: Three."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := dataLines(h.resume(t, "/chat/s1/stream?fromSequence=0").rest()); !strings.HasPrefix(got, `{"type":"start","messageId":"msg_run3"}`) || strings.Contains(got, "Two.") {
		t.Errorf("replayed: got %s", got)
	}
	h.Stream.LoseRecords("default", "s1")
	if got := dataLines(h.resume(t, "/chat/s1/stream?fromSequence=0").rest()); !strings.Contains(got, "Three.") || strings.Contains(got, "One.") {
		t.Errorf("from the store: got %s", got)
	}
}

func TestAnEditOfAnUnknownMessageIsSent(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"again": regenerateBody(userMessage("u-hi", "hi")), "edited": editBody("u-hi", "hi")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			stream := h.chat(t, body)
			playAnswer(h.AwaitRun(t, "default", "s1", nil))
			if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(uncut) {
				t.Errorf("got %s", got)
			}
			if got, agent := lastStart(h), h.State.Newest("default", "s1").GetAgentType(); agent != "demo" || len(got.GetMessages()) != 1 {
				t.Errorf("got %v of the agent %s", got, agent)
			}
		})
	}
}

func TestARequestForTheAnswerInProgressReceivesIt(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	wantFault(t, h.request(t, http.MethodPost, "/chat", editBody("u-hi", "another text"), "X-Holdfast-On-Busy", "reject"), 409, "SESSION_BUSY")
	streams := []*reader{
		h.chat(t, chatBody("s1", "hi")), h.chat(t, editBody("u-hi", "hi")),
		h.chat(t, regenerateBody(userMessage("u-hi", "hi")), "X-Holdfast-On-Busy", "enqueue"),
	}
	playAnswer(run)
	for _, stream := range streams {
		if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(uncut) {
			t.Errorf("got %s", got)
		}
	}
}

func TestMessagesThatAreNotThereAreNotAnsweredAgain(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	first := playText(t, h, nil, 1, "One.")
	for _, id := range []string{"nobody", "msg_run9"} {
		wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s1","trigger":"regenerate-message","messageId":"`+id+`"}`), 404, "MESSAGE_NOT_FOUND")
	}
	wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s2","trigger":"regenerate-message","messageId":"u-hi"}`), 404, "SESSION_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodPost, "/chat", strings.Replace(editBody("u-hi", "x"), "{", `{"runId":"run_9",`, 1)), 409, "RUN_STALE")
	stream := h.chat(t, strings.Replace(editBody("u-hi", "x"), "{", `{"runId":"run_1",`, 1))
	playText(t, h, first, 2, "Two.")
	stream.rest()
}

func TestASuspendedConversationIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"again": regenerateBody(userMessage("u-hi", "hi")), "edited": editBody("u-hi", "ho")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			first, c := startAsking(t, h, "c1")
			stream := h.chat(t, body)
			second := h.AwaitRun(t, "default", "s1", first)
			playAsk(second, 1, "c2")
			now := &uiClient{}
			now.apply(t, stream.rest())
			wantFault(t, h.request(t, http.MethodPost, "/chat", c.output("c1", 1).post("s1")), 409, "RUN_STALE")
			stream = h.chat(t, now.output("c2", 2).post("s1"))
			playContinuation(h.AwaitRun(t, "default", "s1", second), "c2")
			events := stream.rest()
			now.apply(t, events)
			if got := dataLines(events); strings.Contains(got, "c1") || now.id != "msg_run2" {
				t.Errorf("got %s", got)
			}
			replayed := &uiClient{}
			replayed.replay(t, h.resume(t, "/chat/s1/stream?fromSequence=0").rest())
			if replayed.String() != now.String() {
				t.Errorf("replayed: got %s, want %s", replayed, now)
			}
			if got := storedConversation(t, h); strings.Contains(got, "msg_run1") {
				t.Errorf("got %s", got)
			}
		})
	}
}
