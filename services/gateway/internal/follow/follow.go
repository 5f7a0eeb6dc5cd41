package follow

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Sink takes the frames of a follow, in one call at a time. An error ends the follow, and To
// returns it unchanged. A sink may block for as long as its client is slow.
type Sink interface {
	// Frame takes the next frame. Other readers share it.
	Frame(f *frame.Frame) error
	// Flush is called when no frame waits behind the last one, and every few frames.
	Flush() error
	// Beat is called after each Follower.Beat without a frame.
	Beat() error
}

// Follower begins follows. It may be used by many goroutines.
type Follower struct {
	Sessions *conversation.Reader
	Live     *live.Hub
	Beat     time.Duration // above 0

	stepReads  gate // of pages of steps
	largePages gate // holding a large one
}

// Request says what to follow.
type Request struct {
	Tenant    string
	SessionID string
	RunID     string // whose end ends the follow; "": that of the newest run
	Only      bool   // nothing of other runs
	Family    bool   // the sessions below a root as well
	After     int64  // the reader has everything up to this position
	// Shown is a position in an attempt that the reader has seen. The step of the attempt is
	// given as it was shown, not as it is stored, where the log has all of it; 0 for none.
	Shown  int64
	Stored bool // end when everything is given that exists now
}

// Follow is one reader's view of a session. One goroutine uses it, once.
type Follow struct {
	*Follower
	request     Request
	run         *statev1.Run // whose end ends the follow
	sink        Sink
	root        *track
	descendants map[string]*track // by session

	upToDate      bool         // the first question is answered: nothing is stored behind the cursor
	reader        *live.Reader // nil before the first live record is wanted
	missedRecords bool         // the log may have stored records that the ring has not
	isLive        bool         // live records come
	caughtUp      bool         // the reader was told so
	version       int64        // of the session when it was asked for last
	heartbeat     *time.Timer

	buffered      []*frame.Frame // for the sink
	bufferedBytes int            // of them
	sharesFrames  bool           // what the reader waits with is shared: see write
	stallAfter    time.Duration  // how long the next write may take before the reader is stalled
	slowWrite     chan error     // of a write that takes longer; nil for none

	// batch lies here and not on the stack of a reader that waits, which it would
	// double: stacks grow by powers of two.
	batch [liveBatch]*live.Record
}

const (
	// liveBatch is how much is taken from the ring at once.
	liveBatch = 16
	// flushFrames and flushBytes are what may wait for a sink.
	flushFrames = 64
	flushBytes  = 32 << 10
	// idlePoll is how often the state service is asked while nothing is live, and busyPoll
	// while a run is at work and says nothing.
	idlePoll = time.Second
	busyPoll = 5 * time.Second
	// firstPause and lastPause are the waits while the services disagree.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

var (
	errDone      = errors.New("the follow has ended")
	errReadSteps = errors.New("ask the state service")
	// errStalled: the client takes nothing. What waits for it was written as far as the
	// follow is concerned, and nothing may be written before unblock.
	errStalled  = errors.New("the client takes nothing")
	errPanicked = errors.New("the sink panicked")
)

// Begin finds what is to be followed. NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
func (f *Follower) Begin(ctx context.Context, r Request) (*Follow, error) {
	session, run, err := f.Sessions.Session(ctx, r.Tenant, r.SessionID)
	if err != nil {
		return nil, err
	}
	if r.RunID != "" && r.RunID != run.GetRunId() {
		if run, err = f.Sessions.Run(ctx, r.Tenant, &statev1.Run{SessionId: r.SessionID, RunId: r.RunID}); err != nil {
			return nil, err
		}
	}
	if run == nil && !r.Stored {
		return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run")
	}
	return f.Of(r, session, run), nil
}

// Of is Begin for who knows the session and the run.
func (f *Follower) Of(r Request, session *statev1.Session, run *statev1.Run) *Follow {
	after := r.After
	switch {
	case r.Only && conversation.Waiting(run):
		after = session.GetPosition()
	case r.Only:
		after = max(after, run.GetStartPosition())
	}
	follow := &Follow{Follower: f, request: r, run: run, descendants: map[string]*track{}}
	follow.root = &track{follow: follow, ref: Ref(session), cursor: after, step: lastWholeStep(after), delivered: r.After}
	if after == session.GetPosition() && run != nil && !hasEnded(run) {
		follow.upToDate = true
		if step := position.Of(after).Step; after >= position.Committed(step) {
			follow.root.step = step
		}
	}
	return follow
}

// Ref names the live log of a session.
func Ref(s *statev1.Session) *streamv2.StreamRef {
	root := s.GetRootSessionId()
	if root == "" {
		root = s.GetSessionId()
	}
	return &streamv2.StreamRef{Tenant: s.GetTenant(), RootSessionId: root, SessionId: s.GetSessionId()}
}

// Run is the run whose end ends the follow, as it was known last.
func (f *Follow) Run() *statev1.Run { return f.run }

// Cursor is the position up to which the reader has everything.
func (f *Follow) Cursor() int64 { return f.root.cursor }

// To gives the frames to the sink. It returns nil after the terminal frame, or, for a
// request of what is stored, after caught_up; the sink's error; ctx's error; and the fault
// of the state service when it does not pass.
func (f *Follow) To(ctx context.Context, sink Sink) error {
	f.sink, f.heartbeat, f.stallAfter = sink, time.NewTimer(f.Beat), firstStall
	defer f.heartbeat.Stop()
	err := f.alternate(retry.Stream(ctx))
	if f.reader != nil {
		f.reader.Leave()
	}
	if f.slowWrite != nil { // the sink is the caller's again when To returns
		if written := <-f.slowWrite; written != nil && errors.Is(err, errDone) {
			return written
		}
	}
	if errors.Is(err, errDone) {
		f.sharesFrames = true
		return f.flush()
	}
	return err
}

// alternate asks and listens in turns.
func (f *Follow) alternate(ctx context.Context) error {
	pause := firstPause
	for {
		before := f.root.cursor
		err := f.readSteps(ctx)
		f.missedRecords = f.missedRecords || f.root.cursor != before
		if err == nil {
			err = f.readLog(ctx)
		}
		switch {
		case errors.Is(err, errStalled):
			if err := f.awaitSlowWrite(ctx); err != nil {
				return err
			}
		case err == nil || errors.Is(err, errReadSteps) && f.root.cursor != before:
			pause = firstPause
		case !errors.Is(err, errReadSteps):
			return err
		default: // the answer has not helped: the services disagree for a moment
			if err := sleep(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// readSteps gives the stored steps and updates the run.
func (f *Follow) readSteps(ctx context.Context) error {
	if f.upToDate {
		f.upToDate = false
		return nil
	}
	page, err := f.root.readSteps(ctx)
	if err != nil {
		return err
	}
	f.version = page.GetSession().GetVersion()
	return f.updateRun(ctx, page)
}

// updateRun updates the run. If the run has ended, it ends the follow.
func (f *Follow) updateRun(ctx context.Context, page *statev1.ListStepsResponse) error {
	if f.run == nil {
		return nil
	}
	if current := page.GetCurrentRun(); current.GetRunId() == f.run.GetRunId() {
		f.run = current
	} else if !hasEnded(f.run) {
		now, err := f.runWithOutput(ctx, f.run)
		if err != nil {
			return err
		}
		f.run = now
	}
	if !hasEnded(f.run) || f.request.Stored && !f.request.Only {
		return nil
	}
	return f.sendEnd(ctx)
}

// sendEnd gives the end of the run from the state service, with its chunk if that lies behind
// the cursor.
func (f *Follow) sendEnd(ctx context.Context) error {
	at := f.run.GetEndPosition()
	if f.run.GetFinishStep() == 0 && at > f.root.cursor {
		return f.root.endOutsideStep(ctx, f.run)
	}
	return f.root.give(frame.Terminal("", max(at, f.root.cursor), terminalOf(f.run)))
}

// hasEnded reports whether the run has ended.
func hasEnded(run *statev1.Run) bool {
	return run != nil && !conversation.Executing(run) && !conversation.Waiting(run)
}

// runWithOutput gives the run with its output.
func (f *Follow) runWithOutput(ctx context.Context, run *statev1.Run) (*statev1.Run, error) {
	var got *statev1.Run
	err := retry.Do(ctx, f.Sessions.Policy, func() (err error) {
		got, err = f.Sessions.Run(ctx, f.request.Tenant, run)
		return err
	})
	return got, err
}

// maxInFlight bounds the answer of InFlight in bytes. A follower reads the rest.
const maxInFlight = 16 << 20

// InFlight gives the chunks of the step in flight of a session, as far as the log has them
// from the step's beginning on. A log that cannot be read has none.
func (f *Follower) InFlight(ctx context.Context, s *statev1.Session) []*frame.Frame {
	var frames []*frame.Frame
	var last int64 // the sequence of the last frame
	size := 0
	_ = f.Live.ReadStored(ctx, Ref(s), s.GetPosition(), false, func(r *live.Record) error { // see above
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

// gate bounds how many readers do something at a time. The zero value is ready.
type gate struct {
	once  sync.Once
	slots chan struct{}
}

// gateSlots is how many readers a gate lets through. An answer takes three times its size while
// it is decoded, and a step may have several megabytes.
const gateSlots = 4

func (g *gate) all() chan struct{} {
	g.once.Do(func() { g.slots = make(chan struct{}, gateSlots) })
	return g.slots
}

// enter waits for a slot, or returns ctx's error.
func (g *gate) enter(ctx context.Context) error {
	select {
	case g.all() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) tryEnter() bool {
	select {
	case g.all() <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g *gate) leave() { <-g.all() }
