package server

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

const (
	// pageMessages is the number of messages that a reader reads from the log at once.
	pageMessages = 64
	// liveBatch is the number of messages that a reader takes from the feed at once.
	liveBatch = 8
	// maxLags is how often a reader may fall behind the feed without catching up.
	maxLags = 8
)

// reading is one open Read. It belongs to the goroutine of the call.
type reading struct {
	log    log.Log
	scope  log.Scope
	from   int64  // the reader has its session's frames up to here
	cursor uint64 // offset of the last examined message
	send   func(*streamv2.ReadResponse) error
	lagged metric.Int64Counter
}

// Read sends stored records and then new ones.
func (s *Server) Read(r *streamv2.ReadRequest, stream streamv2.StreamService_ReadServer) error {
	scope, err := scopeOf(r)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	s.meters.readers.Add(ctx, 1)
	defer s.meters.readers.Add(ctx, -1)
	q := &reading{log: s.log, scope: scope, from: r.GetFromSequence(), send: stream.Send, lagged: s.meters.lagged}
	if r.GetStoredOnly() {
		if err := q.replay(ctx); err != nil {
			return err
		}
		return q.send(caughtUpFrame())
	}
	err = q.run(ctx)
	if errors.Is(err, fault.Exhausted) {
		s.meters.slow.Add(ctx, 1)
	}
	return err
}

// run never returns nil.
func (q *reading) run(ctx context.Context) error {
	feed := q.log.Follow(q.scope)
	defer feed.Leave()
	if err := q.replay(ctx); err != nil {
		return err
	}
	if err := q.send(caughtUpFrame()); err != nil {
		return err
	}
	for lags := 0; ; {
		caughtUp, err := q.follow(ctx, feed)
		if caughtUp {
			lags = 0
		}
		lags++
		switch {
		case errors.Is(err, log.ErrBroken):
			return log.Unavailable("read", err)
		case !errors.Is(err, log.ErrLagged):
			return err
		case lags == maxLags:
			return fault.New(fault.Exhausted, "READER_TOO_SLOW",
				"the reader does not keep up with what is appended; read again from the last sequence")
		}
		q.lagged.Add(ctx, 1)
		if err := q.replay(ctx); err != nil {
			return err
		}
	}
}

// replay sends the stored messages after the cursor, page by page, at the client's pace, without superseded
// attempts. Messages appended meanwhile come from the feed: otherwise a client slower than the writer would
// never reach the end.
func (q *reading) replay(ctx context.Context) error {
	if err := q.seek(ctx); err != nil {
		return err
	}
	first, attempts, end, err := q.survey(ctx)
	for page := first; err == nil; page, err = q.page(ctx, q.cursor) {
		for i, m := range page.Messages {
			page.Messages[i] = nil // a reader that waits for its client must retain little memory
			if m.Offset > end {
				return nil
			}
			q.cursor = m.Offset
			if err := q.deliver(m, attempts); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
	}
	return err
}

// survey scans the stored messages after the cursor. It returns their first page, their attempts, and the offset
// of the last one.
func (q *reading) survey(ctx context.Context) (first log.Page, attempts livelog.AttemptSurvey, end uint64, err error) {
	attempts = livelog.AttemptSurvey{}
	first, err = q.page(ctx, q.cursor)
	for page := first; err == nil; page, err = q.page(ctx, end) {
		for _, m := range page.Messages {
			for body := m.Body; len(body) > 0; {
				_, rest, last := splitRecord(body)
				attempts.Add(m.Session, last)
				body = rest
			}
			end = m.Offset
		}
		if !page.More {
			break
		}
	}
	return first, attempts, end, err
}

func (q *reading) page(ctx context.Context, after uint64) (log.Page, error) {
	return q.log.Page(ctx, q.scope, after, pageMessages)
}

// A resuming reader searches its cursor backwards from the end of the log, in growing distances.
const (
	firstDistance  = 64
	distanceGrowth = 8
	maxDistance    = 1 << 24
)

// seek moves a cursor at the beginning to a message that the reader already has, close to its first missing
// message. A session may have an hour of messages, and a reader usually needs the last moments.
func (q *reading) seek(ctx context.Context) error {
	if q.cursor > 0 || q.from == 0 || q.scope.Family {
		return nil
	}
	m, err := q.log.Last(ctx, q.scope.Stream)
	if err != nil || m == nil {
		return err
	}
	end := m.Offset
	for distance := uint64(firstDistance); m.Last > q.from; distance *= distanceGrowth {
		if distance >= end || distance > maxDistance {
			return nil
		}
		page, err := q.log.Page(ctx, q.scope, end-distance, 1)
		if err != nil || len(page.Messages) == 0 {
			return err
		}
		m = page.Messages[0]
	}
	q.cursor = m.Offset
	return nil
}

// follow sends new messages until the feed ends with an error. It reports whether the reader caught up
// meanwhile.
func (q *reading) follow(ctx context.Context, feed *log.Follower) (caughtUp bool, err error) {
	var batch [liveBatch]*log.Message
	for {
		n, err := feed.Next(ctx, batch[:])
		if err != nil {
			return caughtUp, err
		}
		for i, m := range batch[:n] {
			batch[i] = nil // an idle reader retains no message
			if m.Offset == 0 {
				changed := &streamv2.ReadResponse_Changed{Changed: &streamv2.Changed{SessionId: m.Session}}
				if err := q.send(&streamv2.ReadResponse{Frame: changed}); err != nil {
					return caughtUp, err
				}
				continue
			}
			if m.Offset <= q.cursor {
				continue
			}
			q.cursor = m.Offset
			if err := q.deliver(m, nil); err != nil {
				return caughtUp, err
			}
		}
		caughtUp = caughtUp || n < len(batch)
	}
}

// deliver sends the records of a message except known ones and superseded attempts.
func (q *reading) deliver(m *log.Message, attempts livelog.AttemptSurvey) error {
	body := m.Body
	if m.Session == q.scope.Session {
		if m.Last <= q.from {
			return nil
		}
		body = recordsAfter(body, q.from)
	}
	if body = withoutSuperseded(attempts, m.Session, body); len(body) == 0 {
		return nil
	}
	return q.send(frameOf(m.Session, m.Epoch, body))
}

// scopeOf checks the scope of a request: Invalid (ID_INVALID, SEQUENCE_INVALID).
func scopeOf(r *streamv2.ReadRequest) (log.Scope, error) {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return log.Scope{}, err
	}
	if r.GetFamily() && stream.Session != stream.Root {
		return log.Scope{}, fault.New(fault.Invalid, "ID_INVALID",
			"a family is read from its root: session_id and root_session_id differ")
	}
	if !position.Valid(r.GetFromSequence()) {
		return log.Scope{}, fault.New(fault.Invalid, "SEQUENCE_INVALID", "from_sequence is %d, which is not a position", r.GetFromSequence())
	}
	return log.Scope{Stream: stream, Family: r.GetFamily()}, nil
}

// Notify tells the open reads of a session about a change.
func (s *Server) Notify(ctx context.Context, r *streamv2.NotifyRequest) (*streamv2.NotifyResponse, error) {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return nil, err
	}
	return &streamv2.NotifyResponse{}, s.log.Notify(ctx, stream)
}

// maxErased bounds the streams of one Erase.
const maxErased = 200

// Erase removes the stored records of sessions.
func (s *Server) Erase(ctx context.Context, r *streamv2.EraseRequest) (*streamv2.EraseResponse, error) {
	if n := len(r.GetStreams()); n > maxErased {
		return nil, fault.New(fault.Invalid, "ID_INVALID", "the request names %d streams; send at most %d", n, maxErased)
	}
	for _, ref := range r.GetStreams() {
		if err := checkErased(ref); err != nil {
			return nil, err
		}
	}
	for _, ref := range r.GetStreams() {
		stream := log.Stream{Tenant: ref.GetTenant(), Root: ref.GetRootSessionId(), Session: ref.GetSessionId()}
		if err := s.log.Erase(ctx, stream); err != nil {
			return nil, err
		}
	}
	return &streamv2.EraseResponse{}, nil
}

// checkErased checks a reference whose session, or session and root, may be empty: Invalid (ID_INVALID).
func checkErased(ref *streamv2.StreamRef) error {
	filled := &streamv2.StreamRef{Tenant: ref.GetTenant(), RootSessionId: ref.GetRootSessionId(), SessionId: ref.GetSessionId()}
	if filled.GetSessionId() == "" {
		filled.SessionId = "all"
		if filled.GetRootSessionId() == "" {
			filled.RootSessionId = "all"
		}
	}
	_, err := streamOf(filled)
	return err
}
