package follow

import (
	"context"
	"errors"
	"math"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/step"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

// track is the reader's position in one session.
type track struct {
	follow  *Follow
	session string // a session below the root; "" for the root
	ref     *streamv2.StreamRef

	firstPage     *statev1.ListStepsResponse // the steps behind the cursor, read by Begin; nil once they are taken
	cursor        int64                      // the reader has everything up to here
	delivered     int64                      // the reader has nothing behind this
	step          int32                      // the last step that the reader has completely
	lastRun       *statev1.Run               // run of the last delivered step
	logIncomplete bool                       // the log lost a part of the step in flight
	lateReads     int                        // how often the log lacked the boundary of the next step

	claims claims
}

// lastCompleteStep returns the last step that a reader at the position certainly has completely.
func lastCompleteStep(at int64) int32 {
	step := position.Of(at).Step
	if at < position.Ended(step) {
		step--
	}
	return max(step, 0)
}

// rewind voids everything behind the position.
func (t *track) rewind(at int64) error {
	t.cursor = at
	if t.delivered <= at {
		return nil
	}
	t.delivered = at
	return t.follow.enqueue(frame.Rewound(t.session, at))
}

func (t *track) wants(run string) bool {
	f := t.follow
	return t.session != "" || !f.request.OnlyRun || run == f.run.GetRunId()
}

// takeRecord takes a record of the session's log. errReadSteps: it does not fit.
func (t *track) takeRecord(r *live.Record) error {
	switch {
	case r.Last <= t.cursor:
		return nil
	case t.follow.replaying || !t.follow.isLive: // a stored record
		if isValid, err := t.claims.check(r, t.follow); !isValid {
			return err
		}
	case !t.claims.accept(r):
		return nil
	}
	switch {
	case t.continues(r):
	case r.Attempt != nil:
		valid := r.Attempt.GetStands()
		if valid > t.cursor && !t.logIncomplete {
			t.logIncomplete = true
			return errReadSteps
		}
		if valid < t.cursor {
			if err := t.rewind(valid); err != nil {
				return err
			}
			t.step = position.LastStep(valid)
		}
	case r.Boundary != nil || !t.logIncomplete:
		t.logIncomplete = true
		return errReadSteps
	default:
		return nil // a later record of an incomplete attempt
	}
	t.logIncomplete = false
	return t.sendRecord(r)
}

// continues reports whether the record follows the cursor without a gap.
func (t *track) continues(r *live.Record) bool {
	if b := r.Boundary; b != nil {
		// 0 means that the log lacks a part of the step. It is also the cursor of a reader without anything.
		incomplete := b.GetStepCommitted() != nil && b.GetLast() == 0
		return b.GetLast() == t.cursor && !incomplete
	}
	at, first := position.Of(t.cursor), position.Of(r.First)
	return at.Step == first.Step && at.Attempt == first.Attempt && r.First <= t.cursor+1
}

// sendRecord sends the part of a record behind the cursor.
func (t *track) sendRecord(r *live.Record) error {
	if err := t.sendFrames(r.Frames); err != nil {
		return err
	}
	t.cursor = max(t.cursor, r.Last)
	if r.Boundary.GetStepCommitted() != nil {
		t.step = position.Of(r.Last).Step
	}
	return nil
}

func (t *track) sendFrames(frames []*frame.Frame) error {
	for _, f := range frames {
		if err := t.sendNew(f); err != nil {
			return err
		}
	}
	return nil
}

// sendNew sends a frame if it is behind the cursor.
func (t *track) sendNew(f *frame.Frame) error {
	if f.Sequence <= t.cursor {
		return nil
	}
	return t.send(f)
}

// send sends a frame if the reader wants it. errDone: it was the end.
func (t *track) send(f *frame.Frame) error {
	t.cursor = max(t.cursor, f.Sequence)
	if t.session == "" && !t.follow.ending {
		if t.follow.awaiting && f.Terminal != nil {
			return errReadSteps // another run may continue the message
		}
		t.follow.awaiting = t.follow.awaiting || f.Chunk.GetRunSuspended().GetReason() == step.SuspendedChildren
	}
	end := f.Terminal != nil && t.session == "" && f.Terminal.GetRunId() == t.follow.run.GetRunId()
	if f.Chunk != nil && !t.wants(f.Chunk.GetAgentId()) || f.Terminal != nil && !end {
		return nil
	}
	t.delivered = t.cursor
	if f.Session != t.session { // a frame made for this reader alone
		f.Session = t.session
	}
	err := t.follow.enqueue(f)
	if end && (err == nil || errors.Is(err, errStalled)) {
		return errDone
	}
	return err
}

func (f *Follow) takeDescendant(ctx context.Context, r *live.Record) error {
	if !f.request.Family && !f.request.LiveBelow || f.request.OnlyRun {
		return nil
	}
	t := f.descendants[r.Session]
	if t == nil {
		var err error
		if t, err = f.followDescendant(ctx, r); err != nil {
			return err
		}
	}
	err := t.takeRecord(r)
	if errors.Is(err, errReadSteps) {
		return t.resync(ctx)
	}
	return err
}

// followDescendant begins a session below the root. A new session is sent live. Another session is
// sent from the beginning of its run, if the run is executing.
func (f *Follow) followDescendant(ctx context.Context, r *live.Record) (*track, error) {
	t := &track{follow: f, session: r.Session, claims: unknownClaims, ref: &streamv2.StreamRef{
		Tenant: f.request.Tenant, RootSessionId: f.root.ref.GetRootSessionId(), SessionId: r.Session,
	}}
	f.descendants[r.Session] = t
	if f.request.LiveBelow {
		t.cursor = r.First - 1
		if r.Boundary != nil {
			t.cursor = r.Boundary.GetLast()
		}
		t.step, t.delivered = lastCompleteStep(t.cursor), t.cursor
		return t, nil
	}
	if f.caughtUp && r.Attempt != nil && r.Attempt.GetStands() == 0 && r.Attempt.GetReason() == "" && position.Of(r.First).N == 1 {
		return t, nil
	}
	session, run, err := f.Sessions.Session(ctx, f.request.Tenant, r.Session)
	switch {
	case errors.Is(err, fault.NotFound):
		t.cursor = math.MaxInt64 // ignore its records
		return t, nil
	case err != nil:
		return nil, err
	case !f.caughtUp && !conversation.Executing(run):
		t.cursor = session.GetPosition()
		t.step = lastCompleteStep(t.cursor)
		t.know(session)
		return t, nil
	}
	t.know(session)
	t.step, t.delivered = lastCompleteStep(run.GetStartPosition()), math.MaxInt64
	if err := t.rewind(run.GetStartPosition()); err != nil {
		return nil, err
	}
	return t, t.resync(ctx)
}

// resync catches up with a session below the root. The next attempt or the step brings the chunks
// that the log lacks.
func (t *track) resync(ctx context.Context) error {
	stale, err := t.readAll(ctx)
	if err == nil && stale {
		_, err = t.readAll(ctx)
	}
	if errors.Is(err, fault.NotFound) { // deleted meanwhile
		t.cursor = math.MaxInt64
		return nil
	}
	return err
}

// readAll reads the stored steps and then the stored records. It reports whether the state service may have news since.
func (t *track) readAll(ctx context.Context) (stale bool, err error) {
	if _, err := t.readSteps(ctx); err != nil {
		return false, err
	}
	former := t.follow.replaying
	t.follow.replaying = true
	defer func() { t.follow.replaying = former }()
	_ = t.follow.Live.ReadStored(ctx, t.ref, t.cursor, false, func(r *live.Record) error { // an unavailable log has none
		if err = t.takeRecord(r); errors.Is(err, errReadSteps) {
			stale = true
			err = nil
			return errReadSteps
		}
		return err
	})
	return stale || t.claims.hasUnknown(), err
}
