package native

import (
	"encoding/json"
	"strconv"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
)

// Event is the frame as a server-sent event, made once for all its readers; empty
// when the wire has no word for it.
func Event(f *frame.Frame) []byte { return f.Text(frame.Event, event) }

// Message is the frame as a message of a WebSocket: {"type": …} with the fields of
// the event, and the sequence where there is one. It is made once for all readers;
// empty when the wire has no word for it.
func Message(f *frame.Frame) []byte { return f.Text(frame.Message, message) }

func event(f *frame.Frame) []byte {
	name, data := content(f)
	if name == "" {
		return nil
	}
	return sse.AppendEvent(nil, f.Sequence, name, data)
}

func message(f *frame.Frame) []byte {
	name, data := content(f)
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
}

const chunkName = "chunk"

// content gives the frame's name and its data, a JSON object.
func content(f *frame.Frame) (name string, data []byte) {
	switch {
	case f.Chunk != nil:
		return chunkOf(f)
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

// chunkOf has no word for the event of a newer writer, which this gateway does not
// know: readers would pass over it.
func chunkOf(f *frame.Frame) (name string, data []byte) {
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
