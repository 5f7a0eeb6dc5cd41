package mcptool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// maxMessage limits one message of a server, in bytes.
const maxMessage = 16 << 20

var errMessageTooLarge = fmt.Errorf("it has sent a message of more than %d bytes", maxMessage)

// limitedEvents limits the events of a stream: the text between two empty lines, over any number of lines.
type limitedEvents struct {
	io.ReadCloser
	fail  context.CancelCauseFunc
	event int  // bytes since the last empty line
	inked bool // the line has content
}

func (e *limitedEvents) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	for _, c := range p[:n] {
		e.event++
		switch {
		case c != '\n':
			e.inked = e.inked || c != '\r'
		case e.inked:
			e.inked = false
		default:
			e.event = 0
		}
		if e.event > maxMessage {
			e.fail(errMessageTooLarge) // the library would continue to wait for the answer
			return 0, errMessageTooLarge
		}
	}
	return n, err
}

// limitedReader limits a stream.
type limitedReader struct {
	io.ReadCloser
	fail context.CancelCauseFunc
	read int
}

func (w *limitedReader) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.read += n; w.read > maxMessage {
		w.fail(errMessageTooLarge)
		return 0, errMessageTooLarge
	}
	return n, err
}

// endTimeout limits the request that ends a session.
const endTimeout = 2 * time.Second

// cancelingBody ends a context with a body.
type cancelingBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (e cancelingBody) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// sessionHeader names the session of a message.
const sessionHeader = "Mcp-Session-Id"

// maxDenial is how much of a refusal is searched for the word session, in bytes.
const maxDenial = 4 << 10

// deniesSession reports whether a server refuses a message because it does not know the session, in one of the ways that
// servers have beside 404: with 410, or with 400 and a text about the session. It leaves the body readable.
func deniesSession(r *http.Response) bool {
	switch r.StatusCode {
	case http.StatusGone:
		return true
	case http.StatusBadRequest:
		begin, _ := io.ReadAll(io.LimitReader(r.Body, maxDenial)) // an error comes again when the rest is read
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}
		return namesSession(string(begin))
	}
	return false
}

// namesSession reports whether an error is about the session.
func namesSession(text string) bool { return strings.Contains(strings.ToLower(text), "session") }

// limitedTransport adds a server's headers to requests and limits its responses. A response above the limits fails the
// session. It records which calls the server may have accepted.
type limitedTransport struct {
	headers map[string]string
	fail    context.CancelCauseFunc
	next    http.RoundTripper
}

func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, end := r.Context(), context.CancelFunc(func() {})
	if r.Method == http.MethodDelete {
		ctx, end = context.WithTimeout(ctx, endTimeout)
	}
	r = r.Clone(ctx) // a transport must not modify the request
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	response, err := b.next.RoundTrip(r)
	if err == nil && r.Header.Get(sessionHeader) != "" && deniesSession(response) {
		response.StatusCode = http.StatusNotFound // what the specification says
	}
	// A server answers 404 to a message of an unknown session and does not process the message. After any other
	// failure the server may have accepted it.
	// https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
	if err != nil || response.StatusCode != http.StatusNotFound {
		noteWritten(ctx)
	}
	if err != nil {
		end()
		return nil, err
	}
	response.Body = cancelingBody{response.Body, end}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // an invalid content type is not an event stream
	if kind == "text/event-stream" {
		response.Body = &limitedEvents{ReadCloser: response.Body, fail: b.fail}
	} else {
		response.Body = &limitedReader{ReadCloser: response.Body, fail: b.fail}
	}
	return response, nil
}
