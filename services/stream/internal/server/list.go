package server

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// The limits of a page. Of a stream in which little is asked for, a page ends
// after listReads pages of the log, so that no call takes for ever.
const (
	defaultListRecords = 100
	maxListRecords     = 1000
	maxListBytes       = 4 << 20
	listReads          = 64
)

// listing is one List on its way. It belongs to one call.
type listing struct {
	server   *Server
	scope    bus.Scope
	limit    int
	run      string
	step     int32
	recorded uint64

	start  uint64 // where the page begins: the cursor, or the floor
	reader *chunklog.Reader
	page   []*chunklog.Record
	bytes  int
	proved bool // the record of the cursor is stored
	read   bool // something was read after it
	floor  uint64
	gone   bool // the state service knows that there was something
	more   bool
}

// List answers with one page of what is stored after the cursor.
func (s *Server) List(ctx context.Context, r *streamv1.ListRequest) (*streamv1.ListResponse, error) {
	q, err := s.listingOf(r)
	if err != nil {
		return nil, err
	}
	if err := q.fill(ctx); err != nil {
		return nil, err
	}
	if err := q.account(ctx); err != nil {
		return nil, err
	}
	latest, err := q.latest(ctx)
	if err != nil {
		return nil, err
	}
	answer := &streamv1.ListResponse{
		Records:        make([]*streamv1.Record, 0, len(q.page)),
		HasMore:        q.more,
		NextSequence:   wire(q.reader.Cursor()),
		LatestSequence: wire(latest),
		Floor:          wire(q.floor),
	}
	for _, record := range q.page {
		entry, err := entryOf(record)
		if err != nil {
			return nil, err
		}
		answer.Records = append(answer.Records, entry)
	}
	return answer, nil
}

func (s *Server) listingOf(r *streamv1.ListRequest) (*listing, error) {
	q := &listing{server: s, limit: int(r.GetLimit()), run: r.GetRunId(), step: r.GetFromStep()}
	var err error
	if q.scope, err = scopeOf(r.GetStream(), r.GetFamily()); err != nil {
		return nil, err
	}
	if err := checkRun(q.run); err != nil {
		return nil, err
	}
	cursor, err := cursorOf("from_sequence", r.GetFromSequence())
	if err != nil {
		return nil, err
	}
	if q.recorded, err = cursorOf("recorded_sequence", r.GetRecordedSequence()); err != nil {
		return nil, err
	}
	switch {
	case q.limit < 0 || q.limit > maxListRecords:
		return nil, fault.New(fault.Invalid, "PAGE_INVALID", "limit is %d; it is 1 to %d, or 0 for %d", q.limit, maxListRecords, defaultListRecords)
	case q.step < 0:
		return nil, fault.New(fault.Invalid, "PAGE_INVALID", "from_step is %d; it is 0 or more", q.step)
	case q.limit == 0:
		q.limit = defaultListRecords
	}
	q.begin(cursor)
	return q, nil
}

func (q *listing) begin(cursor uint64) {
	q.start = cursor
	q.reader = chunklog.NewLasting(q.scope.Session, cursor)
}

// fill reads until the page is full or nothing more is stored. Like Read it reads
// from the cursor's own record on.
func (q *listing) fill(ctx context.Context) error {
	alone := false
	for range listReads {
		cursor := q.reader.Cursor()
		after := cursor
		if cursor > 0 && !alone {
			after--
		}
		stored, err := q.server.bus.History(ctx, q.scope, after)
		if err != nil {
			return err
		}
		if after < cursor {
			astray, err := q.checkCursor(ctx, stored.Records)
			if err != nil {
				return err
			}
			if q.more = astray; astray && len(q.page) > 0 {
				return nil // the next page says so
			}
			if astray {
				continue
			}
		}
		full, err := q.takeAll(ctx, stored.Records)
		if err != nil {
			return err
		}
		if q.more = full || stored.More; !q.more || full || len(q.page) == q.limit {
			return nil
		}
		alone = q.reader.Cursor() == cursor // the record of the cursor fills a page
	}
	return nil
}

// checkCursor begins an empty page above what is gone when its cursor is of no
// use.
func (q *listing) checkCursor(ctx context.Context, stored []*chunklog.Record) (bool, error) {
	cursor := chunklog.Cursor{Sequence: q.reader.Cursor(), Recorded: q.recorded}
	if q.proved = chunklog.Proves(cursor.Sequence, stored); q.proved {
		return false, nil
	}
	stand, astray, err := q.server.astray(ctx, q.scope, cursor, stored)
	if err == nil && astray && len(q.page) == 0 {
		q.floor = stand.From(stored)
		q.begin(q.floor)
	}
	return astray, err
}

// takeAll takes records until the page is full: it then reports true, and the
// rest is for the next page.
func (q *listing) takeAll(ctx context.Context, records []*chunklog.Record) (full bool, err error) {
	for i, record := range records {
		if q.reader.Hole(record) {
			stand, lost, err := q.server.lost(ctx, q.scope, q.reader, records[i:])
			if err != nil {
				return false, err
			}
			if lost && len(q.page) > 0 {
				return true, nil // the next page says so
			}
			if lost {
				q.floor = q.reader.From(stand, records[i:])
				q.begin(q.floor)
			}
		}
		if q.wanted(record) && !q.room(record) {
			return true, nil
		}
		q.take(record)
	}
	return false, nil
}

// wanted reports whether the record counts for the page if it is told.
func (q *listing) wanted(r *chunklog.Record) bool {
	switch {
	case r.Sequence <= q.reader.Cursor():
		return false
	case r.Kind == chunklog.Marker:
		return q.voidsBefore(r)
	case q.run != "" && r.Run != q.run:
		return false
	}
	return r.Kind != chunklog.Chunk || r.Step >= q.step
}

// voidsBefore reports whether the marker voids what an earlier page may have
// held.
func (q *listing) voidsBefore(marker *chunklog.Record) bool { return marker.At < q.start }

func (q *listing) room(r *chunklog.Record) bool {
	return len(q.page) < q.limit && (len(q.page) == 0 || q.bytes+len(r.Payload) <= maxListBytes)
}

func (q *listing) take(r *chunklog.Record) {
	wanted := q.wanted(r)
	switch q.reader.Take(r, false) {
	case chunklog.Give:
		if wanted {
			q.add(r)
		}
	case chunklog.Rewound:
		q.drop(r)
		if wanted {
			q.add(r)
		}
	case chunklog.Skip, chunklog.End, chunklog.CaughtUp:
	}
	if r.Sequence > q.start {
		q.read = true
	}
}

func (q *listing) add(r *chunklog.Record) {
	q.page = append(q.page, r)
	q.bytes += len(r.Payload)
}

// drop leaves out what the marker voids. One that voids everything voids
// terminal records, and what former markers said, too.
func (q *listing) drop(marker *chunklog.Record) {
	kept := q.page[:0]
	for _, r := range q.page {
		if r.Session == marker.Session && r.Sequence > marker.At && (r.Kind == chunklog.Chunk || marker.At == 0) {
			q.bytes -= len(r.Payload)
			continue
		}
		kept = append(kept, r)
	}
	clear(q.page[len(kept):])
	q.page = kept
}

// account begins the page anew, above everything, when the log does not have
// what the state service has recorded. Only the last page can tell.
func (q *listing) account(ctx context.Context) error {
	for q.recorded > 0 && !q.more && q.floor == 0 {
		stand, account, err := q.server.account(ctx, q.scope, q.reader, q.start, q.recorded)
		if err != nil || account == chunklog.Stands {
			return err
		}
		renewed := account == chunklog.Gone
		if account == chunklog.Missing {
			if renewed, err = q.server.renew(ctx, q.scope.Stream, q.recorded); err != nil {
				return err
			}
		}
		switch {
		case !renewed: // the log knows better
			q.recorded = 0
			return q.again(ctx, q.start)
		case account == chunklog.Gone:
			q.floor, q.gone = stand.Floor, true
			return q.again(ctx, q.floor)
		}
	}
	return nil
}

// again fills the page from the cursor on.
func (q *listing) again(ctx context.Context, cursor uint64) error {
	q.page, q.bytes, q.read = nil, 0, false
	q.begin(cursor)
	return q.fill(ctx)
}

// latest returns the last sequence of what is listed.
//
// NotFound (STREAM_NOT_FOUND): there is none, and nothing tells that there was.
func (q *listing) latest(ctx context.Context) (uint64, error) {
	if !q.more && (q.read || q.proved && q.start > 0) {
		return q.reader.Cursor(), nil
	}
	var latest uint64
	var err error
	switch {
	case !q.scope.Family:
		latest, err = q.server.last(ctx, q.scope.Stream)
	case q.more:
		latest, err = q.server.lastOfFamily(ctx, q.scope, q.reader.Cursor())
	default:
		latest, err = q.server.lastOfFamily(ctx, q.scope, 0)
	}
	known := q.gone || q.recorded > 0 && q.floor > 0 // it was written, and that has gone
	if err == nil && latest == 0 && !known {
		err = errNotFound
	}
	return latest, err
}
