package follow

import (
	"context"
	"errors"
	"math"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

// track is where the reader stands in one session.
type track struct {
	follow *Follow
	name   string // of a session below the root; "" for the root
	ref    *streamv2.StreamRef

	cursor int64        // the reader has everything up to here
	held   int64        // the reader holds nothing behind this
	step   int32        // the last step that the reader has as a whole
	last   *statev1.Run // of the last stored step that was delivered
	blind  bool         // the log has lost a part of the step in flight
}

// wholeStep is the last step that a reader at the position has as a whole, for sure.
func wholeStep(at int64) int32 {
	step := position.Of(at).Step
	if at < position.Ended(step) {
		step--
	}
	return max(step, 0)
}

// rewound takes back what is behind the position.
func (t *track) rewound(at int64) error {
	t.cursor = at
	if t.held <= at {
		return nil
	}
	t.held = at
	return t.follow.put(frame.Rewound(t.name, at))
}

// wants reports whether the reader wants the chunks of the run.
func (t *track) wants(run string) bool {
	f := t.follow
	return t.name != "" || !f.request.Only || run == f.run.GetRunId()
}

// take takes a record of the session's log. errAsk: it does not fit.
func (t *track) take(r *live.Record) error {
	switch {
	case r.Last <= t.cursor:
		return nil
	case t.continues(r):
	case r.Attempt != nil:
		stands := r.Attempt.GetStands()
		if stands > t.cursor && !t.blind {
			t.blind = true
			return errAsk
		}
		if stands < t.cursor {
			if err := t.rewound(stands); err != nil {
				return err
			}
			t.step = wholeStep(stands)
		}
	case r.Boundary != nil || !t.blind:
		t.blind = true
		return errAsk
	default:
		return nil // of an attempt of which a part is lost
	}
	t.blind = false
	return t.giveRecord(r)
}

// continues reports whether the record follows what the reader has without a gap.
func (t *track) continues(r *live.Record) bool {
	if r.Boundary != nil {
		return r.Boundary.GetLast() == t.cursor
	}
	at, first := position.Of(t.cursor), position.Of(r.First)
	return at.Step == first.Step && at.Attempt == first.Attempt && r.First <= t.cursor+1
}

// giveRecord gives the part of a record that lies behind the cursor.
func (t *track) giveRecord(r *live.Record) error {
	if err := t.giveAll(r.Frames); err != nil {
		return err
	}
	t.cursor = max(t.cursor, r.Last)
	if r.Boundary.GetStepCommitted() != nil {
		t.step = position.Of(r.Last).Step
	}
	return nil
}

// giveAll gives the frames behind the cursor.
func (t *track) giveAll(frames []*frame.Frame) error {
	for _, f := range frames {
		if err := t.giveNew(f); err != nil {
			return err
		}
	}
	return nil
}

// giveNew gives a frame if it lies behind the cursor.
func (t *track) giveNew(f *frame.Frame) error {
	if f.Sequence <= t.cursor {
		return nil
	}
	return t.give(f)
}

// give gives a frame that the reader wants. errDone: it was the end.
func (t *track) give(f *frame.Frame) error {
	t.cursor = max(t.cursor, f.Sequence)
	end := f.Terminal != nil && t.name == "" && f.Terminal.GetRunId() == t.follow.run.GetRunId()
	if f.Chunk != nil && !t.wants(f.Chunk.GetAgentId()) || f.Terminal != nil && !end {
		return nil
	}
	t.held = t.cursor
	if f.Session != t.name { // rendered, or read for this session alone: nobody shares it
		f.Session = t.name
	}
	err := t.follow.put(f)
	if end && (err == nil || errors.Is(err, errStalled)) {
		return errDone
	}
	return err
}

// takeBelow takes a record of a session below the root.
func (f *Follow) takeBelow(ctx context.Context, r *live.Record) error {
	if !f.request.Family || f.request.Only {
		return nil
	}
	t := f.below[r.Session]
	if t == nil {
		var err error
		if t, err = f.adopt(ctx, r); err != nil {
			return err
		}
	}
	err := t.take(r)
	if errors.Is(err, errAsk) {
		return t.resync(ctx)
	}
	return err
}

// adopt begins a session below the root. A new session is given as it comes. Any other
// session is given from the beginning of its run, if the run is still at work.
func (f *Follow) adopt(ctx context.Context, r *live.Record) (*track, error) {
	t := &track{follow: f, name: r.Session, ref: &streamv2.StreamRef{
		Tenant: f.request.Tenant, RootSessionId: f.root.ref.GetRootSessionId(), SessionId: r.Session,
	}}
	f.below[r.Session] = t
	if f.caughtUp && r.Attempt != nil && r.Attempt.GetStands() == 0 && r.Attempt.GetReason() == "" && position.Of(r.First).N == 1 {
		return t, nil
	}
	session, run, err := f.Sessions.Session(ctx, f.request.Tenant, r.Session)
	switch {
	case errors.Is(err, fault.NotFound):
		t.cursor = math.MaxInt64 // nothing of it is told
		return t, nil
	case err != nil:
		return nil, err
	case !f.caughtUp && !conversation.Executing(run):
		t.cursor = session.GetPosition()
		t.step = wholeStep(t.cursor)
		return t, nil
	}
	t.step, t.held = wholeStep(run.GetStartPosition()), math.MaxInt64
	if err := t.rewound(run.GetStartPosition()); err != nil {
		return nil, err
	}
	return t, t.resync(ctx)
}

// resync brings the reader up to date with a session below the root. What the log does not
// have comes with the next attempt or with the step.
func (t *track) resync(ctx context.Context) error {
	if _, err := t.ask(ctx); err != nil {
		if errors.Is(err, fault.NotFound) { // deleted meanwhile
			t.cursor = math.MaxInt64
			return nil
		}
		return err
	}
	var taken error
	_ = t.follow.Live.Stored(ctx, t.ref, t.cursor, false, func(r *live.Record) error { // see above
		if taken = t.take(r); errors.Is(taken, errAsk) {
			taken = nil
			return errAsk
		}
		return taken
	})
	return taken
}
