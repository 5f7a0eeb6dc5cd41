package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// maxMessage limits one message of a server, in bytes.
const maxMessage = 16 << 20

var errMessageTooLarge = fmt.Errorf("it has sent a message of more than %d bytes", maxMessage)

// events passes on the events of a stream, each as a whole and readable.
// https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
type events struct {
	io.Closer
	in   *bufio.Reader
	fail context.CancelCauseFunc
	rest []byte // of the current event
	err  error  // after it
}

func newEvents(body io.ReadCloser, fail context.CancelCauseFunc) *events {
	return &events{Closer: body, in: bufio.NewReaderSize(body, frameBuffer), fail: fail}
}

func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.rest, e.err = e.next()
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// next reads an event, up to an empty line or the end of the stream.
func (e *events) next() ([]byte, error) {
	var event, data []byte
	size := 0
	for {
		line, err := e.line(maxMessage - size)
		size += len(line)
		if size > maxMessage {
			e.fail(errMessageTooLarge) // the library would continue to wait for the answer
			return nil, errMessageTooLarge
		}
		line = bytes.TrimRight(line, "\r\n")
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0:
			if len(data) > 0 {
				// JSON has no line ends in its texts.
				message := bytes.ReplaceAll(readable(bytes.TrimSuffix(data, []byte("\n"))), []byte("\n"), []byte(" "))
				event = append(append(append(event, "data: "...), message...), '\n')
			}
			return append(event, '\n'), err
		case string(field) == "data":
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		case bytes.ContainsRune(line, ':'): // the library refuses a field without a value
			event = append(append(event, line...), '\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err // cut within an event
		}
	}
}

// line reads a line, and stops behind limit bytes.
func (e *events) line(limit int) (line []byte, err error) {
	for {
		piece, err := e.in.ReadSlice('\n')
		line = append(line, piece...)
		if len(line) > limit || !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// messageBody passes on a response of one message, in a form that the SDK reads.
type messageBody struct {
	io.ReadCloser
	fail context.CancelCauseFunc
	rest io.Reader // nil before the first Read
}

func (w *messageBody) Read(p []byte) (int, error) {
	if w.rest == nil {
		message, err := io.ReadAll(io.LimitReader(w.ReadCloser, maxMessage+1))
		switch {
		case len(message) > maxMessage:
			w.fail(errMessageTooLarge)
			return 0, errMessageTooLarge
		case err != nil:
			return 0, err
		}
		w.rest = bytes.NewReader(readable(message))
	}
	return w.rest.Read(p)
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

// isUnreached reports whether a request failed before a connection to the server was made.
func isUnreached(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

// limitedTransport adds a server's headers to requests, limits its responses and makes them readable. A response above the limits fails the
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
	if err != nil {
		if !isUnreached(err) {
			deliveryOf(ctx).written.Store(true)
		}
		end()
		return nil, err
	}
	if own := r.Header.Get(sessionHeader); own != "" {
		if deniesSession(response) {
			response.StatusCode = http.StatusNotFound // what the specification says
		}
		if response.Header.Get(sessionHeader) != own {
			response.Header.Del(sessionHeader) // the library would drop the response; the server denies the old session, if it must
		}
	}
	// A server answers 404 to a message of an unknown session and does not process the message. After any other
	// failure the server may have accepted it.
	// https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
	if response.StatusCode != http.StatusNotFound {
		deliveryOf(ctx).written.Store(true)
	}
	if r.Method == http.MethodPost {
		deliveryOf(ctx).status.Store(int32(response.StatusCode)) //nolint:gosec // three digits
	}
	response.Body = cancelingBody{response.Body, end}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // an invalid content type is not an event stream
	if kind == "text/event-stream" {
		response.Body = newEvents(response.Body, b.fail)
	} else {
		response.Body = &messageBody{ReadCloser: response.Body, fail: b.fail}
	}
	return response, nil
}
