package server

import (
	"context"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// cursorReads is how many pages of the log are searched for what became of a
// cursor's record, so that a cursor that somebody made up costs no more.
const cursorReads = 64

// astray reports whether a reader of the scope cannot go on from a cursor that
// nothing stored proves. stored is the page that follows it.
func (s *Server) astray(ctx context.Context, scope bus.Scope, c chunklog.Cursor, stored []*chunklog.Record) (chunklog.Stand, bool, error) {
	info, err := s.bus.Info(ctx, scope.Stream)
	if err != nil {
		return chunklog.Stand{}, false, err
	}
	stand := standOf(info)
	if c.Family = scope.Family; !chunklog.Astray(c, stored, stand) {
		return stand, false, nil
	}
	if c.Sequence <= stand.Floor || c.Sequence > stand.Top {
		return stand, true, nil
	}
	known, err := s.known(ctx, scope, c, stand)
	return stand, !known, err
}

// known reports whether the family knows a cursor above the floor: its record is
// that of another session, or what tells of it stands behind a page full of
// records of others.
func (s *Server) known(ctx context.Context, scope bus.Scope, c chunklog.Cursor, stand chunklog.Stand) (bool, error) {
	scope.Family, c.Family = true, true
	after := c.Sequence - 1
	for range cursorReads {
		page, err := s.bus.History(ctx, scope, after)
		if err != nil {
			return false, err
		}
		if chunklog.Proves(c.Sequence, page.Records) || !chunklog.Astray(c, page.Records, stand) {
			return true, nil
		}
		if !page.More {
			return false, nil
		}
		after = lastOf(page, after)
	}
	return false, nil
}

// lost reports whether the reader misses something before the first of rest.
func (s *Server) lost(ctx context.Context, scope bus.Scope, r *chunklog.Reader, rest []*chunklog.Record) (chunklog.Stand, bool, error) {
	stream := scope.Stream
	stream.Session = rest[0].Session
	info, err := s.bus.Info(ctx, stream)
	if err != nil {
		return chunklog.Stand{}, false, err
	}
	stand := standOf(info)
	return stand, r.Lost(stand, rest), nil
}

// account says what became of a recorded sequence, to a reader that was shown
// everything after start.
func (s *Server) account(
	ctx context.Context, scope bus.Scope, r *chunklog.Reader, start, recorded uint64,
) (chunklog.Stand, chunklog.Account, error) {
	first, last := r.Shown()
	if last >= recorded && (start > 0 || first <= recorded) {
		return chunklog.Stand{}, chunklog.Stands, nil // the usual case
	}
	if last < recorded && recorded <= start {
		tail, err := s.last(ctx, scope.Stream)
		if err != nil || tail >= recorded {
			return chunklog.Stand{}, chunklog.Stands, err
		}
		last = tail
	}
	info, err := s.bus.Info(ctx, scope.Stream)
	if err != nil {
		return chunklog.Stand{}, 0, err
	}
	stand := standOf(info)
	return stand, chunklog.AccountFor(recorded, last, start, stand), nil
}

// last returns the sequence of the stream's last record, 0 for none.
func (s *Server) last(ctx context.Context, stream bus.Stream) (uint64, error) {
	record, err := s.bus.Last(ctx, stream)
	if err != nil || record == nil {
		return 0, err
	}
	return record.Sequence, nil
}

// lastOfFamily returns the sequence of the family's last record after the
// cursor, the cursor when there is none. It closes in on it from both sides.
func (s *Server) lastOfFamily(ctx context.Context, scope bus.Scope, cursor uint64) (uint64, error) {
	page, err := s.bus.History(ctx, scope, cursor)
	if err != nil {
		return 0, err
	}
	last := lastOf(page, cursor)
	if !page.More {
		return last, nil
	}
	info, err := s.bus.Info(ctx, scope.Stream)
	if err != nil {
		return 0, err
	}
	for top := info.Top; last < top; { // the family's last is in [last, top], or newer
		middle := last + (top-last)/2
		if page, err = s.bus.History(ctx, scope, middle); err != nil {
			return 0, err
		}
		if len(page.Records) == 0 {
			top = middle
			continue
		}
		if last = lastOf(page, last); !page.More {
			return last, nil
		}
	}
	return last, nil
}

func lastOf(page bus.Page, otherwise uint64) uint64 {
	if n := len(page.Records); n > 0 {
		return page.Records[n-1].Sequence
	}
	return otherwise
}
