package modeltest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Connect returns a model that calls through client with this idle timeout.
type Connect func(t *testing.T, client *http.Client, idle time.Duration) model.Model

const idleTimeout = time.Minute

// RunIdleTimeout checks, with a fake clock, how a model handles a silent provider. first is the start of an
// event stream with some text.
func RunIdleTimeout(t *testing.T, connect Connect, first string) {
	for name, test := range map[string]func(*testing.T, Connect, string){
		"a provider that never responds times out":                    testNoResponse,
		"a stream without further data times out":                     testSilentStream,
		"a slow consumer causes no timeout":                           testSlowConsumer,
		"keep-alives extend a call only for a while":                  testKeepAlives,
		"bytes of an unfinished event extend a call only for a while": testTrickle,
		"events extend a call":                                        testEvents,
		"an error that trickles times out":                            testTricklingError,
		"the caller's deadline ends a call that trickles":             testDeadline,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, connect, first) })
		})
	}
}

func testNoResponse(t *testing.T, connect Connect, _ string) {
	expectTimeout(t, connect(t, silentClient(), idleTimeout), idleTimeout)
}

func testSilentStream(t *testing.T, connect Connect, first string) {
	client := streamingClient(func(done <-chan struct{}, w io.Writer) {
		writeText(w, first)
		time.Sleep(idleTimeout / 2)
		writeText(w, ": keep-alive\n\n")
		<-done
	})
	if reply := expectTimeout(t, connect(t, client, idleTimeout), idleTimeout+idleTimeout/2); reply.Text == "" {
		t.Error("got no text before the timeout")
	}
}

// keepAlives is how many idle timeouts a call may last without an event.
const keepAlives = 3

// every writes a text again and again until the request is cancelled.
func every(pause time.Duration, text string) func(<-chan struct{}, io.Writer) {
	return func(done <-chan struct{}, w io.Writer) {
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
				writeText(w, text)
			}
		}
	}
}

func testKeepAlives(t *testing.T, connect Connect, first string) {
	client := streamingClient(func(done <-chan struct{}, w io.Writer) {
		writeText(w, first)
		every(idleTimeout/4, ": keep-alive\n\n")(done, w)
	})
	if reply := expectTimeout(t, connect(t, client, idleTimeout), keepAlives*idleTimeout); reply.Text == "" {
		t.Error("got no text before the timeout")
	}
}

func testTrickle(t *testing.T, connect Connect, _ string) {
	expectTimeout(t, connect(t, streamingClient(every(time.Second, "x")), idleTimeout), keepAlives*idleTimeout)
}

// testEvents checks that a provider may send events for an hour.
func testEvents(t *testing.T, connect Connect, first string) {
	const times = 60
	client := streamingClient(func(done <-chan struct{}, w io.Writer) {
		for range times {
			writeText(w, first)
			time.Sleep(idleTimeout * 3 / 4)
			writeText(w, ": keep-alive\n\n")
			time.Sleep(idleTimeout * 3 / 4)
		}
	})
	reply := Collect(t, connect(t, client, idleTimeout).Generate(t.Context(), NewRequest(Slow)))
	reply.expectError(t, model.Error{Code: model.CodeUnavailable, Retryable: true})
	if reply.Deltas == 0 {
		t.Error("got no text")
	}
}

func testTricklingError(t *testing.T, connect Connect, _ string) {
	client := streamingClient(every(time.Second, "x"))
	inner := client.Transport
	client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := inner.RoundTrip(r)
		if err == nil {
			res.StatusCode = http.StatusInternalServerError
		}
		return res, err
	})
	expectTimeout(t, connect(t, client, idleTimeout), idleTimeout)
}

func testDeadline(t *testing.T, connect Connect, first string) {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	reply := Collect(t, connect(t, streamingClient(every(time.Second, first)), idleTimeout).Generate(ctx, NewRequest(Slow)))
	if took := time.Since(start); took != limit || !errors.Is(reply.Err, context.DeadlineExceeded) {
		t.Errorf("the call took %v and gave the error %v, want %v and %v", took, reply.Err, limit, context.DeadlineExceeded)
	}
}

func testSlowConsumer(t *testing.T, connect Connect, first string) {
	client := streamingClient(func(_ <-chan struct{}, w io.Writer) { writeText(w, first) })
	reply := Collect(t, func(yield func(model.Event, error) bool) {
		for e, err := range connect(t, client, idleTimeout).Generate(t.Context(), NewRequest(Slow)) {
			time.Sleep(2 * idleTimeout)
			if !yield(e, err) {
				return
			}
		}
	})
	reply.expectError(t, model.Error{Code: model.CodeUnavailable, Retryable: true})
}

// expectTimeout checks that a call times out after exactly this time.
func expectTimeout(t *testing.T, m model.Model, after time.Duration) Reply {
	t.Helper()
	start := time.Now()
	reply := Collect(t, m.Generate(t.Context(), NewRequest(Slow)))
	reply.expectError(t, model.Error{Code: model.CodeTimeout, Retryable: true})
	if took := time.Since(start); took != after {
		t.Errorf("the call took %v, want %v", took, after)
	}
	return reply
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silentClient returns a client that gets no response until its request is cancelled.
func silentClient() *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}
}

// streamingClient returns a client with responses written by provider. done is closed when the request is
// cancelled.
func streamingClient(provider func(done <-chan struct{}, w io.Writer)) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		reader, writer := io.Pipe()
		context.AfterFunc(r.Context(), func() { reader.CloseWithError(r.Context().Err()) })
		go func() {
			provider(r.Context().Done(), writer)
			writer.Close()
		}()
		return &http.Response{
			StatusCode: http.StatusOK,
			Header:     http.Header{"Content-Type": {"text/event-stream"}},
			Body:       reader,
			Request:    r,
		}, nil
	})}
}

// writeText ignores errors: the client may have disconnected.
func writeText(w io.Writer, text string) { _, _ = io.WriteString(w, text) }
