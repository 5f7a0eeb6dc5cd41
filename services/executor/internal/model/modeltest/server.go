package modeltest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Encoding is how a Server encodes an event stream.
type Encoding struct {
	// CRLF ends lines with CR LF instead of LF.
	CRLF bool
	// Comments puts a comment before each event.
	Comments bool
	// WriteSize is the number of bytes for each write; 0 means all.
	WriteSize int
	// Gzip compresses the stream, each write for itself.
	Gzip bool
}

// Server is a provider that replays one recording from a directory: NAME.sse, the body of an event stream, or
// NAME.http, a complete HTTP response. The scenarios Cut and Slow use the recording of Ended and then break the
// connection or wait until the client disconnects.
type Server struct {
	*httptest.Server
	// Client has its own connections, closed at the end of the test.
	Client *http.Client

	mu       sync.Mutex
	requests []Request
}

// Request is a request received by a Server.
type Request struct {
	Method, Path, Query string
	Header              http.Header
	Body                []byte
}

// NewServer starts a server for the test. The server replays a scenario.
func NewServer(t *testing.T, dir string, scenario Scenario, encoding Encoding) *Server {
	t.Helper()
	name := scenario
	if scenario == Cut || scenario == Slow {
		name = Ended
	}
	stream, err := os.ReadFile(filepath.Join(dir, string(name)+".sse"))
	if errors.Is(err, fs.ErrNotExist) {
		response, err := os.ReadFile(filepath.Join(dir, string(name)+".http"))
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, func(w http.ResponseWriter, _ *http.Request) { replay(t, w, response) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return ServeStream(t, stream, scenario, encoding)
}

// ServeStream starts a server that sends this event stream.
func ServeStream(t *testing.T, stream []byte, scenario Scenario, encoding Encoding) *Server {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		encoding.write(w, stream, scenario != Cut && scenario != Slow)
		if scenario == Cut {
			panic(http.ErrAbortHandler)
		}
		if scenario == Slow {
			<-r.Context().Done()
		}
	})
}

// ServeResponse starts a server that sends this HTTP response.
func ServeResponse(t *testing.T, response string) *Server {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { replay(t, w, []byte(response)) })
}

func serve(t *testing.T, answer http.HandlerFunc) *Server {
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		s.mu.Lock()
		s.requests = append(s.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header, Body: body})
		s.mu.Unlock()
		answer(w, r)
	}))
	transport := &http.Transport{}
	s.Client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return s
}

// Requests returns the requests received so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

func replay(t *testing.T, w http.ResponseWriter, response []byte) {
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(response)), nil)
	if err != nil {
		t.Errorf("the recorded response: %v", err)
		return
	}
	defer res.Body.Close()
	for key, values := range res.Header {
		w.Header()[key] = values
	}
	w.WriteHeader(res.StatusCode)
	// The client may have disconnected.
	_, _ = io.Copy(w, res.Body)
}

// write sends a recorded stream with LF line ends. A complete body has its end.
func (encoding Encoding) write(w http.ResponseWriter, stream []byte, complete bool) {
	if encoding.Comments {
		stream = bytes.ReplaceAll(append([]byte("\n\n"), stream...), []byte("\n\n"), []byte("\n\n: keep-alive\n\n"))
	}
	if encoding.CRLF {
		stream = bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n"))
	}
	size := encoding.WriteSize
	if size == 0 {
		size = max(1, len(stream))
	}
	out, flush := io.Writer(w), http.NewResponseController(w).Flush
	if encoding.Gzip {
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		if complete {
			defer compressed.Close()
		}
		send := flush
		out, flush = compressed, func() error { return errors.Join(compressed.Flush(), send()) }
	}
	for len(stream) > 0 {
		n := min(size, len(stream))
		if _, err := out.Write(stream[:n]); err != nil {
			return
		}
		if flush() != nil {
			return
		}
		stream = stream[n:]
	}
}
