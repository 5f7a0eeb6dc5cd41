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

// listen gives the records of the log. It returns nil when the state service is to be asked
// because nothing comes, and errAsk when something came that does not fit.
func (f *Follow) listen(ctx context.Context) error {
	if f.request.Stored {
		if err := f.stored(ctx); err != nil {
			return err
		}
		return f.catchUp()
	}
	if f.reader == nil {
		f.join(ctx)
	}
	if f.missed {
		if err := f.stored(ctx); err != nil {
			return err
		}
	}
	if f.up {
		if err := f.catchUp(); err != nil {
			return err
		}
	}
	return f.follow(ctx)
}

// join joins the readers of the log.
func (f *Follow) join(ctx context.Context) {
	f.reader = f.Live.Join(ctx, f.root.ref, f.root.cursor)
	f.up = f.reader.Up
	f.missed = f.reader.At != f.root.cursor || f.up && f.request.Family
}

// stored gives the stored records of the log. A log that cannot be read counts as empty.
func (f *Follow) stored(ctx context.Context) error {
	var taken error
	err := f.Live.Stored(ctx, f.root.ref, f.root.cursor, f.request.Family && !f.caughtUp, func(r *live.Record) error {
		taken = f.take(ctx, r)
		return taken
	})
	switch {
	case taken != nil:
		return taken
	case ctx.Err() != nil:
		return ctx.Err()
	}
	f.missed, f.up = false, err == nil
	if err := f.catchUp(); err != nil {
		return err
	}
	return f.flush()
}

// follow gives live records until the state service has to be asked.
func (f *Follow) follow(ctx context.Context) error {
	f.live = true
	defer func() { f.live = false }()
	poll := time.NewTimer(f.poll())
	defer poll.Stop()
	for {
		n, wake, err := f.reader.Take(f.batch[:])
		switch {
		case errors.Is(err, fanout.ErrLagged):
			f.missed = true
			return errAsk
		case err != nil:
			return err
		case n > 0:
			if err := f.takeAll(ctx, f.batch[:n]); err != nil {
				return err
			}
			f.beat.Reset(f.Beat)
			poll.Reset(f.poll())
			continue
		}
		select {
		case <-wake:
		case <-poll.C:
			if f.changed(ctx) {
				return nil
			}
			poll.Reset(f.poll())
		case <-f.beat.C:
			if err := f.sink.Beat(); err != nil {
				return err
			}
			f.beat.Reset(f.Beat)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poll is how long the log may be silent before the state service is asked.
func (f *Follow) poll() time.Duration {
	if at := position.Of(f.root.cursor); f.up && (at.N > 0 && at.N <= position.MaxChunks || f.run.GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING) {
		return busyPoll
	}
	return idlePoll
}

// changed reports whether the state service may have news. All readers of the session
// share the question. A waiting run is asked for itself: the session does not mention it.
func (f *Follow) changed(ctx context.Context) bool {
	if conversation.Waiting(f.run) {
		return true
	}
	version, err := f.reader.Share(f.Sessions.Policy.Now(), idlePoll/2, func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		got, err := f.Sessions.Sessions.GetSession(ctx, &statev1.GetSessionRequest{Tenant: f.request.Tenant, SessionId: f.request.SessionID})
		return got.GetSession().GetVersion(), err
	})
	return err != nil || version != f.version // the question for the steps is retried
}

// askTimeout bounds a question that others wait for.
const askTimeout = 2 * time.Second

// takeAll takes records and flushes. An idle reader keeps none of them alive.
func (f *Follow) takeAll(ctx context.Context, records []*live.Record) error {
	defer clear(records)
	for _, r := range records {
		err := f.take(ctx, r)
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

// take takes a record of the log.
func (f *Follow) take(ctx context.Context, r *live.Record) error {
	switch {
	case r.CaughtUp:
		f.up = true
		return f.catchUp()
	case r.Down:
		f.up = false
		return f.catchUp()
	case r.Session != "":
		return f.takeBelow(ctx, r)
	}
	err := f.root.take(r)
	if errors.Is(err, errAsk) {
		f.missed = true
	}
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// put keeps a frame for the sink. What waits is handed over every few frames.
func (f *Follow) put(next *frame.Frame) error {
	f.waiting, f.bytes = append(f.waiting, next), f.bytes+next.Size()
	if len(f.waiting) < flushFrames && f.bytes < flushBytes {
		return nil
	}
	return f.flush()
}

// flush hands the sink what waits for it.
func (f *Follow) flush() error {
	if len(f.waiting) == 0 {
		return nil
	}
	frames := f.waiting
	f.waiting, f.bytes = nil, 0
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
		f.waiting = frames[:0]
	}
	return err
}

const (
	// firstStall is how long a client may take for a write before its reader lets go of what
	// it holds alone, and lastStall how long a client that was slow before. Each time costs a
	// question to the state service, so the time doubles.
	firstStall = 250 * time.Millisecond
	lastStall  = 8 * time.Second
)

// write writes to the client. A reader that catches up holds a page of steps, or a call to the
// stream service, for itself. It gives them up when the client takes nothing for a while:
// errStalled. What a live reader holds it shares with the others.
func (f *Follow) write(write func() error) error {
	if f.live {
		return write()
	}
	writing := make(chan error, 1) // nobody may wait for it yet
	go func() {
		err := errPanicked
		defer func() {
			if p := recover(); p != nil { // a server recovers from panics of its own goroutines only
				f.Live.Log.Error("the sink of a stream panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
			writing <- err
		}()
		err = write()
	}()
	timer := time.NewTimer(f.stalled)
	defer timer.Stop()
	select {
	case err := <-writing:
		return err
	case <-timer.C:
	}
	f.writing, f.stalled = writing, min(2*f.stalled, lastStall)
	return errStalled
}

// unblock waits until the client has taken what was written. The reader then goes on from its
// cursor.
func (f *Follow) unblock(ctx context.Context) error {
	select {
	case err := <-f.writing:
		f.writing = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// catchUp tells the reader, once, that what comes now is new.
func (f *Follow) catchUp() error {
	var err error
	if !f.caughtUp {
		f.caughtUp = true
		err = f.put(frame.CaughtUp(f.root.cursor))
	}
	switch {
	case err != nil:
		return err
	case f.request.Stored:
		return errDone
	default:
		return f.flush()
	}
}
