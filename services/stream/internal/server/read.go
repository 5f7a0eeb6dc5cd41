package server

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
)

// liveBatch is how many live records are taken from the ring at once: a burst
// of a few chunks, small enough to lie in an idle reader's memory.
const liveBatch = 8

// A reader that was live and has to read what is stored, but cannot reach the
// log, tries this often, with a pause that doubles from the first to the last:
// about half a minute in all, as long as a log may take to come back.
const (
	refillAttempts   = 12
	refillFirstPause = 100 * time.Millisecond
	refillLastPause  = 4 * time.Second
)

// errDone ends a reading that has sent its terminal frame.
var errDone = errors.New("the terminal frame was sent")

// What ends a reading that has not.
var (
	errClosing = fault.New(fault.Unavailable, "LOG_UNAVAILABLE",
		"the service is shutting down; read again from the last sequence")
	errTooSlow = fault.New(fault.Exhausted, "READER_TOO_SLOW",
		"the reader does not keep up with what is appended; read again from the last sequence")
)

// reading is one open Read. It belongs to the goroutine of the call.
type reading struct {
	server      *Server
	scope       bus.Scope
	historyOnly bool
	recorded    uint64 // 0: not known, or accounted for
	reader      *chunklog.Reader
	feed        *hub.Reader
	send        func(*streamv1.ReadResponse) error
	// live says that the reader has kept up with the feed since it last read
	// what is stored: only then falling behind is its own fault.
	live bool
}

// Read answers with everything after the cursor.
func (s *Server) Read(r *streamv1.ReadRequest, stream streamv1.StreamService_ReadServer) error {
	q, err := s.readingOf(r)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	s.meters.readers.Add(ctx, 1)
	defer s.meters.readers.Add(ctx, -1)
	q.send = stream.Send
	err = q.run(ctx)
	switch {
	case errors.Is(err, errDone):
		return nil
	case errors.Is(err, errTooSlow):
		s.meters.cut.Add(ctx, 1)
	}
	return err
}

func (s *Server) readingOf(r *streamv1.ReadRequest) (*reading, error) {
	scope, err := scopeOf(r.GetStream(), r.GetFamily())
	if err != nil {
		return nil, err
	}
	cursor, err := cursorOf("from_sequence", r.GetFromSequence())
	if err != nil {
		return nil, err
	}
	recorded, err := cursorOf("recorded_sequence", r.GetRecordedSequence())
	if err != nil {
		return nil, err
	}
	if err := checkRun(r.GetRunId()); err != nil {
		return nil, err
	}
	q := &reading{server: s, scope: scope, historyOnly: r.GetHistoryOnly(), recorded: recorded}
	switch {
	case r.GetEveryRun() && r.GetRunId() != "":
		return nil, fault.New(fault.Invalid, "ID_INVALID", "run_id asks for one run and every_run for all; give one of them")
	case r.GetEveryRun():
		q.reader = chunklog.NewLasting(scope.Session, cursor)
	default:
		q.reader = chunklog.NewReader(scope.Session, r.GetRunId(), cursor)
	}
	return q, nil
}

// run never returns nil.
func (q *reading) run(ctx context.Context) error {
	if !q.historyOnly {
		q.feed = q.server.hub.Join(q.scope)
		defer q.feed.Leave()
	}
	if err := q.attach(ctx); err != nil {
		return err
	}
	for {
		err := q.follow(ctx)
		if !errors.Is(err, hub.ErrGap) {
			return err
		}
		if err := q.refill(ctx); err != nil {
			return err
		}
	}
}

// attach sends what is stored, then caught_up.
func (q *reading) attach(ctx context.Context) error {
	start := q.reader.Cursor()
	if err := q.replay(ctx); err != nil {
		return err
	}
	if err := q.account(ctx, start); err != nil {
		return err
	}
	return q.settle()
}

// replay sends what is stored after the cursor. Each page is read from the
// cursor's own record on: it proves that the cursor is of this log, and that
// retention has removed nothing behind it since.
func (q *reading) replay(ctx context.Context) error {
	for alone := false; ; {
		if q.closed() {
			return errClosing
		}
		cursor := q.reader.Cursor()
		after := cursor
		if cursor > 0 && !alone {
			after--
		}
		page, err := q.server.bus.History(ctx, q.scope, after)
		if err != nil {
			return err
		}
		if after < cursor && !chunklog.Proves(cursor, page.Records) {
			if err := q.checkCursor(ctx, page.Records); err != nil {
				return err
			}
		}
		if err := q.takeAll(ctx, page.Records); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		alone = q.reader.Cursor() == cursor // the record of the cursor fills a page
	}
}

func (q *reading) takeAll(ctx context.Context, records []*chunklog.Record) error {
	for i, record := range records {
		if q.reader.Hole(record) {
			if err := q.checkHole(ctx, records[i:]); err != nil {
				return err
			}
		}
		if err := q.take(record, false); err != nil {
			return err
		}
	}
	return nil
}

// checkCursor ends the reading when its cursor is of no use. stored is what
// follows it.
func (q *reading) checkCursor(ctx context.Context, stored []*chunklog.Record) error {
	cursor := chunklog.Cursor{Sequence: q.reader.Cursor(), Recorded: q.recorded}
	stand, astray, err := q.server.astray(ctx, q.scope, cursor, stored)
	if err != nil || !astray {
		return err
	}
	return q.finish(truncatedFrame(stand.From(stored)))
}

// checkHole ends the reading when it misses something before the first of rest.
func (q *reading) checkHole(ctx context.Context, rest []*chunklog.Record) error {
	stand, lost, err := q.server.lost(ctx, q.scope, q.reader, rest)
	if err != nil || !lost {
		return err
	}
	return q.finish(truncatedFrame(q.reader.From(stand, rest)))
}

// account ends the reading when the log does not have what the state service
// has recorded. start is where the reader has begun.
func (q *reading) account(ctx context.Context, start uint64) error {
	for q.recorded > 0 {
		stand, account, err := q.server.account(ctx, q.scope, q.reader, start, q.recorded)
		switch {
		case err != nil:
			return err
		case account == chunklog.Gone:
			return q.finish(truncatedFrame(stand.Floor))
		case account == chunklog.Stands:
			q.recorded = 0
			return nil
		}
		renewed, err := q.server.renew(ctx, q.scope.Stream, q.recorded)
		if err != nil {
			return err
		}
		if !renewed { // the log knows better: what it has told since is read, and that is that
			q.recorded = 0
			return q.replay(ctx)
		}
	}
	return nil
}

// settle tells the reader that it has all that was stored.
func (q *reading) settle() error {
	verdict, record := q.reader.Settle()
	switch verdict {
	case chunklog.End:
		return q.tell(verdict, record)
	case chunklog.CaughtUp:
		if q.historyOnly {
			return q.finish(caughtUpFrame(q.reader.Cursor()))
		}
		return q.send(caughtUpFrame(q.reader.Cursor()))
	case chunklog.Skip, chunklog.Give, chunklog.Rewound: // it was told before
	}
	return nil
}

// follow sends what is appended until records may be missing: hub.ErrGap.
func (q *reading) follow(ctx context.Context) error {
	var batch [liveBatch]*chunklog.Record
	for {
		n, err := q.feed.Next(ctx, batch[:])
		if err != nil {
			return q.cut(err)
		}
		q.live = true
		for _, record := range batch[:n] {
			if q.reader.Missed(record) {
				return hub.ErrGap
			}
			if err := q.take(record, true); err != nil {
				return err
			}
		}
		clear(batch[:n]) // an idle reader keeps no record alive
	}
}

// cut says what an error of the feed means to the reader.
func (q *reading) cut(err error) error {
	switch {
	case errors.Is(err, hub.ErrClosed):
		return errClosing
	case errors.Is(err, hub.ErrLagged) && q.live:
		return errTooSlow
	case errors.Is(err, hub.ErrLagged):
		return hub.ErrGap
	}
	return err
}

// refill sends what is stored after the cursor to a reader that has been live,
// and is patient with a log that is away.
func (q *reading) refill(ctx context.Context) error {
	q.live = false
	pause := refillFirstPause
	for attempt := 1; ; attempt++ {
		err := q.replay(ctx)
		if err == nil {
			return q.settle()
		}
		if !errors.Is(err, fault.Unavailable) || errors.Is(err, errClosing) || attempt == refillAttempts {
			return err
		}
		if err := q.pause(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, refillLastPause)
	}
}

func (q *reading) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-q.server.hub.Closed():
		return errClosing
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *reading) closed() bool {
	select {
	case <-q.server.hub.Closed():
		return true
	default:
		return false
	}
}

// take shows the record to the heart and tells the reader what follows.
func (q *reading) take(record *chunklog.Record, live bool) error {
	return q.tell(q.reader.Take(record, live), record)
}

func (q *reading) tell(verdict chunklog.Verdict, record *chunklog.Record) error {
	if verdict == chunklog.Skip {
		return nil
	}
	frame, err := frameOf(record)
	if err != nil {
		return err
	}
	if verdict == chunklog.End {
		return q.finish(frame)
	}
	return q.send(frame)
}

// finish sends the terminal frame.
func (q *reading) finish(frame *streamv1.ReadResponse) error {
	if err := q.send(frame); err != nil {
		return err
	}
	return errDone
}
