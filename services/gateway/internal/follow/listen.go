package follow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fanout"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

// readLog sends the records of the log. It returns nil if the state service may have news, and
// errReadSteps after a record that does not fit.
func (f *Follow) readLog(ctx context.Context) error {
	if f.request.StoredOnly {
		if err := f.readStoredRecords(ctx); err != nil {
			return err
		}
		return f.sendCaughtUp()
	}
	if f.reader == nil {
		f.reader = f.Live.Join(ctx, f.root.ref, f.root.cursor)
		f.isLive = f.reader.Live
		f.missedRecords = f.reader.Position != f.root.cursor || f.isLive && f.request.Family
	}
	if f.missedRecords {
		if err := f.readStoredRecords(ctx); err != nil {
			return err
		}
	}
	if f.isLive {
		if err := f.sendCaughtUp(); err != nil {
			return err
		}
	}
	return f.readLive(ctx)
}

// readStoredRecords sends the stored records of the log. An unavailable log counts as empty.
func (f *Follow) readStoredRecords(ctx context.Context) error {
	var taken error
	f.replaying = true
	defer func() { f.replaying = false }()
	err := f.Live.ReadStored(ctx, f.root.ref, f.root.cursor, f.request.Family && !f.caughtUp, func(r *live.Record) error {
		taken = f.takeRecord(ctx, r)
		return taken
	})
	switch {
	case taken != nil:
		return taken
	case ctx.Err() != nil:
		return ctx.Err()
	}
	f.missedRecords, f.isLive = false, err == nil
	if err := f.resolveClaims(ctx); err != nil {
		return err
	}
	if err := f.sendCaughtUp(); err != nil {
		return err
	}
	return f.flush()
}

// readLive sends live records until the state service may have news.
func (f *Follow) readLive(ctx context.Context) error {
	f.sharesFrames = true
	defer func() { f.sharesFrames = false }()
	poll := time.NewTimer(f.pollInterval())
	defer poll.Stop()
	for {
		n, wake, err := f.reader.Take(f.batch[:])
		switch {
		case errors.Is(err, fanout.ErrLagged):
			f.missedRecords = true
			return errReadSteps
		case err != nil:
			return err
		case n > 0:
			if err := f.takeRecords(ctx, f.batch[:n]); err != nil {
				return err
			}
			f.heartbeat.Reset(f.HeartbeatInterval)
			poll.Reset(f.pollInterval())
			continue
		}
		select {
		case <-wake:
		case <-poll.C:
			if f.hasChanged(ctx) {
				return nil
			}
			poll.Reset(f.pollInterval())
		case <-f.heartbeat.C:
			if err := f.sink.Heartbeat(); err != nil {
				return err
			}
			f.heartbeat.Reset(f.HeartbeatInterval)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pollInterval returns how long the log may be silent before the state service is polled.
func (f *Follow) pollInterval() time.Duration {
	at := position.Of(f.root.cursor)
	inStep := at.N > 0 && at.N <= position.MaxChunks
	if f.isLive && (inStep || f.run.GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING) {
		return busyPoll
	}
	return idlePoll
}

// hasChanged reports whether the state service may have news. All readers of the session share the
// request. A waiting run is always read: it does not change its session.
func (f *Follow) hasChanged(ctx context.Context) bool {
	if conversation.Waiting(f.run) || f.awaiting { // its sub-agents do not change the session either
		return true
	}
	version, err := f.reader.ShareAnswer(f.Sessions.Policy.Now(), idlePoll/2, func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, sharedReadTimeout)
		defer cancel()
		got, err := f.Sessions.Sessions.GetSession(ctx, &statev1.GetSessionRequest{Tenant: f.request.Tenant, SessionId: f.request.SessionID})
		return got.GetSession().GetVersion(), err
	})
	return err != nil || version != f.version // on errors, the read of the steps retries
}

// sharedReadTimeout limits a request for which other readers wait.
const sharedReadTimeout = 2 * time.Second

// takeRecords takes records and flushes. It clears the slice, so that an idle reader retains no
// record.
func (f *Follow) takeRecords(ctx context.Context, records []*live.Record) error {
	defer clear(records)
	for _, r := range records {
		err := f.takeRecord(ctx, r)
		if err == nil {
			continue
		}
		if flushed := f.flush(); flushed != nil {
			return flushed
		}
		return err
	}
	return f.flush()
}

func (f *Follow) takeRecord(ctx context.Context, r *live.Record) error {
	switch {
	case r.Changed: // steps are noted by their own records
		return nil
	case r.CaughtUp:
		f.isLive = true
		if err := f.resolveClaims(ctx); err != nil {
			return err
		}
		return f.sendCaughtUp()
	case r.Down:
		f.isLive = false
		return f.sendCaughtUp()
	case r.Session != "":
		return f.takeDescendant(ctx, r)
	}
	err := f.root.takeRecord(r)
	if errors.Is(err, errReadSteps) {
		f.missedRecords = true
	}
	return err
}

// resolveClaims reads the steps again if the stored records end with those of a claim that the last read did not know. It
// has begun since, or the database has lost it.
func (f *Follow) resolveClaims(ctx context.Context) error {
	for _, t := range f.descendants {
		if t.claims.hasUnknown() {
			if err := t.resync(ctx); err != nil {
				return err
			}
		}
	}
	if !f.root.claims.hasUnknown() {
		return nil
	}
	f.missedRecords = true
	return errNewClaim
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enqueue buffers a frame for the sink, and flushes a full buffer.
func (f *Follow) enqueue(next *frame.Frame) error {
	f.buffered = append(f.buffered, next)
	f.bufferedBytes += next.Size() + frameBytes
	if f.bufferedBytes < flushBytes {
		return nil
	}
	return f.flush()
}

// flush gives the buffered frames to the sink.
func (f *Follow) flush() error {
	if len(f.buffered) == 0 {
		return nil
	}
	frames := f.buffered
	f.buffered, f.bufferedBytes = nil, 0
	err := f.write(func() error {
		for i, next := range frames {
			frames[i] = nil
			if err := f.sink.Frame(next); err != nil {
				return err
			}
		}
		return f.sink.Flush()
	})
	if !errors.Is(err, errStalled) {
		f.buffered = frames[:0]
	}
	return err
}

const (
	// firstStall is how long a write may take before the reader releases what it holds alone. Each
	// stall costs a read of the state service, so the time doubles, up to lastStall.
	firstStall = 250 * time.Millisecond
	lastStall  = 8 * time.Second
)

// write writes to the client. A catching-up reader holds a page of steps or a call to the stream
// service alone, and releases it with errStalled if the client stalls. A live reader holds only
// shared records, so it may block.
func (f *Follow) write(write func() error) error {
	if f.sharesFrames {
		return write()
	}
	writing := make(chan error, 1) // buffered: the follow may receive it later
	go func() {
		err := errPanicked
		defer func() {
			if p := recover(); p != nil { // only the server's own goroutines recover from panics
				f.Live.Log.Error("the sink of a stream panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
			writing <- err
		}()
		err = write()
	}()
	timer := time.NewTimer(f.stallAfter)
	defer timer.Stop()
	select {
	case err := <-writing:
		return err
	case <-timer.C:
	}
	f.slowWrite, f.stallAfter = writing, min(2*f.stallAfter, lastStall)
	return errStalled
}

// awaitSlowWrite waits until the client has read the written frames. The reader then continues from
// its cursor.
func (f *Follow) awaitSlowWrite(ctx context.Context) error {
	select {
	case err := <-f.slowWrite:
		f.slowWrite = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Follow) sendCaughtUp() error {
	var err error
	if !f.caughtUp {
		f.caughtUp = true
		err = f.enqueue(frame.CaughtUp(f.root.cursor))
	}
	switch {
	case err != nil:
		return err
	case f.request.StoredOnly:
		return errDone
	default:
		return f.flush()
	}
}
