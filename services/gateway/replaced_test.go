package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// another is a request for another answer in the place of the one of the id.
func another(answer string) string {
	return `{"id":"s1","trigger":"regenerate-message","messageId":"` + answer + `"}`
}

// under posts the body under the client's key, and wants the text of an answer.
func (h *house) under(t *testing.T, key, body, text string) {
	t.Helper()
	if got := datas(h.chat(t, body, "X-Holdfast-Request-Key", key).rest()); !strings.Contains(got, `"delta":"`+text+`"`) {
		t.Errorf("%s under %s: got %s, want %s", body, key, got, text)
	}
}

func TestARequestForAnotherAnswerCanBeRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, say("s1", "hi"))
	run := says(t, h, nil, 1, "One.")
	h.chat(t, say("s1", "two"))
	run = says(t, h, run, 2, "Two.")

	live := h.chat(t, another("msg-run-2"), "X-Holdfast-Request-Key", "k1")
	run = h.Started(t, "default", "s1", run)
	meanwhile := h.chat(t, another("msg-run-2"), "X-Holdfast-Request-Key", "k1")
	run.Say(3, Started(), StepStarted(), Text("Three."), StepCommitted(), Completed())
	run.Complete(Says(3, "Three."))
	if one, other := datas(live.rest()), datas(meanwhile.rest()); one != other || !strings.Contains(one, "Three.") {
		t.Errorf("meanwhile: got %s, want %s", other, one)
	}
	h.under(t, "k1", another("msg-run-2"), "Three.")

	stream := h.chat(t, another("msg-run-3"), "X-Holdfast-Request-Key", "k2") // of an answer that was itself another one
	run = says(t, h, run, 4, "Four.")
	stream.rest()
	h.under(t, "k2", another("msg-run-3"), "Four.")
	h.chat(t, say("s1", "three"))
	says(t, h, run, 5, "Five.")
	h.under(t, "k2", another("msg-run-3"), "Four.")

	for body, key := range map[string]string{
		another("msg-run-1"): "k2", another("msg-run-2"): "k2", another("msg-run-4"): "k2", another("msg-run-5"): "k2",
		another("msg-run-3"): "k1", another("nothing"): "k2", say("s1", "four"): "k2",
	} {
		refused(t, h.request(t, http.MethodPost, "/chat", body, "X-Holdfast-Request-Key", key), 409, "REQUEST_KEY_REUSED")
	}
	refused(t, h.request(t, http.MethodPost, "/chat", another("msg-run-2"), "X-Holdfast-Request-Key", "k1"), 409, "RUN_STALE")
	if got, want := conversed(t, h), "u-hi: hi; msg-run-1: One.; u-two: two; msg-run-4: Four.; u-three: three; msg-run-5: Five."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAKeyOfAnEditIsNotThatOfAnotherAnswer(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, say("s1", "hi"))
	run := says(t, h, nil, 1, "One.")
	h.chat(t, edited("u-hi", "ho"), "X-Holdfast-Request-Key", "k1") // which takes the same answer back
	run = says(t, h, run, 2, "Two.")
	refused(t, h.request(t, http.MethodPost, "/chat", another("msg-run-1"), "X-Holdfast-Request-Key", "k1"), 409, "REQUEST_KEY_REUSED")
	stream := h.chat(t, another("msg-run-2"), "X-Holdfast-Request-Key", "k2")
	says(t, h, run, 3, "Three.")
	stream.rest()
	h.under(t, "k2", another("msg-run-2"), "Three.")
	refused(t, h.request(t, http.MethodPost, "/chat", another("msg-run-1"), "X-Holdfast-Request-Key", "k2"), 409, "REQUEST_KEY_REUSED") // gone when k2 came
}

func TestTwoEqualClicksForAnotherAnswerInThePlaceOfAResumedOneAreOneRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, say("s1", "hi"))
	first := h.Started(t, "default", "s1", nil)
	first.Fail("It is away.", "provider_down")
	if _, err := clients(t, h)["connect"].Resume(t.Context(), &agentv1.ResumeRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	resumed := says(t, h, first, 2, "Two.")
	arrived, goOn := make(chan struct{}), make(chan struct{})
	h.State.Hold(func(*statev1.StartRunRequest) {
		close(arrived)
		<-goOn
	})
	told := make(chan string)
	go func() { told <- datas(h.chat(t, another("msg-run-2")).rest()) }()
	<-arrived
	h.State.Hold(nil)
	one := h.chat(t, another("msg-run-2"))
	run := h.Started(t, "default", "s1", resumed)
	close(goOn)
	run.Say(3, Started(), StepStarted(), Text("Three."), StepCommitted(), Completed())
	run.Complete(Says(3, "Three."))
	if got, want := <-told, datas(one.rest()); got != want || !strings.Contains(want, "Three.") {
		t.Errorf("the one that was slower: got %s, want %s", got, want)
	}
}
