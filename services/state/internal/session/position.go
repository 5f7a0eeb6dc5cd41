package session

import "github.com/holdfast-run/holdfast/pkg/position"

// endOutsideStep ends the run at a position behind every attempt of the last claim, and moves
// the session there. The end counts as a claim, so the next claim and the next end lie
// behind it.
func (s *Session) endOutsideStep(r *Run) {
	if s.Claims >= position.MaxClaims {
		// The numbers of this step are used up. Skip the step so that positions keep rising. The run does not count a
		// step without a commit.
		s.StepCount++
		s.Claims = 0
		s.Position = position.Ended(s.StepCount)
	} else {
		s.Position = position.OutsideStep(s.StepCount+1, s.Claims)
		s.Claims++
	}
	r.EndPosition = s.Position
}

// resetToCheckpoint makes the checkpoint the session's newest; nil for none. The claims stay,
// so the next attempt at the step in flight gets a new number.
func (s *Session) resetToCheckpoint(newest *Checkpoint) {
	s.CheckpointID, s.Position = "", 0
	if newest != nil {
		s.CheckpointID, s.Position = newest.ID, position.Ended(newest.Step)
	}
}
