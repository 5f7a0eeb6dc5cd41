package mcptool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// maxMessage bounds one message of a server, in bytes.
const maxMessage = 16 << 20

var errMessageTooLarge = errors.New("the server has sent a message that is too large")

// lines bounds the lines of a stream.
type lines struct {
	io.ReadCloser
	line int
}

func (l *lines) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if last := bytes.LastIndexByte(p[:n], '\n'); last >= 0 {
		l.line = n - last - 1
	} else {
		l.line += n
	}
	if l.line > maxMessage {
		return 0, errMessageTooLarge
	}
	return n, err
}

// whole bounds a stream.
type whole struct {
	io.ReadCloser
	read int
}

func (w *whole) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.read += n; w.read > maxMessage {
		return 0, errMessageTooLarge
	}
	return n, err
}

// goodbye bounds the request that ends a session.
const goodbye = 2 * time.Second

// ending ends a context with a body.
type ending struct {
	io.ReadCloser
	end context.CancelFunc
}

func (e ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// bounded adds the headers of a server to requests and bounds its responses.
type bounded struct {
	headers map[string]string
	next    http.RoundTripper
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, end := r.Context(), context.CancelFunc(func() {})
	if r.Method == http.MethodDelete {
		ctx, end = context.WithTimeout(ctx, goodbye)
	}
	r = r.Clone(ctx) // a transport must not change the request
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	response, err := b.next.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	response.Body = ending{response.Body, end}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // what cannot be read is no stream of events
	if kind == "text/event-stream" {
		response.Body = &lines{ReadCloser: response.Body}
	} else {
		response.Body = &whole{ReadCloser: response.Body}
	}
	return response, nil
}
