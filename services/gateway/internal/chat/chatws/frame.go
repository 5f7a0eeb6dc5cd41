package chatws

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// The types of frames.
const (
	typeSend     = "send"
	typeResume   = "resume"
	typeAbort    = "abort"
	typeStart    = "start"
	typeChunk    = "chunk"
	typeEnd      = "end"
	typeNoActive = "no-active"
	typeError    = "error"
)

// maxHeaders bounds the headers of a frame, in bytes.
const maxHeaders = 16 << 10

// headers are those that a frame may bring. Credentials are the handshake's: what a
// frame says of them means nothing.
var headers = []string{
	"X-Holdfast-Request-Key", "X-Helix-Request-Key", "X-Holdfast-On-Busy", httpapi.RunHeader,
}

// frame is what a client sends. Keys that it does not name mean nothing here, as the
// app's own in metadata.
type frame struct {
	Type         string          `json:"type"`
	RequestID    string          `json:"requestId"`
	ID           string          `json:"id"` // of the session
	Trigger      string          `json:"trigger"`
	MessageID    string          `json:"messageId"`
	Messages     json.RawMessage `json:"messages"`
	Headers      json.RawMessage `json:"headers"`
	Body         json.RawMessage `json:"body"`
	LastSequence json.RawMessage `json:"lastSequence"`
}

// parse reads a frame. Invalid (FRAME_INVALID, ID_INVALID); with the error comes the frame
// as far as its request is known.
func parse(text []byte) (*frame, error) {
	f := &frame{}
	if !utf8.Valid(text) {
		return &frame{}, invalid("a frame has to be UTF-8")
	}
	if err := httpapi.DecodeJSON(text, f); err != nil {
		return named(text), invalid("a frame is a JSON object with the keys type and requestId; of its text as a body: %s", detail(err))
	}
	if err := httpapi.CheckID("requestId", f.RequestID); err != nil {
		return &frame{}, err
	}
	switch f.Type {
	case typeAbort:
		return f, nil
	case typeSend, typeResume:
	default:
		return f, invalid("type is %.50q: it has to be %s, %s or %s", f.Type, typeSend, typeResume, typeAbort)
	}
	switch {
	case f.Type == typeSend && !is('[', f.Messages):
		return f, invalid("messages has to be a list")
	case given(f.Body) && !is('{', f.Body):
		return f, invalid("body has to be an object")
	case given(f.LastSequence):
		return f, invalid("lastSequence cannot be kept to: a message is told from its start; leave it out")
	}
	return f, nil
}

// named is a frame of which the request alone is known, if that much.
func named(text []byte) *frame {
	var f struct {
		RequestID string `json:"requestId"`
	}
	// A value of the wrong type does not keep the others from being read.
	_ = json.Unmarshal(text, &f)
	if httpapi.CheckID("requestId", f.RequestID) != nil {
		return &frame{}
	}
	return &frame{RequestID: f.RequestID}
}

// detail is what a fault says to people.
func detail(err error) string {
	f, _ := fault.From(err)
	return f.Detail
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "FRAME_INVALID", format, args...)
}

// given reports whether a key is there and is not null.
func given(value json.RawMessage) bool { return len(value) > 0 && !bytes.Equal(value, []byte("null")) }

func is(open byte, value json.RawMessage) bool { return len(value) > 0 && value[0] == open }

// header gives the headers of the frame that count. Invalid (FRAME_INVALID).
func (f *frame) header() (http.Header, error) {
	given := map[string]string{}
	if len(f.Headers) > maxHeaders {
		return nil, invalid("the headers have %d bytes; they may have %d", len(f.Headers), maxHeaders)
	}
	if len(f.Headers) > 0 {
		if err := json.Unmarshal(f.Headers, &given); err != nil {
			return nil, invalid("headers has to be an object of texts")
		}
	}
	h := http.Header{}
	for name, value := range given {
		for _, known := range headers {
			if strings.EqualFold(name, known) {
				h.Set(known, value)
			}
		}
	}
	return h, nil
}

// post is the body of the POST /chat that says the same: the app's keys, but for those
// that are the frame's own.
func (f *frame) post() []byte {
	out := []byte{'{'}
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, text(name)...), ':'), value...)
	}
	members(f.Body, func(name string, value []byte) {
		if !slices.ContainsFunc(ours, func(key string) bool { return strings.EqualFold(key, name) }) {
			add(name, value)
		}
	})
	add("id", text(f.ID))
	add("messages", f.Messages)
	if f.Trigger != "" {
		add("trigger", text(f.Trigger))
	}
	if f.MessageID != "" {
		add("messageId", text(f.MessageID))
	}
	return append(out, '}')
}

// ours are the keys of a post that are the frame's to say.
var ours = []string{"id", "messages", "trigger", "messageId"}

// members calls f with the members of a JSON object. Something else has none.
func members(object []byte, f func(name string, value []byte)) {
	if !is('{', object) {
		return
	}
	d := json.NewDecoder(bytes.NewReader(object))
	_, err := d.Token()
	for err == nil && d.More() {
		var key json.Token
		if key, err = d.Token(); err != nil {
			return
		}
		var size length
		if err = d.Decode(&size); err == nil {
			name, _ := key.(string)
			end := d.InputOffset()
			f(name, object[end-int64(size):end])
		}
	}
}

// length is how many bytes a JSON value has; it keeps nothing of the value.
type length int

func (l *length) UnmarshalJSON(text []byte) error {
	*l = length(len(text))
	return nil
}

// forget lets go of what the frame brought, which may be large, once it was taken.
func (f *frame) forget() { f.Messages, f.Headers, f.Body = nil, nil, nil }

// run is the run that a resume names, in its body or its headers; "": the newest.
func (f *frame) run(h http.Header) (string, error) {
	var body struct {
		RunID string `json:"runId"`
	}
	if given(f.Body) {
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return "", invalid("runId has to be a text")
		}
	}
	if body.RunID != "" {
		return body.RunID, nil
	}
	id := h.Get(httpapi.RunHeader)
	if plain, err := url.PathUnescape(id); err == nil { // as it was given
		id = plain
	}
	return id, nil
}

// reply writes a frame to the client.
func reply(kind, request string) []byte {
	return append(opening(kind, request), '}')
}

// chunk writes the frame of a part.
func chunk(request string, sequence int, part []byte) []byte {
	out := append(opening(typeChunk, request), `,"sequence":`...)
	out = strconv.AppendInt(out, int64(sequence), 10)
	out = append(append(out, `,"chunk":`...), part...)
	return append(out, '}')
}

// failure writes the frame that ends a request with an error. Its text is the body that
// HTTP would have answered with, which is what the other transport of the AI SDK shows.
func failure(request string, err error) []byte {
	out := append(opening(typeError, request), `,"errorText":`...)
	out = append(out, text(string(httpapi.ErrorText(err)))...)
	return append(out, '}')
}

func opening(kind, request string) []byte {
	out := append([]byte(`{"type":"`), kind...)
	return append(append(out, `","requestId":`...), text(request)...)
}

// text writes a JSON string.
func text(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string has JSON always
		return []byte(`""`)
	}
	return b
}
