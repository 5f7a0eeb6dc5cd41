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
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
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

// frames are the types of the frames that a client may send.
var frames = []string{typeSend, typeResume, typeAbort}

// maxHeaders bounds the headers of a frame, in bytes.
const maxHeaders = 16 << 10

// headers are the supported headers of a frame. Credentials come with the handshake; those in a
// frame are ignored.
var headers = []string{
	"X-Holdfast-Request-Key", "X-Helix-Request-Key", "X-Holdfast-On-Busy", httpapi.RunHeader,
}

// frame is a frame from the client. Other keys, such as metadata, belong to the app and are
// ignored.
type frame struct {
	Type         string          `json:"type"`
	RequestID    string          `json:"requestId"`
	ID           string          `json:"id"` // session id
	Trigger      string          `json:"trigger"`
	MessageID    string          `json:"messageId"`
	Messages     json.RawMessage `json:"messages"`
	Headers      json.RawMessage `json:"headers"`
	Body         json.RawMessage `json:"body"`
	LastSequence json.RawMessage `json:"lastSequence"`
}

// parse decodes a frame. Invalid (FRAME_INVALID, ID_INVALID): the returned frame has the request
// id, if it is valid.
func parse(text []byte) (*frame, error) {
	f := &frame{}
	if !utf8.Valid(text) {
		return &frame{}, invalid("a frame must be UTF-8")
	}
	if err := httpapi.DecodeJSON(text, f); err != nil {
		return frameOfRequest(text), invalid("a frame must be a JSON object with the keys type and requestId; read as a body: %s", detail(err))
	}
	if err := httpapi.CheckID("requestId", f.RequestID); err != nil {
		return &frame{}, err
	}
	switch {
	case !slices.Contains(frames, f.Type):
		return f, invalid("type is %.50q: it must be %s, %s or %s", f.Type, typeSend, typeResume, typeAbort)
	case f.Type == typeAbort:
		return f, nil
	case f.Type == typeSend && !startsWith('[', f.Messages):
		return f, invalid("messages must be a list")
	case isSet(f.Body) && !startsWith('{', f.Body):
		return f, invalid("body must be an object")
	case isSet(f.LastSequence):
		return f, invalid("lastSequence is not supported: a message is sent from its start; leave it out")
	}
	return f, nil
}

// frameOfRequest returns a frame with the request id alone, or an empty one.
func frameOfRequest(text []byte) *frame {
	var f struct {
		RequestID string `json:"requestId"`
	}
	// A value of the wrong type does not stop the decoding of the others.
	_ = json.Unmarshal(text, &f)
	if httpapi.CheckID("requestId", f.RequestID) != nil {
		return &frame{}
	}
	return &frame{RequestID: f.RequestID}
}

// detail returns the detail of a fault.
func detail(err error) string {
	f, _ := fault.From(err)
	return f.Detail
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "FRAME_INVALID", format, args...)
}

// isSet reports whether the key is present and not null.
func isSet(value json.RawMessage) bool { return len(value) > 0 && !bytes.Equal(value, []byte("null")) }

func startsWith(open byte, value json.RawMessage) bool { return len(value) > 0 && value[0] == open }

// header returns the supported headers of the frame. Invalid (FRAME_INVALID).
func (f *frame) header() (http.Header, error) {
	given := map[string]string{}
	if len(f.Headers) > maxHeaders {
		return nil, invalid("the headers have %d bytes; they may have at most %d", len(f.Headers), maxHeaders)
	}
	if len(f.Headers) > 0 {
		if err := json.Unmarshal(f.Headers, &given); err != nil {
			return nil, invalid("headers must be an object of texts")
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

// post returns the equivalent body of a POST /chat: the app's keys, and those of the frame.
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

// frameKeys are the keys of a post from the frame alone.
var frameKeys = []string{"id", "messages", "trigger", "messageId"}

// eachMember calls f with the members of a JSON object. Other values have none.
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

// length is the size of a JSON value in bytes, decoded without a copy of the value.
type length int

func (l *length) UnmarshalJSON(text []byte) error {
	*l = length(len(text))
	return nil
}

// release drops the possibly large contents of the frame.
func (f *frame) release() { f.Messages, f.Headers, f.Body = nil, nil, nil }

// runID returns the run of a resume, from its body or headers; "" for the newest.
func (f *frame) runID(h http.Header) (string, error) {
	var body struct {
		RunID string `json:"runId"`
	}
	if isSet(f.Body) {
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return "", invalid("runId must be a text")
		}
	}
	if body.RunID != "" {
		return body.RunID, nil
	}
	id := h.Get(httpapi.RunHeader)
	if plain, err := url.PathUnescape(id); err == nil { // as the header of an answer has it
		id = plain
	}
	return id, nil
}

// encodeReply encodes a frame without contents.
func encodeReply(kind, request string) []byte {
	return append(encodeHead(kind, request), '}')
}

// encodeStart encodes the first frame of an answer with the effects of the request, which POST /chat has in headers.
func encodeStart(request string, effects chat.Effects) []byte {
	text, err := json.Marshal(effects)
	if err != nil || len(text) <= len("{}") { // values always marshal
		return encodeReply(typeStart, request)
	}
	text[0] = ','
	return append(encodeHead(typeStart, request), text...)
}

// encodeChunk encodes the frame of a part.
func encodeChunk(request string, sequence int, part []byte) []byte {
	out := append(encodeHead(typeChunk, request), `,"sequence":`...)
	out = strconv.AppendInt(out, int64(sequence), 10)
	out = append(append(out, `,"chunk":`...), part...)
	return append(out, '}')
}

// encodeError encodes the last frame of a failed request. Users see the text. The code and the
// detail are for programs and developers.
func encodeError(request string, err error) []byte {
	sentence, code, detail := httpapi.ErrorTexts(err)
	out := append(encodeHead(typeError, request), `,"errorText":`...)
	out = append(append(append(out, encodeString(sentence)...), `,"code":`...), encodeString(code)...)
	if detail != "" {
		out = append(append(out, `,"detail":`...), encodeString(detail)...)
	}
	return append(out, '}')
}

func encodeHead(kind, request string) []byte {
	out := append([]byte(`{"type":"`), kind...)
	return append(append(out, `","requestId":`...), encodeString(request)...)
}

// encodeString encodes a JSON string.
func encodeString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // cannot happen
		return []byte(`""`)
	}
	return b
}
