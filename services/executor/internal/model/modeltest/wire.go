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

// Key is the API key of the suite. Recordings of refusals may repeat it, as some
// providers do.
const Key = "sk-modeltest-6b1f0c"

// The replies that a provider over HTTP has recordings of besides those of Run.
const (
	// OneFragment is Call with its arguments, or all of it, in one piece.
	OneFragment Reply = "one_fragment"
	// UnknownStop says "Done." and stops for a reason that is not documented.
	UnknownStop Reply = "unknown_stop"
	// Empty says nothing and stops.
	Empty Reply = "empty"
	// TooLong refuses a conversation that is too long for the model, with HTTP 400.
	TooLong Reply = "too_long"
	// Unsupported refuses to give a reply of a shape, with HTTP 400.
	Unsupported Reply = "unsupported"
)

// Provider is a model over HTTP, and a folder of what its provider says.
type Provider struct {
	Folder string
	// Connect makes a model that calls the server with Key.
	Connect func(t *testing.T, server *Server) model.Model
	// CallIDs are the ids in the recording of ParallelCalls, in the form in which
	// they stand there.
	CallIDs [2]string
	// Terminator is what the recording of Text ends with and some servers leave out;
	// empty where the protocol has nothing of the kind.
	Terminator string
}

// wires are the ways to write an event stream that mean the same.
var wires = map[string]Wire{
	"plain":                   {},
	"lines that end in CR LF": {CRLF: true},
	"comments between events": {Comments: true},
	"a few bytes at a time":   {Write: 7},
	"all of this at once":     {CRLF: true, Comments: true, Write: 11},
}

// RunWire is the suite of a provider over HTTP: Run, however the stream is
// written, and what may go wrong on the way.
func RunWire(t *testing.T, p Provider) {
	for name, wire := range wires {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, func(t *testing.T, reply Reply) model.Model {
				return p.Connect(t, NewServer(t, p.Folder, reply, wire))
			})
			p.runFaults(t, wire)
		})
	}
	t.Run("a file that cannot be sent fails the message that it is of alone", p.forgetsFiles)
	t.Run("a call of a tool that no tool can be called goes back by another name", p.namesCalls)
	t.Run("refusals", func(t *testing.T) { t.Parallel(); p.runRefusals(t) })
	t.Run("a reply that breaks off anywhere is whole or an error", p.breaksOff)
	t.Run("an event without end is given up", p.endlessEvents)
	t.Run("the connection is closed at once", func(t *testing.T) { t.Parallel(); p.runHangUps(t) })
}

func (p Provider) runFaults(t *testing.T, wire Wire) {
	say := func(t *testing.T, reply Reply, body []byte, end Reply) Heard {
		server := ServeStream(t, body, end, wire)
		heard := Listen(t, p.Connect(t, server).Generate(t.Context(), Ask(reply)))
		if n := len(server.Requests()); n != 1 {
			t.Errorf("got %d requests, want 1", n)
		}
		return heard
	}
	for reply, want := range map[Reply]Heard{
		OneFragment: whole[Call],
		UnknownStop: {Text: "Done.", Finish: model.FinishOther},
		Empty:       {Finish: model.FinishStop},
	} {
		t.Run(string(reply), func(t *testing.T) {
			t.Parallel()
			heard := say(t, reply, p.recording(t, reply), Ended)
			heard.expect(t, want)
			if heard.Err != nil {
				t.Errorf("got error %v, want none", heard.Err)
			}
		})
	}
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
			// Listen sees to it that the ids differ.
			say(t, ParallelCalls, body, Ended).expect(t, whole[ParallelCalls])
		})
	}
	t.Run("a stream without its terminator", func(t *testing.T) {
		t.Parallel()
		body, found := bytes.CutSuffix(bytes.TrimSpace(p.recording(t, Text)), []byte(strings.TrimSpace(p.Terminator)))
		if !found {
			t.Fatalf("the recording does not end with %q", p.Terminator)
		}
		body = append(bytes.TrimSpace(body), "\n\n"...)
		for _, end := range []Reply{Ended, Cut} {
			say(t, Text, body, end).expect(t, whole[Text])
		}
	})
	t.Run("a stream of nothing", func(t *testing.T) {
		t.Parallel()
		heard := say(t, Text, nil, Ended)
		heard.expect(t, Heard{})
		heard.expectError(t, model.Error{Code: model.CodeUnavailable, Retryable: true})
	})
	if wire.Write == 0 {
		t.Run("a huge event", func(t *testing.T) {
			t.Parallel()
			huge := strings.Repeat("The sea", 1<<17)
			body := bytes.Replace(p.recording(t, Text), []byte("The sea"), []byte(huge), 1)
			say(t, Text, body, Ended).expect(t, Heard{Text: huge + " is calm today.", Finish: model.FinishStop})
		})
	}
}

// runRefusals checks what becomes of answers that are no streams.
func (p Provider) runRefusals(t *testing.T) {
	limited, busy := broken[RateLimited].err, broken[Overloaded].err
	limited.RetryAfter, busy.StatusCode = 30*time.Second, 503
	const date = "Date: Sat, 21 Nov 2026 08:00:00 GMT\nRetry-After: Sat, 21 Nov 2026 08:00:30 GMT"
	for name, test := range map[string]struct {
		reply    Reply
		from, to string // what is changed in the recording
		want     model.Error
		says     string
	}{
		"wait for seconds":     {RateLimited, "", "", broken[RateLimited].err, ""},
		"wait until a date":    {RateLimited, "Retry-After: 7", date, limited, ""},
		"overloaded":           {Overloaded, "", "", broken[Overloaded].err, ""},
		"unavailable":          {Overloaded, "HTTP/1.1 529", "HTTP/1.1 503", busy, ""},
		"the key is wrong":     {Unauthenticated, "", "", broken[Unauthenticated].err, ""},
		"too long":             {TooLong, "", "", broken[Invalid].err, "context policy"},
		"a shape of the reply": {Unsupported, "", "", model.Error{Code: model.CodeUnsupported, StatusCode: 400}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := string(p.recording(t, test.reply))
			if !strings.Contains(response, test.from) {
				t.Fatalf("the recording does not hold %q", test.from)
			}
			server := ServeResponse(t, strings.Replace(response, test.from, test.to, 1))
			heard := Listen(t, p.Connect(t, server).Generate(t.Context(), Ask(test.reply)))
			heard.expect(t, Heard{})
			heard.expectError(t, test.want)
			if !strings.Contains(heard.Err.Error(), test.says) {
				t.Errorf("got error %v, want it to speak of a %s", heard.Err, test.says)
			}
			for err := heard.Err; err != nil; err = errors.Unwrap(err) {
				if strings.Contains(fmt.Sprintf("%+v", err), Key) {
					t.Errorf("the error holds the key: %+v", err)
				}
			}
			if n := len(server.Requests()); n != 1 {
				t.Errorf("got %d requests, want 1: retrying is the runtime's", n)
			}
		})
	}
}

// breaksOff cuts a reply at many places.
func (p Provider) breaksOff(t *testing.T) {
	t.Parallel()
	body := p.recording(t, ParallelCalls)
	for size := range slices.Values(steps(len(body))) {
		for _, end := range []Reply{Ended, Cut} {
			server := ServeStream(t, body[:size], end, Wire{})
			heard := Listen(t, p.Connect(t, server).Generate(t.Context(), Ask(ParallelCalls)))
			if heard.Err == nil {
				heard.expect(t, whole[ParallelCalls])
				continue
			}
			e, ok := errors.AsType[*model.Error](heard.Err)
			if !ok || !e.Retryable || (e.Code != model.CodeUnavailable && e.Code != model.CodeInvalidResponse) {
				t.Errorf("%d of %d bytes, %s: got error %v, want a retryable one", size, len(body), end, heard.Err)
			}
		}
	}
}

// steps gives places in a text of so many bytes.
func steps(size int) []int {
	const places = 24
	var at []int
	for n := range places {
		at = append(at, n*size/places)
	}
	return append(at, size-2, size-1, size)
}

// endlessEvents checks that an event is not read for ever.
func (p Provider) endlessEvents(t *testing.T) {
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
		heard := Listen(t, p.Connect(t, server).Generate(t.Context(), Ask(Text)))
		heard.expect(t, Heard{})
		if e, ok := errors.AsType[*model.Error](heard.Err); !ok || e.Code != model.CodeInvalidResponse {
			t.Errorf("%s: got error %v, want %s", name, heard.Err, model.CodeInvalidResponse)
		}
	}
}

// runHangUps checks that a server sees its client go.
func (p Provider) runHangUps(t *testing.T) {
	for name, test := range map[string]struct {
		speaks bool // the server says the beginning of a reply
		leaves bool // the consumer stops; otherwise its context ends
	}{
		"when the consumer stops":                 {speaks: true, leaves: true},
		"when the context ends":                   {speaks: true},
		"when the context ends before the answer": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			gone := make(chan struct{})
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if test.speaks {
					w.Header().Set("Content-Type", "text/event-stream")
					Wire{}.write(w, p.recording(t, Ended))
				} else {
					cancel()
				}
				<-r.Context().Done()
				close(gone)
			})
			for _, err := range p.Connect(t, server).Generate(ctx, Ask(Slow)) {
				if test.leaves {
					break
				}
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v, want %v", err, context.Canceled)
				}
			}
			select {
			case <-gone:
			case <-time.After(patience):
				t.Error("the connection stays open")
			}
		})
	}
}

// recording gives what the provider says.
func (p Provider) recording(t *testing.T, reply Reply) []byte {
	t.Helper()
	for _, suffix := range []string{".sse", ".http"} {
		if text, err := os.ReadFile(filepath.Join(p.Folder, string(reply)+suffix)); err == nil {
			return text
		}
	}
	t.Fatalf("there is no recording of %s in %s", reply, p.Folder)
	return nil
}
