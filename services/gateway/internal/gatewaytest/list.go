package gatewaytest

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// The pages of List.
const (
	defaultListed = 100
	mostListed    = 1000
)

// List implements the service.
func (s *Stream) List(_ context.Context, r *streamv1.ListRequest) (*streamv1.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away || s.cut == CutWhole {
		return nil, fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "away")
	}
	limit := int(r.GetLimit())
	if limit == 0 {
		limit = defaultListed
	}
	if limit < 0 || limit > mostListed {
		return nil, fault.New(fault.Invalid, "PAGE_INVALID", "limit is %d", limit)
	}
	log, floor := s.log(r.GetStream(), r.GetFamily())
	cursor := r.GetFromSequence()
	if len(log) == 0 && floor == 0 {
		return nil, fault.New(fault.NotFound, "STREAM_NOT_FOUND", "nothing was written")
	}
	out := &streamv1.ListResponse{NextSequence: cursor, LatestSequence: floor}
	if len(log) > 0 {
		out.LatestSequence = log[len(log)-1].sequence
	}
	if cursor < floor {
		out.Floor, out.NextSequence = floor, floor
	}
	for _, record := range log {
		if record.sequence <= out.GetNextSequence() {
			continue
		}
		if len(out.GetRecords()) == limit {
			out.HasMore = true
			break
		}
		out.NextSequence = record.sequence
		if listed := record.listed(r); listed != nil {
			out.Records = append(out.Records, listed)
		}
	}
	return out, nil
}

// listed gives the record as it stands in a page, nil when it does not.
func (r *record) listed(q *streamv1.ListRequest) *streamv1.Record {
	out := &streamv1.Record{Sequence: r.sequence, SessionId: r.session}
	run := r.terminalOf()
	switch {
	case r.chunk != nil:
		if run = r.chunk.GetAgentId(); r.chunk.GetStep() < q.GetFromStep() {
			return nil
		}
		out.Record = &streamv1.Record_Chunk{Chunk: r.chunk}
	case r.end != nil:
		out.Record = &streamv1.Record_Terminal{Terminal: &streamv1.Terminal{RunId: run, Outcome: &streamv1.Terminal_End{End: r.end.GetEnd()}}}
	case r.fail != nil:
		out.Record = &streamv1.Record_Terminal{Terminal: &streamv1.Terminal{RunId: run, Outcome: &streamv1.Terminal_Fail{Fail: r.fail.GetFail()}}}
	default:
		if run = r.rewound.GetRunId(); r.rewound.GetAt() >= q.GetFromSequence() {
			return nil
		}
		out.Record = &streamv1.Record_Rewound{Rewound: r.rewound}
	}
	if q.GetRunId() != "" && q.GetRunId() != run {
		return nil
	}
	return out
}
