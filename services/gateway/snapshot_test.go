package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// snapshotBody has the tested fields of GET /snapshot.
type snapshotBody struct {
	RunID    string
	Messages []struct {
		ID, Role string
		Parts    []struct{ Type, Text, State string }
	}
	Offset, Total  int
	HasMore        bool
	StreamSequence int64
	Status         string
	RootSessionID  string
}

func (s snapshotBody) last() string {
	m := s.Messages[len(s.Messages)-1]
	said := m.ID + ":"
	for _, p := range m.Parts {
		if p.Type == "text" {
			said += " " + p.Text + "|" + p.State
		}
	}
	return said
}

func (h *fixture) snapshot(t *testing.T, session string) (s snapshotBody) {
	t.Helper()
	response := h.request(t, http.MethodGet, "/snapshot?sessionId="+url.QueryEscape(session), "")
	got := text(t, response)
	if response.StatusCode != http.StatusOK || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d %q: %s", response.StatusCode, response.Header.Get("Cache-Control"), got)
	}
	if err := json.Unmarshal([]byte(got), &s); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	return s
}

func TestAReloadedPageContinuesAtTheEndOfTheSnapshot(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	if got := h.snapshot(t, "s1"); got.StreamSequence != 0 || got.Status != "active" || got.RunID != "run_1" || got.last() != "u-hi: hi|" {
		t.Errorf("of a run that has written nothing: got %+v", got)
	}
	run.Show(1, Started(), StepStarted(), Text("One "))
	half := h.snapshot(t, "s1")
	if placeName(half.StreamSequence) != "1.33.3" || half.Status != "active" || half.last() != "msg_run1: One |streaming" {
		t.Errorf("got %+v", half)
	}
	stream := h.resume(t, fmt.Sprint("/sse?sessionId=s1&fromSequence=", half.StreamSequence))
	stream.until("{}") // caught-up
	run.Show(1, Text("two"))
	run.Complete(AssistantMessage(1, "One two"))
	if got, want := names(stream.rest()), "chunk 1.33.4, chunk 1.committed, chunk 1.last, end 1.ended"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	whole := h.snapshot(t, "s1")
	if placeName(whole.StreamSequence) != "1.ended" || whole.Status != "ended" || whole.last() != "msg_run1: One two|done" {
		t.Errorf("got %+v", whole)
	}
	body := text(t, h.request(t, http.MethodGet, "/snapshot?sessionId=s1", ""))
	for _, want := range []string{`"state":{}`, `"agentType":"demo"`, `"checkpointId":"` + run.Checkpoint() + `"`, `"hasMore":false`, `"timestamp":1`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
	for _, not := range []string{"rootSessionId", "parentSessionId", "pendingClientToolCalls", "interruptContext", `"error"`} {
		if strings.Contains(body, not) {
			t.Errorf("%s should not be in %s", not, body)
		}
	}
}

func TestASnapshotOfASessionOfAnySpellingAndOfASubAgent(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "a/b. *ü 会话", "hi", nil)
	run.Show(1, Started(), StepStarted(), Text("above"))
	child := run.Child("below/1")
	child.Show(1, Started(), StepStarted(), Text("below"))
	if got := h.snapshot(t, "a/b. *ü 会话"); got.last() != "msg_run1: above|streaming" || placeName(got.StreamSequence) != "1.33.3" || got.RootSessionID != "" {
		t.Errorf("got %+v", got)
	}
	if got := h.snapshot(t, "below/1"); got.last() != "msg_run2: below|streaming" || placeName(got.StreamSequence) != "1.33.3" || got.RootSessionID != "a/b. *ü 会话" {
		t.Errorf("got %+v", got)
	}
}

func TestASnapshotOfAFailedRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted(), Text("One"))
	run.Fail("The model is away.", "provider_error")
	body := text(t, h.request(t, http.MethodGet, "/snapshot?sessionId=s1", ""))
	if !strings.Contains(body, `"status":"failed"`) || !strings.Contains(body, `"error":"The model is away."`) || strings.Contains(body, "internals") {
		t.Errorf("got %s", body)
	}
	if got := h.snapshot(t, "s1"); placeName(got.StreamSequence) != "1.outside" {
		t.Errorf("the sequence is %d, want that of the end", got.StreamSequence)
	}
}

func TestASnapshotDoesWithoutTheStreamService(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted(), Text("One"))
	run.Commit(AssistantMessage(1, "One"))
	run.Show(1, StepCommitted())
	run.Show(2, StepStarted(), Text("two"))
	h.Stream.SetUnavailable(true)
	got := h.snapshot(t, "s1")
	if placeName(got.StreamSequence) != "1.committed" || got.Status != "active" || got.last() != "msg_run1: One|done" {
		t.Errorf("got %+v", got)
	}
	if got, want := h.history(t, "sessionId=s1").sequences(), "1.stored.1, 1.stored.2, 1.stored.3, 1.committed"; got != want {
		t.Errorf("got %s, want what is stored: %s", got, want)
	}
	h.Stream.SetUnavailable(false)
	if got := h.snapshot(t, "s1"); placeName(got.StreamSequence) != "2.1.2" || got.last() != "msg_run1: One|done two|streaming" {
		t.Errorf("got %+v", got)
	}
}

func TestPagesOfMessagesEndWhereTheSnapshotBegins(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	var former *Run
	for i := range 130 {
		former = h.begin(t, "s1", fmt.Sprint(i), former)
		former.Complete(AssistantMessage(int32(i+1), "answer"))
	}
	got := h.snapshot(t, "s1")
	if !got.HasMore || got.Offset != 60 || got.Total != 260 || len(got.Messages) != 200 {
		t.Fatalf("got %d messages from %d of %d", len(got.Messages), got.Offset, got.Total)
	}
	before, _ := h.page(t, 0, got.Offset)
	if len(before.Messages) != 60 || before.Messages[59].ID != "msg_run30" || got.Messages[0].ID != "u-30" {
		t.Errorf("%d messages up to %s, then %s", len(before.Messages), before.Messages[len(before.Messages)-1].ID, got.Messages[0].ID)
	}
}

// While a run is live, each snapshot and the stream after it are the whole answer.
func TestSnapshotsOfARunAtWorkLoseNothingAndDoubleNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	const steps, words = 8, 5
	var readers sync.WaitGroup
	said := make(chan string, 64)
	for range 4 {
		readers.Go(func() {
			for range 8 {
				said <- reload(t, h)
			}
		})
	}
	run.Show(0, Started())
	want := ""
	for step := int32(1); step <= steps; step++ {
		run.Show(step, StepStarted())
		answer := ""
		for word := range words {
			w := fmt.Sprintf("%d.%d ", step, word)
			run.Show(step, Text(w))
			answer += w
		}
		run.Commit(AssistantMessage(step, answer))
		run.Show(step, StepCommitted())
		want += answer
	}
	run.Complete()
	readers.Wait()
	close(said)
	for got := range said {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// reload loads the snapshot, reads to the end and returns the text of the answer. A rewind to before the snapshot
// makes it begin again, as docs/clients.md demands: the boundary of a step came too late for the stream.
func reload(t *testing.T, h *fixture) string {
	s := h.snapshot(t, "s1")
	all := ""
	for _, m := range s.Messages {
		for _, p := range m.Parts {
			if m.Role == "assistant" {
				all += p.Text
			}
		}
	}
	if s.Status != "active" {
		return all
	}
	for _, e := range h.resume(t, fmt.Sprint("/sse?sessionId=s1&fromSequence=", s.StreamSequence)).rest() {
		var frame struct {
			At    int64
			Chunk struct{ Delta string }
		}
		if err := json.Unmarshal([]byte(e.data), &frame); err != nil {
			t.Error(err)
		}
		if e.name == "rewound" && frame.At < s.StreamSequence {
			return reload(t, h)
		}
		all += frame.Chunk.Delta
	}
	return all
}

func TestTheNumberOfSnapshotsThatAreMadeIsBounded(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxSnapshots = 1 })
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started())
	h.State.FailNext(4) // each snapshot waits for the state service
	codes := make(chan int, 2)
	var group sync.WaitGroup
	for range cap(codes) {
		group.Go(func() { codes <- h.request(t, http.MethodGet, "/snapshot?sessionId=s1", "").StatusCode })
	}
	group.Wait()
	if a, b := <-codes, <-codes; a+b != http.StatusOK+http.StatusTooManyRequests {
		t.Errorf("got %d and %d, want one made and one refused", a, b)
	}
	if code := h.request(t, http.MethodGet, "/snapshot?sessionId=s1", "").StatusCode; code != http.StatusOK {
		t.Errorf("afterwards: got %d", code)
	}
}

func TestASnapshotOfARootSaysWhenItsCallsWereCompleted(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	completed := func(session string) string {
		var got struct {
			CompletedClientToolCalls, PendingClientToolCalls json.RawMessage
		}
		body := text(t, h.request(t, http.MethodGet, "/snapshot?sessionId="+session, ""))
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return fmt.Sprintf("%t %s", len(got.PendingClientToolCalls) > 0, got.CompletedClientToolCalls)
	}
	first, c := startAsking(t, h, "c1", "y2")
	if got, want := completed("s1"), "true "; got != want {
		t.Errorf("while they wait: got %q, want %q", got, want)
	}
	stream := h.chat(t, c.output("c1", "mine").respond("y2", true).post("s1"))
	second := h.AwaitRun(t, "default", "s1", first)
	ended := []*eventv1.Message{ToolMessage(2, "c1", `"mine"`), ToolMessage(2, "y2", `"paid"`)}
	ended[0].CreatedAt, ended[1].CreatedAt = 7, 8
	second.Show(1, Resumed())
	second.Show(2, ApprovalResponse("y2", "approve"), Result("c1", `"mine"`), Result("y2", `"paid"`))
	second.Commit(ended...)
	second.Show(3, StepStarted(), Call("server", `{}`), Result("server", "1"), StepCommitted(), Completed())
	second.Complete(AssistantMessage(3, "", "server"), ToolMessage(3, "server", "1"))
	stream.rest()
	if got, want := completed("s1"), `false {"c1":7,"y2":8}`; got != want {
		t.Errorf("then: got %q, want %q", got, want)
	}
	child := second.Child("below")
	playAsk(child, 1, "c3")
	playContinuation(child.Continue(), "c3")
	if got, want := completed("below"), "false "; got != want {
		t.Errorf("below: got %q, want %q", got, want)
	}
}
