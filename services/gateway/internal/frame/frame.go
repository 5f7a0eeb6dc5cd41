// Package frame has what a reader of a session is given: chunks, how a run ended, what
// is void, and that nothing older is missing; and how the native wire writes it. Frames of
// live records are shared by all readers of a session, so nobody may change one.
package frame

import (
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Frame is one frame. Exactly one of Chunk, Terminal, Rewound and CaughtUp is set.
type Frame struct {
	// Session is the session below the one that is read; "" for that itself.
	Session string
	// Sequence is where a reader stands that has taken the frame.
	Sequence int64

	Chunk    *eventv1.Chunk
	Terminal *streamv2.Terminal
	// Rewound: everything behind Sequence is void.
	Rewound bool
	// CaughtUp: what comes now is new.
	CaughtUp bool

	size           int
	event, message encoded
}

// encoded is a frame on a wire, which is made once for all readers.
type encoded struct {
	once sync.Once
	text []byte
}

func (e *encoded) get(write func() []byte) []byte {
	e.once.Do(func() { e.text = write() })
	return e.text
}

// Chunk returns the frame of a chunk.
func Chunk(session string, sequence int64, c *eventv1.Chunk) *Frame {
	return &Frame{Session: session, Sequence: sequence, Chunk: c, size: proto.Size(c)}
}

// Terminal returns the frame of the end of a run.
func Terminal(session string, sequence int64, t *streamv2.Terminal) *Frame {
	return &Frame{Session: session, Sequence: sequence, Terminal: t, size: proto.Size(t)}
}

// Rewound returns the frame that voids everything behind the sequence.
func Rewound(session string, sequence int64) *Frame {
	return &Frame{Session: session, Sequence: sequence, Rewound: true}
}

// CaughtUp returns the frame between what is stored and what is new.
func CaughtUp(sequence int64) *Frame { return &Frame{Sequence: sequence, CaughtUp: true} }

// Size tells about how many bytes the frame takes.
func (f *Frame) Size() int { return f.size }

// Pieces gives the frame in pieces whose texts have at most so many bytes, 4 or more, for the
// caller to number: its chunk's text is cut between runes and copied. A frame without such a
// text, or with a shorter one, is its only piece.
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

// textOf is the text of a chunk that may come in pieces.
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

// withText is the chunk with a piece of its text. The last piece alone completes a block.
func withText(c *eventv1.Chunk, text string, last bool) *eventv1.Chunk {
	out := &eventv1.Chunk{AgentId: c.GetAgentId(), AgentType: c.GetAgentType(), Timestamp: c.GetTimestamp(), Step: c.GetStep()}
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		out.Event = &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}
	case *eventv1.Chunk_Thinking:
		out.Event = &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: text, IsComplete: last && e.Thinking.GetIsComplete()}}
	case *eventv1.Chunk_ToolArgStreamDelta:
		out.Event = &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{
			ToolCallId: e.ToolArgStreamDelta.GetToolCallId(), Delta: text,
		}}
	}
	return out
}

// Event is the frame as a server-sent event; empty when the wire has no word for it.
func (f *Frame) Event() []byte {
	return f.event.get(func() []byte {
		name, data := f.content()
		if name == "" {
			return nil
		}
		b := make([]byte, 0, len(data)+eventRoom)
		if f.Sequence > 0 {
			b = fmt.Appendf(b, "id: %d\n", f.Sequence)
		}
		return fmt.Appendf(b, "event: %s\ndata: %s\n\n", name, data)
	})
}

// eventRoom is what an event takes beside its data.
const eventRoom = 64

// Message is the frame as a message of a WebSocket: {"type": …} with the fields of the
// event, and the sequence where there is one; empty when the wire has no word for it.
func (f *Frame) Message() []byte {
	return f.message.get(func() []byte {
		name, data := f.content()
		if name == "" {
			return nil
		}
		b := append(make([]byte, 0, len(data)+64), `{"type":"`...)
		b = append(append(b, name...), '"')
		if at := f.Sequence; at > 0 && name != chunkName { // a chunk's data has it
			b = strconv.AppendInt(append(b, `,"sequence":`...), at, 10)
		}
		if len(data) > len("{}") {
			b = append(b, ',')
		}
		return append(b, data[1:]...)
	})
}

const chunkName = "chunk"

// content gives the frame's name and its data, a JSON object.
func (f *Frame) content() (name string, data []byte) {
	switch {
	case f.Chunk != nil:
		return f.chunk()
	case f.Terminal.GetFail() != nil:
		return "fail", object(failOf(f.Terminal.GetFail()))
	case f.Terminal != nil:
		return "end", object(endOf(f.Terminal.GetEnd()))
	case f.Rewound:
		return "rewound", object(rewoundData{f.Sequence, f.Session})
	default:
		return "caught-up", []byte("{}")
	}
}

// object never fails: the types below marshal whatever they hold.
func object(data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		return []byte("{}")
	}
	return text
}

// chunk has no word for the event of a newer writer, which this gateway does not
// know: readers would pass over it.
func (f *Frame) chunk() (name string, data []byte) {
	chunk, err := eventv1.MarshalChunk(f.Chunk)
	if err != nil {
		return "", nil
	}
	b := append(make([]byte, 0, len(chunk)+64+len(f.Session)), `{"sequence":`...)
	b = strconv.AppendInt(b, f.Sequence, 10)
	b = append(append(b, `,"chunk":`...), chunk...)
	if f.Session != "" {
		b = append(append(b, `,"sessionId":`...), object(f.Session)...)
	}
	return chunkName, append(b, '}')
}

// The data of the events.
type (
	endData struct {
		Status string          `json:"status"`
		Output json.RawMessage `json:"output,omitempty"`
		Usage  *usage          `json:"usage,omitempty"`
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
	data := endData{Status: StatusName(e.GetStatus())}
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

// StatusName names how a run ended as the native wire does.
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
