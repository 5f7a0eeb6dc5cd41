package snapshot

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// How much of the stream is folded at most; the client reads the rest. A page of
// the log, which has 4 MiB at most, comes on top.
const (
	tailRecords = 20000
	tailBytes   = 16 << 20
	tailPage    = 1000
)

// tail is what stands in a session's stream behind the boundary, as far as it was
// read. Chunks that were voided are not in it.
type tail struct {
	start   int64 // the boundary, or the floor above it
	floor   int64 // above 0: records behind the boundary are gone, up to here
	end     int64 // the cursor behind what was read
	records []*streamv1.Record
	bytes   int
}

// readTail reads the tail. Where the log cannot be read (on), the tail ends.
func (l *Loader) readTail(ctx context.Context, s *statev1.Session) (*tail, error) {
	boundary := s.GetStreamSequence()
	t := &tail{start: boundary, end: boundary}
	for {
		got, err := l.list(ctx, &streamv1.ListRequest{
			Stream: conversation.Stream(s), FromSequence: t.end, Limit: tailPage, RecordedSequence: boundary,
		})
		switch {
		case errors.Is(err, fault.NotFound): // nothing was written, or all of it has expired
			return t, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && retry.Passing(err):
			return t, nil
		case err != nil:
			return nil, err
		}
		t.take(got)
		if !got.GetHasMore() || got.GetNextSequence() == t.end || len(t.records) >= tailRecords || t.bytes >= tailBytes {
			t.end = got.GetNextSequence()
			return t, nil
		}
		t.end = got.GetNextSequence()
	}
}

// take takes a page. One that begins above what is gone says that what stands before
// it is not all there was.
func (t *tail) take(page *streamv1.ListResponse) {
	if floor := page.GetFloor(); floor > 0 {
		t.records, t.start, t.floor = nil, floor, floor
	}
	for _, r := range page.GetRecords() {
		if at := r.GetRewound().GetAt(); r.GetRewound() != nil {
			t.records = slices.DeleteFunc(t.records, func(former *streamv1.Record) bool {
				return former.GetSequence() > at && (former.GetChunk() != nil || at == 0)
			})
		}
		t.records = append(t.records, r)
		t.bytes += proto.Size(r)
	}
}

// cut ends the tail before its first record for which the condition holds.
func (t *tail) cut(unknown func(*streamv1.Record) bool) {
	i := slices.IndexFunc(t.records, unknown)
	if i < 0 {
		return
	}
	t.end = t.start
	if i > 0 {
		t.end = t.records[i-1].GetSequence()
	}
	t.records = t.records[:i]
}

// runOf names the run of a record.
func runOf(r *streamv1.Record) string {
	switch {
	case r.GetChunk() != nil:
		return r.GetChunk().GetAgentId()
	case r.GetTerminal() != nil:
		return r.GetTerminal().GetRunId()
	default:
		return r.GetRewound().GetRunId()
	}
}

// opens reports whether a run begins with the chunk.
func opens(c *eventv1.Chunk) bool { return c.GetRunStarted() != nil || c.GetRunResumed() != nil }
