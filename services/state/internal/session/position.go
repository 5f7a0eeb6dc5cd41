package session

import "github.com/holdfast-run/holdfast/pkg/position"

// endOutsideStep gives the run that ends outside a step its end, and moves the session's
// position there. The end stands behind every attempt of the last claim, and counts
// as a claim itself: so the next claim and the next end come behind it.
func (s *Session) endOutsideStep(r *Run) {
	if s.Claims >= position.MaxClaims {
		// No number is left for what follows at this step. The session gives the step's
		// number up, so that positions go on to rise. The step was not committed: the
		// run does not count it.
		s.StepCount++
		s.Claims = 0
		s.Position = position.Ended(s.StepCount)
	} else {
		s.Position = position.OutsideStep(s.StepCount+1, s.Claims)
		s.Claims++
	}
	r.EndPosition = s.Position
}

// resetToCheckpoint makes the checkpoint the session's newest; nil for none. What was shown
// behind it is gone. The claims stay: the next attempt at the step in flight is a new
// one.
func (s *Session) resetToCheckpoint(newest *Checkpoint) {
	s.CheckpointID, s.Position = "", 0
	if newest != nil {
		s.CheckpointID, s.Position = newest.ID, position.Ended(newest.Step)
	}
}
