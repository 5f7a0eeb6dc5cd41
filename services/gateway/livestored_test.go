package gateway_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// openDated opens a gateway whose messages have metadata: their run and its creation time.
func openDated(t *testing.T) *fixture {
	t.Helper()
	return open(t, func(c *gateway.Config) { c.MessageMetadata = true })
}

// isStored fails the test if the client's message is not the newest one at the path.
func (c *uiClient) isStored(t *testing.T, h *fixture, path string) {
	t.Helper()
	var got struct{ Messages []map[string]any }
	body := text(t, h.request(t, http.MethodGet, path+"?sessionId=s1", ""))
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Messages) == 0 {
		t.Fatalf("%s: got %s, %v", path, body, err)
	}
	live := c.message()
	live["metadata"] = c.metadata
	if stored := toJSON(got.Messages[len(got.Messages)-1]); stored != toJSON(live) {
		t.Errorf("%s\nstored %s\nlive   %s", path, stored, toJSON(live))
	}
}

func TestALiveMessageIsTheOneThatIsStoredAndTheOneOfASnapshot(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(*testing.T, *fixture) *uiClient{
		"a reply": func(t *testing.T, h *fixture) *uiClient {
			t.Helper()
			stream, c := h.chat(t, chatBody("s1", "hi")), &uiClient{}
			playAnswer(h.AwaitRun(t, "default", "s1", nil))
			c.apply(t, stream.rest())
			return c
		},
		"one that waits for an answer": func(t *testing.T, h *fixture) *uiClient {
			t.Helper()
			_, c := startAsking(t, h, "c1")
			return c
		},
		"one that goes on in a second stream": func(t *testing.T, h *fixture) *uiClient {
			t.Helper()
			first, c := startAsking(t, h, "c1")
			stream := h.chat(t, c.output("c1", "of c1").post("s1"))
			playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
			c.apply(t, stream.rest())
			return c
		},
		"one that goes on in the same stream": func(t *testing.T, h *fixture) *uiClient {
			t.Helper()
			stream, c := h.chat(t, chatBody("s1", "hi")), &uiClient{}
			first := h.AwaitRun(t, "default", "s1", nil)
			first.WithoutBoundaries(func() { playAsk(first, 1, "c1") }) // the log gets no boundary before the answer
			if got := text(t, h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":"of c1"}`)); !strings.Contains(got, "accepted") {
				t.Fatalf("got %s", got)
			}
			playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
			c.apply(t, stream.rest())
			return c
		},
		"one that goes on in a stream that is resumed": func(t *testing.T, h *fixture) *uiClient {
			t.Helper()
			stream, c := h.chat(t, chatBody("s1", "hi")), &uiClient{}
			first := h.AwaitRun(t, "default", "s1", nil)
			playAsk(first, 1, "c1")
			events := stream.rest()
			c.apply(t, events)
			has := slices.IndexFunc(events, func(e event) bool { return strings.Contains(e.data, "finish-step") })
			text(t, h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"c1","result":"of c1"}`))
			playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
			c.apply(t, h.resume(t, "/chat/s1/stream?fromSequence="+events[has].id).rest())
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openDated(t)
			c := play(t, h)
			c.isStored(t, h, "/messages")
			c.isStored(t, h, "/snapshot")
		})
	}
}

func TestASnapshotOfALiveRunIsTheMessageThatItsReaderHas(t *testing.T) {
	t.Parallel()
	h := openDated(t)
	stream, c := h.chat(t, chatBody("s1", "hi")), &uiClient{}
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("It is "))
	c.apply(t, stream.until("It is"))
	c.isStored(t, h, "/snapshot")
	run.Show(1, Text("2."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "It is 2."))
	stream.rest()
}
