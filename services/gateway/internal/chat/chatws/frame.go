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
		return frameOfRequest(text), invalid("a frame is a JSON object with the keys type and requestId; of its text as a body: %s", detail(err))
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
	case f.Type == typeSend && !startsWith('[', f.Messages):
		return f, invalid("messages has to be a list")
	case isSet(f.Body) && !startsWith('{', f.Body):
		return f, invalid("body has to be an object")
	case isSet(f.LastSequence):
		return f, invalid("lastSequence cannot be kept to: a message is told from its start; leave it out")
	}
	return f, nil
}

// frameOfRequest is a frame of which the request alone is known, if that much.
func frameOfRequest(text []byte) *frame {
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

// isSet reports whether a key is there and is not null.
func isSet(value json.RawMessage) bool { return len(value) > 0 && !bytes.Equal(value, []byte("null")) }

func startsWith(open byte, value json.RawMessage) bool { return len(value) > 0 && value[0] == open }

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
		out = append(append(append(out, encodeString(name)...), ':'), value...)
	}
	eachMember(f.Body, func(name string, value []byte) {
		if !slices.ContainsFunc(frameKeys, func(key string) bool { return strings.EqualFold(key, name) }) {
			add(name, value)
		}
	})
	add("id", encodeString(f.ID))
	add("messages", f.Messages)
	if f.Trigger != "" {
		add("trigger", encodeString(f.Trigger))
	}
	if f.MessageID != "" {
		add("messageId", encodeString(f.MessageID))
	}
	return append(out, '}')
}

// frameKeys are the keys of a post that are the frame's to say.
var frameKeys = []string{"id", "messages", "trigger", "messageId"}

// eachMember calls f with the members of a JSON object. Something else has none.
func eachMember(object []byte, f func(name string, value []byte)) {
	if !startsWith('{', object) {
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

// release lets go of what the frame brought, which may be large, once it was taken.
func (f *frame) release() { f.Messages, f.Headers, f.Body = nil, nil, nil }

// runID is the run that a resume names, in its body or its headers; "": the newest.
func (f *frame) runID(h http.Header) (string, error) {
	var body struct {
		RunID string `json:"runId"`
	}
	if isSet(f.Body) {
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

// encodeReply writes a frame to the client.
func encodeReply(kind, request string) []byte {
	return append(encodeHead(kind, request), '}')
}

// encodeChunk writes the frame of a part.
func encodeChunk(request string, sequence int, part []byte) []byte {
	out := append(encodeHead(typeChunk, request), `,"sequence":`...)
	out = strconv.AppendInt(out, int64(sequence), 10)
	out = append(append(out, `,"chunk":`...), part...)
	return append(out, '}')
}

// encodeError writes the frame that ends a request with an error. Its text is the body that
// HTTP would have answered with, which is what the other transport of the AI SDK shows.
func encodeError(request string, err error) []byte {
	out := append(encodeHead(typeError, request), `,"errorText":`...)
	out = append(out, encodeString(string(httpapi.ErrorText(err)))...)
	return append(out, '}')
}

func encodeHead(kind, request string) []byte {
	out := append([]byte(`{"type":"`), kind...)
	return append(append(out, `","requestId":`...), encodeString(request)...)
}

// encodeString writes a JSON string.
func encodeString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string has JSON always
		return []byte(`""`)
	}
	return b
}
