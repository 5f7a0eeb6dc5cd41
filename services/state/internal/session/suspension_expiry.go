package session

import "maps"

// expiry returns when a suspended session expires; 0 for never. A parent outlives its
// local children, since its end would end them: it does not expire while a child is active
// or never expires. Remote children do not count, since their end may never be reported.
func (s *Suspension) expiry() Millis {
	if s == nil || s.ExpiresAt == 0 {
		return 0
	}
	at := s.ExpiresAt
	for _, until := range s.ChildExpiries {
		if until == 0 {
			return 0
		}
		at = max(at, until)
	}
	return at
}

// withChildExpiry returns a copy of the suspension with a new expiry for a local child, and
// false if nothing changes or the child is not awaited. until is the child's ExpiresAt.
// A child that stops without a suspension keeps its parent for another KeepFor.
func (s *Suspension) withChildExpiry(childID string, status Status, until Millis, changed bool, now Millis) (*Suspension, bool) {
	if _, waits := s.awaitedChildren()[childID]; !waits || s.ExpiresAt == 0 {
		return s, false
	}
	switch {
	case status == Active:
		until = 0
	case status.Suspended():
	case changed:
		until = now + s.KeepFor
	default:
		return s, false
	}
	if before, known := s.ChildExpiries[childID]; known && before == until {
		return s, false
	}
	updated := *s
	updated.ChildExpiries = maps.Clone(s.ChildExpiries)
	updated.setChildExpiry(childID, until)
	return &updated, true
}

func (s *Suspension) setChildExpiry(childID string, until Millis) {
	if s.ChildExpiries == nil {
		s.ChildExpiries = map[string]Millis{}
	}
	s.ChildExpiries[childID] = until
}
