package gateway_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// The state service decides an intent in one command, whose response has all that the gateway needs. ListSteps reads
// stored steps for the stream.
func TestEachIntentIsOneCallOfTheStateService(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		var stream *reader
		intent := func(name, want, method, path, body string, headers ...string) {
			t.Helper()
			synctest.Wait()
			before := w.State.CallCount()
			r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = response.Body.Close() })
			synctest.Wait()
			if got := strings.Join(w.State.Methods()[before:], " "); response.StatusCode != http.StatusOK || got != want {
				t.Errorf("%s: got %d with the calls %s; want %s", name, response.StatusCode, got, want)
			}
			stream = &reader{t, bufio.NewReader(response.Body)}
		}
		posts := func(name, want, body string, headers ...string) {
			t.Helper()
			intent(name, want, http.MethodPost, "/chat", body, headers...)
		}
		plays := func(session string, former *Run, step int32, text string) *Run {
			t.Helper()
			run := w.AwaitRun(t, "default", session, former)
			run.Show(step, Started(), StepStarted(), Text(text), StepCommitted(), Completed())
			run.Complete(AssistantMessage(step, text))
			stream.rest()
			return run
		}

		key := []string{"X-Holdfast-Request-Key", "k1"}
		posts("a new session", "StartRun", chatBody("s1", "hi"), key...)
		intent("a lost stream of a live run", "GetSession", http.MethodGet, "/chat/s1/stream", "")
		run := plays("s1", nil, 1, "One.")
		posts("a repetition", "StartRun ListSteps", chatBody("s1", "hi"), key...)
		conversation := []any{userMessage("u-hi", "hi"), assistant("msg_run1", textPart("One.")), userMessage("u-two", "two")}
		posts("a message with its conversation", "StartRun", postOf("s1", conversation...))
		run = plays("s1", run, 2, "Two.")
		posts("a repetition of an earlier message", "StartRun ListSteps GetRun", chatBody("s1", "hi"), key...)
		posts("an edit", "StartRun", editBody("u-two", "zwei"))
		run = plays("s1", run, 3, "Three.")
		posts("another answer", "StartRun", regenerateBody(conversation[0], conversation[1], userMessage("u-two", "zwei")))
		plays("s1", run, 4, "Four.")
		intent("a lost stream of an ended run", "GetSession ListSteps", http.MethodGet, "/chat/s1/stream", "")
		posts("an imported conversation", "StartRun StartRun", postOf("s2", imported()...))
		plays("s2", nil, 1, "One.")
		intent("an attach by SSE", "ListSteps", http.MethodGet, "/sse?sessionId=s2&fromSequence=0", "")

		posts("a new session", "StartRun", chatBody("s3", "hi"))
		asking := w.AwaitRun(t, "default", "s3", nil)
		playAsk(asking, 1, "c1", "y1")
		c := &uiClient{}
		c.apply(t, stream.rest())
		posts("some of the answers", "SubmitCalls", c.output("c1", "1").post("s3"))
		posts("an approval", "SubmitCalls ListSteps", c.respond("y1", true).post("s3"))
		going := w.AwaitRun(t, "default", "s3", asking)
		posts("a message of a live run", "GetSession ListSteps", postOf("s3", userMessage("u-hi", "hi"), assistant(c.id)))
		posts("the same answers again", "SubmitCalls ListSteps", c.post("s3"))
		playContinuation(going, "c1", "y1")
		stream.rest()

		posts("a new session", "StartRun", chatBody("s4", "hi"))
		live := w.AwaitRun(t, "default", "s4", nil)
		live.Show(1, Started(), StepStarted(), Call("server", `{}`), Result("server", "1"))
		c = &uiClient{}
		c.apply(t, stream.until(`"tool-output-available"`))
		waiting := map[string]any{"id": "s4", "onBusy": "enqueue", "messages": []any{userMessage("u-hi", "hi"), c.message(), userMessage("u-two", "two")}}
		posts("a message that waits, with a result that only the log has", "StartRun GetSession StartRun", toJSON(waiting))
	})
}
