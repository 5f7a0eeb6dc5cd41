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

// Sink receives the frames of a follow, one call at a time. An error ends the follow, and To
// returns it unchanged. A sink may block as long as its client is slow.
type Sink interface {
	// Frame takes the next frame, which other readers share.
	Frame(f *frame.Frame) error
	// Flush is called when no frame is buffered behind the last one, and when the buffer is full.
	Flush() error
	// Heartbeat is called after each HeartbeatInterval without a frame.
	Heartbeat() error
}

// Follower begins follows. It may be used by many goroutines.
type Follower struct {
	Sessions          *conversation.Reader
	Live              *live.Hub
	HeartbeatInterval time.Duration // above 0

	stepReads  gate // limits concurrent reads of steps
	largePages gate // limits held large pages
}

// Request describes a follow.
type Request struct {
	Tenant    string
	SessionID string
	RunID     string // the follow ends with this run; "" for the newest run
	OnlyRun   bool   // omit other runs
	Family    bool   // include the sessions below a root
	LiveBelow bool   // include only the live records of the sessions below a root
	After     int64  // the reader has everything up to this position
	// SeenLive is a position inside an attempt that the reader saw live; 0 for none. The step of the
	// attempt is repeated as it was live if the log is complete, else as stored.
	SeenLive   int64
	StoredOnly bool // end after the existing chunks
	// NewRun: the request has just begun the run. The log cannot have records of it that the database has lost.
	NewRun bool
}

// Follow is one reader's view of a session, for one use by one goroutine.
type Follow struct {
	*Follower
	request     Request
	run         *statev1.Run // the follow ends with this run
	sink        Sink
	root        *track
	descendants map[string]*track // by session

	upToDate      bool         // nothing is stored behind the cursor, so the first read is skipped
	reader        *live.Reader // nil until live records are needed
	missedRecords bool         // the log may have records that the ring lacks
	replaying     bool         // the records come from the stored log
	isLive        bool         // the log delivers live records
	caughtUp      bool         // caught-up was sent
	awaiting      bool         // the run awaits sub-agents, or is about to
	ending        bool         // the end of the run was read
	version       int64        // of the session at the last read
	heartbeat     *time.Timer

	buffered      []*frame.Frame // not yet given to the sink
	bufferedBytes int
	sharesFrames  bool          // other readers hold the same frames: see write
	stallAfter    time.Duration // duration of a write after which the client counts as stalled
	slowWrite     chan error    // result of a write beyond stallAfter; nil for none

	// batch is here and not on the stack of a waiting reader. Stacks grow by powers of two, and
	// batch would double it.
	batch [liveBatch]*live.Record
}

const (
	// liveBatch is the number of records taken from the ring at once.
	liveBatch = 16
	// flushBytes limits the buffered frames. Each counts frameBytes for the names and ids in its JSON.
	flushBytes = 48 << 10
	frameBytes = 160
	// idlePoll is the polling interval of the state service while nothing is live, busyPoll while a
	// run is executing silently.
	idlePoll = time.Second
	busyPoll = 5 * time.Second
	// firstPause and lastPause are the backoff while state and log disagree.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

var (
	errDone      = errors.New("the follow has ended")
	errReadSteps = errors.New("the state service may have newer steps")
	// errNewClaim: the log has records of a claim that the last read did not know.
	errNewClaim = errors.New("the session may have another claim")
	// errStalled: the client does not read. The write counts as done, and the next write waits for
	// awaitSlowWrite.
	errStalled  = errors.New("the client does not read")
	errPanicked = errors.New("the sink panicked")
)

// Begin loads the session, the run and the first stored steps behind Request.After. NotFound (SESSION_NOT_FOUND,
// RUN_NOT_FOUND).
func (f *Follower) Begin(ctx context.Context, r Request) (*Follow, error) {
	first, err := f.listSteps(ctx, r.Tenant, r.SessionID, lastCompleteStep(r.After))
	if err != nil {
		return nil, err
	}
	run := first.GetCurrentRun()
	if r.RunID != "" && r.RunID != run.GetRunId() {
		if run, err = f.Sessions.Run(ctx, r.Tenant, &statev1.Run{SessionId: r.SessionID, RunId: r.RunID}); err != nil {
			return nil, err
		}
	}
	if run == nil && !r.StoredOnly {
		return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run")
	}
	follow := f.FollowRun(r, first.GetSession(), run)
	if follow.root.step == lastCompleteStep(r.After) { // otherwise the run alone is sent, from a later step
		follow.root.firstPage = first
	}
	return follow, nil
}

// FollowRun is Begin with a loaded session and run.
func (f *Follower) FollowRun(r Request, session *statev1.Session, run *statev1.Run) *Follow {
	after := r.After
	switch {
	case r.OnlyRun && conversation.Waiting(run):
		after = session.GetPosition()
	case r.OnlyRun:
		after = max(after, run.GetStartPosition())
	}
	follow := &Follow{Follower: f, request: r, run: run, descendants: map[string]*track{}}
	follow.root = &track{follow: follow, ref: Ref(session), cursor: after, step: lastCompleteStep(after), delivered: r.After}
	follow.root.know(session)
	if after == session.GetPosition() && run != nil && !hasEnded(run) {
		follow.upToDate = true
		if step := position.Of(after).Step; after >= position.Committed(step) {
			follow.root.step = step
		}
	}
	return follow
}

// Ref returns the reference of a session's live log.
func Ref(s *statev1.Session) *streamv2.StreamRef {
	root := s.GetRootSessionId()
	if root == "" {
		root = s.GetSessionId()
	}
	return &streamv2.StreamRef{Tenant: s.GetTenant(), RootSessionId: root, SessionId: s.GetSessionId()}
}

// Ends reports whether the follow ends with what is stored: its run has ended, and awaits no sub-agent.
func (f *Follow) Ends() bool { return hasEnded(f.run) && !awaitsSubAgents(f.run) }

// Run returns the run that ends the follow, as last loaded.
func (f *Follow) Run() *statev1.Run { return f.run }

// To sends the frames to the sink. It returns nil after the terminal frame, or after caught_up if
// the request is StoredOnly. Else it returns the sink's error, ctx's error, or a lasting fault of the
// state service.
func (f *Follow) To(ctx context.Context, sink Sink) error {
	f.sink, f.heartbeat, f.stallAfter = sink, time.NewTimer(f.HeartbeatInterval), firstStall
	defer f.heartbeat.Stop()
	err := f.alternate(retry.Stream(ctx))
	if f.reader != nil {
		f.reader.Leave()
	}
	if f.slowWrite != nil { // the sink belongs to the caller when To returns
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

// alternate reads stored steps and live records in turn.
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
		case err == nil || errors.Is(err, errNewClaim) || errors.Is(err, errReadSteps) && f.root.cursor != before:
			pause = firstPause
		case !errors.Is(err, errReadSteps):
			return err
		default: // nothing new: state and log disagree for a moment
			if err := sleep(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// readSteps sends the stored steps, updates the run, and ends the follow if the run has ended. An end is sent only if the
// steps were read after it.
func (f *Follow) readSteps(ctx context.Context) error {
	if f.upToDate {
		f.upToDate = false
		f.root.firstPage = nil
		return nil
	}
	for {
		page, err := f.root.readSteps(ctx)
		if err != nil {
			return err
		}
		f.version = page.GetSession().GetVersion()
		if current := page.GetCurrentRun(); f.run != nil && current.GetRunId() == f.run.GetRunId() {
			f.run = current
		} else if f.run != nil && !hasEnded(f.run) {
			if f.run, err = f.runWithOutput(ctx, f.run); err != nil {
				return err
			}
			if hasEnded(f.run) { // since the steps were read
				continue
			}
		}
		if !hasEnded(f.run) || f.request.StoredOnly && !f.request.OnlyRun {
			return nil
		}
		if goesOn, err := f.awaitSubAgents(ctx); goesOn || err != nil {
			return err
		}
		return f.sendEnd(ctx)
	}
}

// awaitSubAgents reports whether the follow goes on after the end of its run: another run continues
// the message, or will when the sub-agents have ended or a callback has come. If all of them wait for a client, it does not.
func (f *Follow) awaitSubAgents(ctx context.Context) (bool, error) {
	f.awaiting = false
	if !awaitsSubAgents(f.run) || f.request.OnlyRun || f.request.StoredOnly {
		return false, nil
	}
	session, err := f.Sessions.SessionOfMessage(ctx, f.request.Tenant, f.request.SessionID, f.run.GetRunId())
	switch {
	case err != nil:
		return false, err
	case session.GetCurrentRun().GetRunId() == f.run.GetRunId():
		f.awaiting = conversation.AwaitsOthers(session)
		return f.awaiting, nil
	case len(session.GetMessageRuns()) == 0:
		return false, nil
	}
	next := session.GetMessageRuns()[len(session.GetMessageRuns())-1]
	switch {
	case !f.continueWith(next):
		return false, nil
	case hasEnded(next):
		return true, errReadSteps // its steps may be newer than the ones just read
	}
	return true, nil
}

// continueWith makes the run the end of the follow if it continues the message after sub-agents.
func (f *Follow) continueWith(next *statev1.Run) bool {
	sameMessage := next.GetTurn() > f.run.GetTurn() && next.GetMessageId() == f.run.GetMessageId()
	continues := awaitsSubAgents(f.run) && !f.request.OnlyRun && sameMessage
	if continues {
		f.run = next
	}
	return continues
}

func awaitsSubAgents(run *statev1.Run) bool {
	return run.GetStatus() == statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN
}

// sendEnd sends the end of the run from the state service, with its chunk if that is behind the
// cursor.
func (f *Follow) sendEnd(ctx context.Context) error {
	f.ending = true
	at := f.run.GetEndPosition()
	if f.run.GetFinishStep() == 0 && at > f.root.cursor {
		if err := f.root.sendEndBefore(ctx, f.run); err != nil {
			return err
		}
		return f.root.sendEndOutsideStep(ctx, f.run)
	}
	return f.root.send(frame.Terminal("", max(at, f.root.cursor), terminalOf(f.run)))
}

func hasEnded(run *statev1.Run) bool {
	return run != nil && !conversation.Executing(run) && !conversation.Waiting(run)
}

func (f *Follow) runWithOutput(ctx context.Context, run *statev1.Run) (*statev1.Run, error) {
	var got *statev1.Run
	err := retry.Do(ctx, f.Sessions.Policy, func() (err error) {
		got, err = f.Sessions.Run(ctx, f.request.Tenant, run)
		return err
	})
	return got, err
}

// maxInFlight limits the result of StepInFlight, in bytes. Followers read the rest.
const maxInFlight = 16 << 20

// StepInFlight returns the chunks of the session's step in flight, from its beginning, as far as the
// log has them. It returns none if the log is unavailable.
func (f *Follower) StepInFlight(ctx context.Context, s *statev1.Session) []*frame.Frame {
	var frames []*frame.Frame
	var last int64 // sequence of the last frame
	size := 0
	_ = f.Live.ReadStored(ctx, Ref(s), s.GetPosition(), false, func(r *live.Record) error { // an unavailable log has none
		begins := r.Attempt != nil && r.Attempt.GetStands() == s.GetPosition()
		switch {
		case r.Epoch != 0 && r.Epoch != s.GetEpoch(): // of an earlier claim, or of one that the database has lost
			return nil
		case r.Boundary != nil || size > maxInFlight || !begins && r.First != last+1:
			return errDone // another step, or a gap
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

// gate limits concurrency to gateSlots. The zero value is ready.
type gate struct {
	once  sync.Once
	slots chan struct{}
}

// gateSlots is low because a response takes three times its size while it is decoded, and a step
// may have several megabytes.
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
