package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Key is the API key of the suite. Recorded error messages may repeat it, because some providers do.
const Key = "sk-modeltest-6b1f0c"

// The additional scenarios of RunHTTP.
const (
	// OneFragment is Call with its arguments, or the complete call, in one piece.
	OneFragment Scenario = "one_fragment"
	// UnknownStop is the text "Done." with an undocumented finish reason.
	UnknownStop Scenario = "unknown_stop"
	// Empty is an empty reply.
	Empty Scenario = "empty"
	// TooLong is HTTP 400 for a conversation that exceeds the context.
	TooLong Scenario = "too_long"
	// Unsupported is HTTP 400 for an unsupported reply format.
	Unsupported Scenario = "unsupported"
)

// Provider is a model over HTTP with its recordings.
type Provider struct {
	Dir string
	// Connect returns a model that calls the server with Key.
	Connect func(t *testing.T, server *Server) model.Model
	// CallIDs are the ids in the recording of ParallelCalls, as written there.
	CallIDs [2]string
	// Terminator is the end of the recording of Text that some servers omit; empty if the protocol has none.
	Terminator string
}

// encodings are equivalent encodings of an event stream.
var encodings = map[string]Encoding{
	"plain":                   {},
	"CR LF line ends":         {CRLF: true},
	"comments between events": {Comments: true},
	"a few bytes at a time":   {WriteSize: 7},
	"compressed":              {Gzip: true, WriteSize: 50},
	"all combined":            {CRLF: true, Comments: true, WriteSize: 11, Gzip: true},
}

// RunHTTP runs Run for every encoding of the stream, and the tests of connection faults.
func RunHTTP(t *testing.T, p Provider) {
	for name, encoding := range encodings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, func(t *testing.T, scenario Scenario) model.Model {
				return p.Connect(t, NewServer(t, p.Dir, scenario, encoding))
			})
			p.testScenarios(t, encoding)
			p.testCallIDs(t, encoding)
			p.testStreams(t, encoding)
		})
	}
	t.Run("an unsupported file fails only its own message", p.testUnsupportedFiles)
	t.Run("an invalid tool name is replaced", p.testUnknownToolName)
	t.Run("error responses", func(t *testing.T) { t.Parallel(); p.testErrorResponses(t) })
	t.Run("a truncated reply is complete or an error", p.testTruncation)
	t.Run("an endless event is refused", p.testEndlessEvent)
	t.Run("the connection is closed soon", func(t *testing.T) { t.Parallel(); p.testDisconnects(t) })
}

// collect returns the reply to a scenario from a server that sends stream and then ends like the scenario end.
func (p Provider) collect(t *testing.T, scenario Scenario, stream []byte, end Scenario, encoding Encoding) Reply {
	t.Helper()
	server := ServeStream(t, stream, end, encoding)
	reply := Collect(t, p.Connect(t, server).Generate(t.Context(), NewRequest(scenario)))
	if n := len(server.Requests()); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
	return reply
}

func (p Provider) testScenarios(t *testing.T, encoding Encoding) {
	for scenario, want := range map[Scenario]Reply{
		OneFragment: completeReplies[Call],
		UnknownStop: {Text: "Done.", Finish: model.FinishOther},
		Empty:       {Finish: model.FinishStop},
	} {
		t.Run(string(scenario), func(t *testing.T) {
			t.Parallel()
			reply := p.collect(t, scenario, p.recording(t, scenario), Ended, encoding)
			reply.expect(t, want)
			if reply.Err != nil {
				t.Errorf("got error %v, want none", reply.Err)
			}
		})
	}
}

func (p Provider) testCallIDs(t *testing.T, encoding Encoding) {
	for name, ids := range map[string][2]string{
		"calls without ids":      {"", ""},
		"calls of the same id":   {p.CallIDs[0], p.CallIDs[0]},
		"one call without an id": {"", p.CallIDs[1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := p.recording(t, ParallelCalls)
			for i, id := range ids {
				given := []byte(`"` + p.CallIDs[i] + `"`)
				if !bytes.Contains(body, given) {
					t.Fatalf("the recording has no id %s", given)
				}
				body = bytes.ReplaceAll(body, given, []byte(`"`+id+`"`))
			}
			// Collect checks that the ids differ.
			p.collect(t, ParallelCalls, body, Ended, encoding).expect(t, completeReplies[ParallelCalls])
		})
	}
}

func (p Provider) testStreams(t *testing.T, encoding Encoding) {
	t.Run("a stream without its terminator", func(t *testing.T) {
		t.Parallel()
		body, found := bytes.CutSuffix(bytes.TrimSpace(p.recording(t, Text)), []byte(strings.TrimSpace(p.Terminator)))
		if !found {
			t.Fatalf("the recording does not end with %q", p.Terminator)
		}
		body = append(bytes.TrimSpace(body), "\n\n"...)
		for _, end := range []Scenario{Ended, Cut} {
			p.collect(t, Text, body, end, encoding).expect(t, completeReplies[Text])
		}
	})
	t.Run("an empty stream", func(t *testing.T) {
		t.Parallel()
		reply := p.collect(t, Text, nil, Ended, encoding)
		reply.expect(t, Reply{})
		reply.expectError(t, model.Error{Code: model.CodeUnavailable, Retryable: true})
	})
	if encoding.WriteSize == 0 {
		t.Run("a huge event", func(t *testing.T) {
			t.Parallel()
			huge := strings.Repeat("The sea", 1<<17)
			body := bytes.Replace(p.recording(t, Text), []byte("The sea"), []byte(huge), 1)
			p.collect(t, Text, body, Ended, encoding).expect(t, Reply{Text: huge + " is calm today.", Finish: model.FinishStop})
		})
	}
}

// testErrorResponses checks the errors of responses other than event streams.
func (p Provider) testErrorResponses(t *testing.T) {
	limited, busy := failedReplies[RateLimited].err, failedReplies[Overloaded].err
	limited.RetryAfter = 30 * time.Second
	busy.StatusCode = 503
	const date = "Date: Sat, 21 Nov 2026 08:00:00 GMT\nRetry-After: Sat, 21 Nov 2026 08:00:30 GMT"
	for name, test := range map[string]struct {
		scenario Scenario
		from, to string // replaced in the recording
		want     model.Error
		contains string
	}{
		"delay in seconds":   {RateLimited, "", "", failedReplies[RateLimited].err, ""},
		"delay until a date": {RateLimited, "Retry-After: 7", date, limited, ""},
		"overloaded":         {Overloaded, "", "", failedReplies[Overloaded].err, ""},
		"unavailable":        {Overloaded, "HTTP/1.1 529", "HTTP/1.1 503", busy, ""},
		"invalid key":        {Unauthenticated, "", "", failedReplies[Unauthenticated].err, ""},
		"too long":           {TooLong, "", "", failedReplies[Invalid].err, "context policy"},
		"unsupported format": {Unsupported, "", "", model.Error{Code: model.CodeUnsupported, StatusCode: 400}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := string(p.recording(t, test.scenario))
			if !strings.Contains(response, test.from) {
				t.Fatalf("the recording does not contain %q", test.from)
			}
			server := ServeResponse(t, strings.Replace(response, test.from, test.to, 1))
			reply := Collect(t, p.Connect(t, server).Generate(t.Context(), NewRequest(test.scenario)))
			reply.expect(t, Reply{})
			reply.expectError(t, test.want)
			if !strings.Contains(reply.Err.Error(), test.contains) {
				t.Errorf("got error %v, want it to contain %q", reply.Err, test.contains)
			}
			for err := reply.Err; err != nil; err = errors.Unwrap(err) {
				if strings.Contains(fmt.Sprintf("%+v", err), Key) {
					t.Errorf("the error contains the key: %+v", err)
				}
			}
			if n := len(server.Requests()); n != 1 {
				t.Errorf("got %d requests, want 1: the runtime retries, not the model", n)
			}
		})
	}
}

func (p Provider) testTruncation(t *testing.T) {
	t.Parallel()
	body := p.recording(t, ParallelCalls)
	for size := range slices.Values(truncationPoints(len(body))) {
		for _, end := range []Scenario{Ended, Cut} {
			server := ServeStream(t, body[:size], end, Encoding{})
			reply := Collect(t, p.Connect(t, server).Generate(t.Context(), NewRequest(ParallelCalls)))
			if reply.Err == nil {
				reply.expect(t, completeReplies[ParallelCalls])
				continue
			}
			e, ok := errors.AsType[*model.Error](reply.Err)
			if !ok || !e.Retryable || (e.Code != model.CodeUnavailable && e.Code != model.CodeInvalidResponse) {
				t.Errorf("%d of %d bytes, %s: got error %v, want a retryable one", size, len(body), end, reply.Err)
			}
		}
	}
}

// truncationPoints returns places in a body of this size.
func truncationPoints(size int) []int {
	const places = 24
	var at []int
	for n := range places {
		at = append(at, n*size/places)
	}
	return append(at, size-2, size-1, size)
}

// testEndlessEvent checks that the model does not read an endless event.
func (p Provider) testEndlessEvent(t *testing.T) {
	t.Parallel()
	for name, piece := range map[string]string{"a line": "xxxxxxx", "lines": "data: x\n"} {
		block := []byte(strings.Repeat(piece, 1<<13))
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, err := w.Write([]byte("event: message\ndata: "))
			for n := 0; err == nil && n < 1<<14; n++ {
				_, err = w.Write(block)
			}
		})
		reply := Collect(t, p.Connect(t, server).Generate(t.Context(), NewRequest(Text)))
		reply.expect(t, Reply{})
		if e, ok := errors.AsType[*model.Error](reply.Err); !ok || e.Code != model.CodeInvalidResponse {
			t.Errorf("%s: got error %v, want %s", name, reply.Err, model.CodeInvalidResponse)
		}
	}
}

// testDisconnects checks that the model closes its connection.
func (p Provider) testDisconnects(t *testing.T) {
	for name, test := range map[string]struct {
		sendsStart bool // the server sends the start of a reply
		stopsEarly bool // the consumer stops, instead of its context ending
	}{
		"when the consumer stops":                 {sendsStart: true, stopsEarly: true},
		"when the context ends":                   {sendsStart: true},
		"when the context ends before the answer": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			disconnected := make(chan struct{})
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if test.sendsStart {
					w.Header().Set("Content-Type", "text/event-stream")
					Encoding{}.write(w, p.recording(t, Ended), true)
				} else {
					cancel()
				}
				<-r.Context().Done()
				close(disconnected)
			})
			for _, err := range p.Connect(t, server).Generate(ctx, NewRequest(Slow)) {
				if test.stopsEarly {
					break
				}
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v, want %v", err, context.Canceled)
				}
			}
			select {
			case <-disconnected:
			case <-time.After(waitLimit):
				t.Error("the connection stays open")
			}
		})
	}
}

func (p Provider) recording(t *testing.T, scenario Scenario) []byte {
	t.Helper()
	for _, suffix := range []string{".sse", ".http"} {
		if text, err := os.ReadFile(filepath.Join(p.Dir, string(scenario)+suffix)); err == nil {
			return text
		}
	}
	t.Fatalf("no recording of %s in %s", scenario, p.Dir)
	return nil
}
