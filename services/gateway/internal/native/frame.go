package native

import (
	"encoding/json"
	"strconv"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
	"github.com/holdfast-run/holdfast/services/gateway/internal/watch"
)

// Event is the frame as a server-sent event, made once for all its readers; empty
// when the wire has no word for it.
func Event(f *feed.Frame) []byte { return f.Text(feed.Event, event) }

// Message is the frame as a message of a WebSocket: {"type": …} with the fields of
// the event, and the sequence where there is one. It is made once for all readers;
// empty when the wire has no word for it.
func Message(f *feed.Frame) []byte { return f.Text(feed.Message, message) }

func event(f *feed.Frame) []byte {
	name, data := said(f)
	if name == "" {
		return nil
	}
	return sse.AppendEvent(nil, sequence(f), name, data)
}

func message(f *feed.Frame) []byte {
	name, data := said(f)
	if name == "" {
		return nil
	}
	b := append(make([]byte, 0, len(data)+64), `{"type":"`...)
	b = append(append(b, name...), '"')
	if at := sequence(f); at > 0 && name != chunkName { // a chunk's data has it
		b = strconv.AppendInt(append(b, `,"sequence":`...), at, 10)
	}
	if len(data) > len("{}") {
		b = append(b, ',')
	}
	return append(b, data[1:]...)
}

func sequence(f *feed.Frame) int64 { return feed.Cursor(f.ReadResponse, 0) }

const chunkName = "chunk"

// said gives the frame's name and its data, a JSON object.
func said(f *feed.Frame) (name string, data []byte) {
	switch kind := f.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return chunkOf(kind.Chunk, f.Session)
	case *streamv1.ReadResponse_End:
		return "end", object(endOf(kind.End.GetEnd()))
	case *streamv1.ReadResponse_Fail:
		return "fail", object(failOf(kind.Fail.GetFail()))
	case *streamv1.ReadResponse_Truncated:
		return "truncated", object(truncatedData{kind.Truncated.GetFloor(), errorDetail{"TRUNCATED"}})
	case *streamv1.ReadResponse_Rewound:
		return "rewound", object(rewoundData{kind.Rewound.GetAt(), f.Session})
	case *streamv1.ReadResponse_CaughtUp:
		return "caught-up", []byte("{}")
	default:
		return "", nil
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
func chunkOf(c *streamv1.ChunkFrame, session string) (name string, data []byte) {
	chunk, err := eventv1.MarshalChunk(c.GetChunk())
	if err != nil {
		return "", nil
	}
	b := append(make([]byte, 0, len(chunk)+64+len(session)), `{"sequence":`...)
	b = strconv.AppendInt(b, c.GetSequence(), 10)
	b = append(append(b, `,"chunk":`...), chunk...)
	if session != "" {
		b = append(append(b, `,"sessionId":`...), object(session)...)
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
	truncatedData struct {
		Floor       int64       `json:"floor"`
		ErrorDetail errorDetail `json:"errorDetail"`
	}
	errorDetail struct {
		Code string `json:"code"`
	}
	rewoundData struct {
		At      int64  `json:"at"`
		Session string `json:"sessionId,omitempty"`
	}
)

func endOf(e *streamv1.End) endData {
	data := endData{Status: watch.StatusName(e.GetStatus())}
	if json.Valid([]byte(e.GetOutput())) {
		data.Output = json.RawMessage(e.GetOutput())
	}
	if u := e.GetUsage(); u != nil {
		data.Usage = &usage{u.GetPromptTokens(), u.GetCompletionTokens(), u.GetReasoningTokens(), u.GetCachedTokens(), u.GetTotalTokens()}
	}
	return data
}

func failOf(f *streamv1.Fail) failData {
	data := failData{Error: f.GetError(), Recoverable: f.GetRecoverable()}
	if data.Error == "" {
		data.Error = "The run failed."
	}
	if f.GetCode() != "" {
		data.ErrorDetail = &errorDetail{f.GetCode()}
	}
	return data
}
