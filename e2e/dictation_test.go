package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// dictation is a model server under control of the test: it answers the dictated words on request, so no result
// depends on a clock.
type dictation struct {
	url string

	mu      sync.Mutex
	answers map[string]*dictated
}

// dictated is the answer to one message.
type dictated struct {
	t     *testing.T
	words chan string // closed at the end of the answer
}

// dictationLimit bounds the wait for the next word, and for the request of the model.
const dictationLimit = 2 * time.Minute

// startDictation starts the server. It ends with the test.
func startDictation(t *testing.T) *dictation {
	t.Helper()
	d := &dictation{answers: map[string]*dictated{}}
	server := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// agents returns an agents file with the agent "secretary", which answers the dictated words.
func (d *dictation) agents() string {
	return fmt.Sprintf(`
models:
  openai: {baseURL: %q}
agents:
  - {name: secretary, description: Says what is dictated., model: openai/dictated}
`, d.url)
}

// answer begins the answer to a message that is sent once. It ends with the test.
func (d *dictation) answer(t *testing.T, message string) *dictated {
	t.Helper()
	a := &dictated{t: t, words: make(chan string)}
	d.mu.Lock()
	d.answers[message] = a
	d.mu.Unlock()
	return a
}

// say sends the model's next words and returns afterwards.
func (a *dictated) say(words string) {
	a.t.Helper()
	select {
	case a.words <- words:
	case <-time.After(dictationLimit):
		a.t.Fatalf("nobody has asked the model for %q within %v", words, dictationLimit)
	}
}

// end ends the answer.
func (a *dictated) end() { close(a.words) }

func (d *dictation) serve(w http.ResponseWriter, r *http.Request) {
	a := d.answerFor(r)
	if a == nil {
		http.Error(w, "nobody dictates this", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		var words string
		var more bool
		select {
		case words, more = <-a.words:
		case <-r.Context().Done():
			return
		}
		reason := "null"
		if !more {
			reason = `"stop"`
		}
		text, err := json.Marshal(words)
		if err != nil {
			panic(err) // a string always marshals
		}
		fmt.Fprintf(w, "data: "+`{"id":"d","object":"chat.completion.chunk","created":1,"model":"dictated","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":%s}]}`+"\n\n", text, reason)
		if !more {
			fmt.Fprint(w, "data: [DONE]\n\n")
			return
		}
		_ = http.NewResponseController(w).Flush() // the context reports a disconnected caller
	}
}

// answerFor finds the answer to the last message of a request.
func (d *dictation) answerFor(r *http.Request) *dictated {
	var request struct {
		Messages []struct{ Content json.RawMessage } `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		return nil
	}
	last := string(request.Messages[len(request.Messages)-1].Content)
	d.mu.Lock()
	defer d.mu.Unlock()
	for message, a := range d.answers {
		if strings.Contains(last, `"`+message+`"`) {
			return a
		}
	}
	return nil
}
