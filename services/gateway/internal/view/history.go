package view

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// maxPageBytes bounds a page of history. A larger chunk is a page of its own.
const maxPageBytes = 4 << 20

// historyPage is a page of chunks: first of stored steps, then the log's chunks of the step in flight.
type historyPage struct {
	Chunks  []storedChunk `json:"chunks"`
	HasMore bool          `json:"hasMore"`
	Latest  int64         `json:"latestSequence"`
	// Next is the cursor of the next page.
	Next int64 `json:"nextSequence"`
	// Rewound voids chunks of earlier pages after At.
	Rewound []rewound `json:"rewound,omitempty"`
}

type storedChunk struct {
	Sequence int64           `json:"sequence"`
	Chunk    json.RawMessage `json:"chunk"`
}

type rewound struct {
	Sequence int64 `json:"sequence"`
	At       int64 `json:"at"`
}

// History is GET /history?sessionId=…&fromSequence=0&limit=100&runId=…&fromStep=….
func (h *Handlers) History(w http.ResponseWriter, r *http.Request, tenant string) error {
	reader, err := historyRequest(r)
	if err != nil {
		return err
	}
	reader.request.Tenant = tenant
	if reader.request.SessionID, err = sessionParameter.String(r); err != nil {
		return err
	}
	session, run, err := h.Sessions.Session(r.Context(), tenant, reader.request.SessionID)
	if err != nil {
		return err
	}
	reader.page = historyPage{Chunks: []storedChunk{}, Latest: session.GetPosition(), Next: reader.request.After}
	if reader.request.RunID != "" && reader.request.RunID != run.GetRunId() {
		run, err = h.Sessions.Run(r.Context(), tenant, &statev1.Run{SessionId: reader.request.SessionID, RunId: reader.request.RunID})
	}
	if err == nil {
		err = h.Follower.FollowRun(reader.request, session, run).To(r.Context(), reader)
	}
	if err != nil && !errors.Is(err, errFull) && fault.ReasonOf(err) != "RUN_NOT_FOUND" { // such a run has no chunks
		return err
	}
	reader.page.Latest = max(reader.page.Latest, reader.page.Next)
	httpapi.WriteJSON(w, http.StatusOK, reader.page)
	return nil
}

// historyRequest parses the request. Invalid (PARAMETER_INVALID, ID_INVALID).
func historyRequest(r *http.Request) (*pageReader, error) {
	from, err := historyFrom.Number(r)
	if err != nil {
		return nil, err
	}
	limit, err := historyLimit.Number(r)
	if err != nil {
		return nil, err
	}
	step, err := historyStep.Number(r)
	if err != nil {
		return nil, err
	}
	run, err := runParameter.String(r)
	if err != nil {
		return nil, err
	}
	return &pageReader{
		request: follow.Request{After: from, RunID: run, OnlyRun: run != "", StoredOnly: true}, limit: int(limit), step: int32(step),
	}, nil
}

var errFull = errors.New("the page is full")

// pageReader collects a page. It is the sink of a follow.
type pageReader struct {
	request follow.Request
	limit   int
	step    int32
	page    historyPage
	bytes   int
}

// Flush does nothing: the page is sent as a whole.
func (*pageReader) Flush() error { return nil }

// Heartbeat does nothing.
func (*pageReader) Heartbeat() error { return nil }

// Frame adds a frame to the page.
func (p *pageReader) Frame(f *frame.Frame) error {
	if f.Rewound {
		p.page.Rewound = append(p.page.Rewound, rewound{f.Sequence, f.Sequence})
	}
	if f.Chunk != nil && f.Chunk.GetStep() >= p.step {
		text, err := eventv1.MarshalChunk(f.Chunk)
		if err != nil { // an unknown event of a newer writer, which readers would ignore
			p.page.Next = f.Sequence
			return nil //nolint:nilerr // see above
		}
		if len(p.page.Chunks) == p.limit || p.bytes > 0 && p.bytes+len(text) > maxPageBytes {
			p.page.HasMore = true
			return errFull
		}
		p.page.Chunks, p.bytes = append(p.page.Chunks, storedChunk{f.Sequence, text}), p.bytes+len(text)
	}
	p.page.Next = f.Sequence
	return nil
}
