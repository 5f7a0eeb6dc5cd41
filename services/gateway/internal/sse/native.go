package sse

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/watch"
)

// Native serves the native stream: named events (chunk, end, fail, truncated,
// rewound, caught-up) whose id is the sequence. A body that ends without end,
// fail or truncated is a drop.
type Native struct {
	Watcher *watch.Watcher
	Streams *httpapi.Streams
	Log     *slog.Logger
}

// Serve is GET /sse?sessionId=…&fromSequence=…&runId=….
func (n *Native) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	request, err := nativeRequest(r, tenant)
	if err != nil {
		return err
	}
	ctx, release, err := n.Streams.Open(r.Context())
	if err != nil {
		return err
	}
	defer release()
	watched, err := n.Watcher.New(ctx, request)
	if err != nil {
		return err
	}
	out := NewWriter(w)
	if err := out.Begin(); err != nil {
		return httpapi.ErrCut
	}
	if err := watched.Follow(ctx, &nativeSink{out, n.Log}); err != nil {
		n.Log.DebugContext(ctx, "native stream cut", "session", request.SessionID, "error", err)
		return httpapi.ErrCut
	}
	return nil
}

func nativeRequest(r *http.Request, tenant string) (watch.Request, error) {
	query := r.URL.Query()
	request := watch.Request{Tenant: tenant, SessionID: query.Get("sessionId"), RunID: query.Get("runId")}
	if err := httpapi.CheckID("sessionId", request.SessionID); err != nil {
		return request, err
	}
	if request.RunID != "" {
		if err := httpapi.CheckID("runId", request.RunID); err != nil {
			return request, err
		}
	}
	after, _, ok := Cursor(r)
	if !ok {
		return request, fault.New(fault.Invalid, "CURSOR_INVALID", "Last-Event-ID and fromSequence take a sequence")
	}
	request.After = after
	return request, nil
}

type nativeSink struct {
	out *Writer
	log *slog.Logger
}

func (s *nativeSink) Flush() error { return s.out.Flush() }
func (s *nativeSink) Beat() error  { return s.out.Beat() }

// The data of the events.
type (
	chunkData struct {
		Sequence int64           `json:"sequence"`
		Chunk    json.RawMessage `json:"chunk"`
	}
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
		At int64 `json:"at"`
	}
)

// Frame writes the event of a frame.
func (s *nativeSink) Frame(frame *streamv1.ReadResponse) error {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		chunk, err := eventv1.MarshalChunk(f.Chunk.GetChunk())
		if err != nil { // a newer writer's event; readers ignore what they do not know
			s.log.Debug("chunk has no native form", "sequence", f.Chunk.GetSequence(), "error", err)
			return nil
		}
		return s.event(f.Chunk.GetSequence(), "chunk", chunkData{f.Chunk.GetSequence(), chunk})
	case *streamv1.ReadResponse_End:
		return s.event(f.End.GetSequence(), "end", endOf(f.End.GetEnd()))
	case *streamv1.ReadResponse_Fail:
		return s.event(f.Fail.GetSequence(), "fail", failOf(f.Fail.GetFail()))
	case *streamv1.ReadResponse_Truncated:
		return s.event(0, "truncated", truncatedData{f.Truncated.GetFloor(), errorDetail{"TRUNCATED"}})
	case *streamv1.ReadResponse_Rewound:
		return s.event(f.Rewound.GetSequence(), "rewound", rewoundData{f.Rewound.GetAt()})
	case *streamv1.ReadResponse_CaughtUp:
		return s.event(f.CaughtUp.GetSequence(), "caught-up", struct{}{})
	default:
		return nil
	}
}

func (s *nativeSink) event(id int64, name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	s.out.Event(id, name, text)
	return nil
}

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
