package follow

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

// maxInFlight bounds the answer of InFlight in bytes. A follower reads the rest.
const maxInFlight = 16 << 20

// InFlight gives the chunks of the step in flight of a session, as far as the log has them
// from the step's beginning on. A log that cannot be read has none.
func (f *Follower) InFlight(ctx context.Context, s *statev1.Session) []*frame.Frame {
	var frames []*frame.Frame
	var last int64 // the sequence of the last frame
	size := 0
	_ = f.Live.Stored(ctx, Ref(s), s.GetPosition(), false, func(r *live.Record) error { // see above
		begins := r.Attempt != nil && r.Attempt.GetStands() == s.GetPosition()
		switch {
		case r.Boundary != nil || size > maxInFlight || !begins && r.First != last+1:
			return errDone // what follows is of another step, or a part is gone
		case begins:
			frames = nil
		}
		frames, last = append(frames, r.Frames...), r.Last
		for _, f := range r.Frames {
			size += f.Size()
		}
		return nil
	})
	return frames
}
