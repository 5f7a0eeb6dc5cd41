package follow

import (
	"context"
	"errors"
	"math"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

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
