package livelog

import "github.com/holdfast-run/holdfast/pkg/position"

// Survey finds which attempts were replaced by a later one at the same step. See all
// records of a window first, then ask. The zero Survey is empty.
type Survey struct {
	current  map[string]position.Position // by session: the attempt that was seen last
	replaced map[stepOf]int32             // the latest attempt, at steps that have several
}

type stepOf struct {
	session string
	step    int32
}

// See takes the record of the session whose last frame has the sequence. The records of
// a session come in order.
func (s *Survey) See(session string, last int64) {
	if !shownLive(last) {
		return
	}
	p := position.Of(last)
	former := s.current[session]
	if former.Step == p.Step && former.Attempt < p.Attempt {
		if s.replaced == nil {
			s.replaced = map[stepOf]int32{}
		}
		s.replaced[stepOf{session, p.Step}] = p.Attempt
	}
	if s.current == nil {
		s.current = map[string]position.Position{}
	}
	s.current[session] = p
}

// Replaced reports whether the record is of an attempt that a later one has replaced.
func (s *Survey) Replaced(session string, last int64) bool {
	p := position.Of(last)
	return shownLive(last) && p.Attempt < s.replaced[stepOf{session, p.Step}]
}
