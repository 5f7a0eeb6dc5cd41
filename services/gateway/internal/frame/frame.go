// Package frame has the frames of a session's stream, and their encoding on the native wire:
// chunks, ends of runs, rewinds, and the mark between stored and live chunks. All readers of a
// session share the frames of live records, so frames must not be changed.
package frame

import (
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Frame is one frame. Exactly one of Chunk, Terminal, Rewound and CaughtUp is set.
type Frame struct {
	// Session is a session below the followed one; "" for the followed session.
	Session string
	// Sequence is the reader's position after the frame.
	Sequence int64

	Chunk    *eventv1.Chunk
	Terminal *streamv2.Terminal
	// Rewound: everything behind Sequence is void.
	Rewound bool
	// CaughtUp: the following chunks are live.
	CaughtUp bool

	size           int
	event, message encoded
}

// encoded is a frame on a wire, encoded once for all readers.
type encoded struct {
	once sync.Once
	text []byte
}

func (e *encoded) get(encode func() []byte) []byte {
	e.once.Do(func() { e.text = encode() })
	return e.text
}

// Chunk returns the frame of a chunk.
func Chunk(session string, sequence int64, c *eventv1.Chunk) *Frame {
	return &Frame{Session: session, Sequence: sequence, Chunk: c, size: proto.Size(c)}
}

// Terminal returns the frame of a run's end.
func Terminal(session string, sequence int64, t *streamv2.Terminal) *Frame {
	return &Frame{Session: session, Sequence: sequence, Terminal: t, size: proto.Size(t)}
}

// Rewound returns a frame that voids everything behind the sequence.
func Rewound(session string, sequence int64) *Frame {
	return &Frame{Session: session, Sequence: sequence, Rewound: true}
}

// CaughtUp returns the frame between stored and live chunks.
func CaughtUp(sequence int64) *Frame { return &Frame{Sequence: sequence, CaughtUp: true} }

// Size returns the approximate size of the frame, in bytes.
func (f *Frame) Size() int { return f.size }

// Pieces splits the frame's text between runes, into copies of at most limit bytes, 4 or more. The
// caller numbers the pieces. A frame with a shorter text, or without text, is its only piece.
func (f *Frame) Pieces(limit int) iter.Seq[*Frame] {
	return func(yield func(*Frame) bool) {
		text := textOf(f.Chunk)
		if len(text) <= limit {
			yield(f)
			return
		}
		for len(text) > 0 {
			at := min(limit, len(text))
			for at < len(text) && !utf8.RuneStart(text[at]) {
				at--
			}
			piece := Chunk(f.Session, f.Sequence, withText(f.Chunk, strings.Clone(text[:at]), at == len(text)))
			if !yield(piece) {
				return
			}
			text = text[at:]
		}
	}
}

// textOf returns the text of a chunk that may be split.
func textOf(c *eventv1.Chunk) string {
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		return e.TextDelta.GetDelta()
	case *eventv1.Chunk_Thinking:
		return e.Thinking.GetContent()
	case *eventv1.Chunk_ToolArgStreamDelta:
		return e.ToolArgStreamDelta.GetDelta()
	default:
		return ""
	}
}

// withText copies the chunk with a piece of its text. Only the last piece completes a block.
func withText(c *eventv1.Chunk, text string, last bool) *eventv1.Chunk {
	out := step.Text(text)
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_Thinking:
		out = step.Thinking(text, last && e.Thinking.GetIsComplete())
	case *eventv1.Chunk_ToolArgStreamDelta:
		out = step.InputDelta(e.ToolArgStreamDelta.GetToolCallId(), text)
	}
	out.AgentId, out.AgentType, out.Timestamp, out.Step = c.GetAgentId(), c.GetAgentType(), c.GetTimestamp(), c.GetStep()
	return out
}

// Event returns the frame as a server-sent event. It is empty for an unknown event of a newer
// writer: readers would ignore it. Only frames of the followed session have an id, because clients
// resume that session with the last id.
func (f *Frame) Event() []byte {
	return f.event.get(func() []byte {
		b := make([]byte, 0, f.size+envelopeBytes)
		if f.Sequence > 0 && f.Session == "" {
			b = strconv.AppendInt(append(b, "id: "...), f.Sequence, 10)
			b = append(b, '\n')
		}
		b = append(append(b, "event: "...), f.name()...)
		b = f.appendData(append(b, "\ndata: "...))
		if b == nil {
			return nil
		}
		return append(b, "\n\n"...)
	})
}

// envelopeBytes is about the size of an encoded frame beside the texts of its chunk.
const envelopeBytes = 224

// Message returns the frame as a WebSocket message: {"type": …} with the fields of the data, and
// the sequence if Event has an id. It is empty where Event is.
func (f *Frame) Message() []byte {
	return f.message.get(func() []byte {
		data := f.appendData(nil)
		if data == nil {
			return nil
		}
		b := append(make([]byte, 0, len(data)+envelopeBytes), `{"type":"`...)
		b = append(append(b, f.name()...), '"')
		if f.Sequence > 0 && f.Session == "" && f.Chunk == nil { // included in a chunk's data
			b = strconv.AppendInt(append(b, `,"sequence":`...), f.Sequence, 10)
		}
		if len(data) > len("{}") {
			b = append(b, ',')
		}
		return append(b, data[1:]...)
	})
}

func (f *Frame) name() string {
	switch {
	case f.Chunk != nil:
		return "chunk"
	case f.Terminal.GetFail() != nil:
		return "fail"
	case f.Terminal != nil:
		return "end"
	case f.Rewound:
		return "rewound"
	default:
		return "caught-up"
	}
}

// appendData appends the data, a JSON object on one line. It returns nil for an unknown event.
func (f *Frame) appendData(b []byte) []byte {
	switch {
	case f.Chunk != nil:
		b = strconv.AppendInt(append(b, `{"sequence":`...), f.Sequence, 10)
		b, err := eventv1.AppendChunk(append(b, `,"chunk":`...), f.Chunk)
		if err != nil {
			return nil
		}
		if f.Session != "" {
			b = append(append(b, `,"sessionId":`...), object(f.Session)...)
		}
		return append(b, '}')
	case f.Terminal.GetFail() != nil:
		return append(b, object(failOf(f.Terminal.GetFail()))...)
	case f.Terminal != nil:
		return append(b, object(endOf(f.Terminal.GetEnd()))...)
	case f.Rewound:
		return append(b, object(rewoundData{f.Sequence, f.Session})...)
	default:
		return append(b, "{}"...)
	}
}

// object never fails: the types below always marshal.
func object(data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		return []byte("{}")
	}
	return text
}

// The data of the frames.
type (
	endData struct {
		Status string          `json:"status"`
		Output json.RawMessage `json:"output,omitempty"`
		Usage  *usage          `json:"usage,omitempty"`

		CompletionReason string `json:"completionReason,omitempty"`
	}
	usage struct {
		PromptTokens     int64 `json:"promptTokens"`
		CompletionTokens int64 `json:"completionTokens"`
		ReasoningTokens  int64 `json:"reasoningTokens"`
		CachedTokens     int64 `json:"cachedTokens"`
		TotalTokens      int64 `json:"totalTokens"`
	}
	failData struct {
		Error       string       `json:"error"`
		ErrorDetail *errorDetail `json:"errorDetail,omitempty"`
		Recoverable bool         `json:"recoverable"`
	}
	errorDetail struct {
		Code string `json:"code"`
	}
	rewoundData struct {
		At      int64  `json:"at"`
		Session string `json:"sessionId,omitempty"`
	}
)

func endOf(e *streamv2.End) endData {
	data := endData{Status: StatusName(e.GetStatus()), CompletionReason: e.GetCompletionReason()}
	if json.Valid([]byte(e.GetOutput())) {
		data.Output = json.RawMessage(e.GetOutput())
	}
	if u := e.GetUsage(); u != nil {
		data.Usage = &usage{u.GetPromptTokens(), u.GetCompletionTokens(), u.GetReasoningTokens(), u.GetCachedTokens(), u.GetTotalTokens()}
	}
	return data
}

func failOf(f *streamv2.Fail) failData {
	data := failData{Error: f.GetError()}
	if data.Error == "" {
		data.Error = "The run failed."
	}
	if f.GetCode() != "" {
		data.ErrorDetail = &errorDetail{f.GetCode()}
	}
	return data
}

// StatusName returns the native wire's name of how a run ended.
func StatusName(s streamv2.EndStatus) string {
	switch s {
	case streamv2.EndStatus_END_STATUS_COMPLETED:
		return "completed"
	case streamv2.EndStatus_END_STATUS_INTERRUPTED:
		return "interrupted"
	default:
		return "paused"
	}
}
