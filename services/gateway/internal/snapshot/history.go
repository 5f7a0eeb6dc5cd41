package snapshot

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// The sizes of a page of history. A page is cut at 4 MiB as well, by the log.
const (
	defaultHistory = 100
	maxHistory     = 1000
)

// page is a page of stored chunks. Of a root's descendants, whose chunks stand among
// its own, the session is named.
type page struct {
	Chunks  []storedChunk `json:"chunks"`
	HasMore bool          `json:"hasMore"`
	Latest  int64         `json:"latestSequence"`
	// Next is the cursor of the page behind this one.
	Next int64 `json:"nextSequence"`
	// Rewound: what earlier pages had after At is void.
	Rewound []rewound `json:"rewound,omitempty"`
	// Floor above 0: chunks up to here, behind the cursor, are gone.
	Floor int64 `json:"floor,omitempty"`
}

type storedChunk struct {
	Sequence int64           `json:"sequence"`
	Chunk    json.RawMessage `json:"chunk"`
	Session  string          `json:"sessionId,omitempty"`
}

type rewound struct {
	Sequence int64  `json:"sequence"`
	At       int64  `json:"at"`
	Session  string `json:"sessionId,omitempty"`
}

// History is GET /history?sessionId=…&fromSequence=0&limit=100&runId=…&fromStep=….
func (l *Loader) History(w http.ResponseWriter, r *http.Request, tenant string) error {
	asked, err := historyRequest(r)
	if err != nil {
		return err
	}
	id, err := conversation.SessionID(r)
	if err != nil {
		return err
	}
	session, _, err := l.Sessions.Session(r.Context(), tenant, id)
	if err != nil {
		return err
	}
	asked.Stream = conversation.Stream(session)
	asked.Family = asked.GetStream().GetRootSessionId() == session.GetSessionId()
	asked.RecordedSequence = session.GetStreamSequence()
	got, err := l.list(r.Context(), asked)
	if errors.Is(err, fault.NotFound) {
		got, err = unknown(session, asked.GetFromSequence()), nil
	}
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, pageOf(session.GetSessionId(), got))
	return nil
}

// historyRequest reads what is asked for. Invalid (PARAMETER_INVALID, ID_INVALID).
func historyRequest(r *http.Request) (*streamv1.ListRequest, error) {
	from, err := conversation.Number(r, "fromSequence", 0, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	limit, err := conversation.Number(r, "limit", defaultHistory, 1, maxHistory)
	if err != nil {
		return nil, err
	}
	step, err := conversation.Number(r, "fromStep", 0, 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	run := r.URL.Query().Get("runId")
	if run != "" {
		if err := httpapi.CheckID("runId", run); err != nil {
			return nil, err
		}
	}
	return &streamv1.ListRequest{FromSequence: from, Limit: int32(limit), RunId: run, FromStep: int32(step)}, nil
}

// unknown is the page of a session of which the log knows nothing: it never wrote,
// or all it wrote has expired.
func unknown(s *statev1.Session, from int64) *streamv1.ListResponse {
	recorded := s.GetStreamSequence()
	if from >= recorded {
		return &streamv1.ListResponse{NextSequence: from}
	}
	return &streamv1.ListResponse{NextSequence: recorded, Floor: recorded}
}

func pageOf(session string, got *streamv1.ListResponse) page {
	p := page{
		Chunks: []storedChunk{}, HasMore: got.GetHasMore(), Latest: got.GetLatestSequence(),
		Next: got.GetNextSequence(), Floor: got.GetFloor(),
	}
	for _, record := range got.GetRecords() {
		below := record.GetSessionId()
		if below == session {
			below = ""
		}
		if f := record.GetRewound(); f != nil {
			p.Rewound = append(p.Rewound, rewound{record.GetSequence(), f.GetAt(), below})
		}
		if record.GetChunk() == nil {
			continue
		}
		text, err := eventv1.MarshalChunk(record.GetChunk())
		if err != nil {
			continue // the event of a newer writer: readers would pass over it
		}
		p.Chunks = append(p.Chunks, storedChunk{record.GetSequence(), text, below})
	}
	return p
}
