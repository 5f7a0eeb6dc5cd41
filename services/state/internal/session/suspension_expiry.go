package session

import "maps"

// expiry returns when a suspended session may be given up: not before its
// children, since its end would be theirs; 0 for never. A local child that is
// active, or is itself kept for ever, holds it for as long; that one's end is
// certain to be told. Of a remote child the end may never be heard of, and so it
// holds nobody.
func (s *Suspension) expiry() Millis {
	if s == nil || s.ExpiresAt == 0 {
		return 0
	}
	at := s.ExpiresAt
	for _, until := range s.Holds {
		if until == 0 {
			return 0
		}
		at = max(at, until)
	}
	return at
}

// withChildExpiry returns a copy of the suspension that knows until when a local child
// holds it, and false when it knows that already or does not wait for the child.
// until is the time of the child's own expiry; news says that the status is
// news. A child that stops for another reason than a suspension leaves its parent
// as much time as that was to be kept at first.
func (s *Suspension) withChildExpiry(childID string, status Status, until Millis, news bool, now Millis) (*Suspension, bool) {
	if _, waits := s.awaitedChildren()[childID]; !waits || s.ExpiresAt == 0 {
		return s, false
	}
	switch {
	case status == Active:
		until = 0
	case status.Suspended():
	case news:
		until = now + s.Keep
	default:
		return s, false
	}
	if before, known := s.Holds[childID]; known && before == until {
		return s, false
	}
	held := *s
	held.Holds = maps.Clone(s.Holds)
	held.setChildExpiry(childID, until)
	return &held, true
}

func (s *Suspension) setChildExpiry(childID string, until Millis) {
	if s.Holds == nil {
		s.Holds = map[string]Millis{}
	}
	s.Holds[childID] = until
}
