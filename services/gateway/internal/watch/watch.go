// Package watch follows a session for the native interfaces: every record after
// a cursor, to the end of a run.
//
// Which run's end is waited for decides what is read:
//
//	run asked for, live        its records, to its terminal record
//	run asked for, over        its records that are stored
//	none asked for, live       the records of all runs, to the end of the newest
//	none asked for, all over   the stored records of all runs
//
// A run that waits behind the live one is waited for: the reader is told that it has
// caught up, and then nothing until the run begins, or is given up.
//
// A newest run that waits in the queue has written nothing: the last record is then
// the end of the run before, which is not the end of what the reader asked for. Where a
// run is over and its terminal
// record is not among what was read, because the reader has it already or the log has
// forgotten it, the end is told from what the state service knows.
package watch

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/turn"
)

// Watcher begins watches. It may be used by many goroutines.
type Watcher struct {
	Sessions *conversation.Reader
	Feed     *feed.Feed
	Turns    *turn.Waiter
}

// Request says what to watch.
type Request struct {
	Tenant    string
	SessionID string
	RunID     string // "": all runs, to the end of the newest
	After     int64  // a cursor; 0 from the beginning of the session or run
}

// Watch is one reader's view of a session. One goroutine uses it, once.
type Watch struct {
	watcher *Watcher
	session *statev1.Session
	run     *statev1.Run
	only    bool // the records of the run alone
	cursor  int64

	sink    feed.Sink
	start   int64 // where the run's records are looked for first; 0 when the reader has a cursor of its own
	floor   int64 // what was told to be gone below, when the run is read from there
	heard   bool  // a record of the run was seen
	ended   bool  // a terminal frame was given
	settled bool  // the run was settled at the last beat
	marked  bool  // the reader was told that it has caught up
}

// errAbove: read again from the cursor, which is above what is kept no more.
var errAbove = errors.New("read again from above what is gone")

// errOver ends a read: another frame than its terminal one has ended it.
var errOver = errors.New("the read is over")

// errQuiet: read the history from the cursor. The run is settled and its end has
// not come: the log has lost it, or the replica that is read from does not hear
// the log, which only a read that asks the log can tell.
var errQuiet = errors.New("ask the log for the end of a settled run")

// New finds what is to be watched. NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
func (w *Watcher) New(ctx context.Context, r Request) (*Watch, error) {
	session, run, err := w.Sessions.Session(ctx, r.Tenant, r.SessionID)
	if err != nil {
		return nil, err
	}
	watch := &Watch{watcher: w, session: session, run: run, cursor: r.After}
	if r.RunID != "" && r.RunID != run.GetRunId() {
		asked := &statev1.Run{SessionId: r.SessionID, RunId: r.RunID}
		if watch.run, err = w.Sessions.Run(ctx, r.Tenant, asked); err != nil {
			return nil, err
		}
	}
	if watch.run == nil {
		return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run")
	}
	if r.RunID != "" {
		watch.restrict()
	}
	return watch, nil
}

// restrict watches the run alone. A cursor before its start is its start.
func (w *Watch) restrict() {
	w.only = true
	if start := w.run.GetStartSequence(); w.cursor <= start {
		w.cursor, w.start = start, start
	}
}

// Newest watches the newest run alone; it is New for those who name no run and
// want one.
func (w *Watcher) Newest(ctx context.Context, r Request) (*Watch, error) {
	watch, err := w.New(ctx, r)
	if err != nil || watch.only {
		return watch, err
	}
	watch.restrict()
	return watch, nil
}

// Follow gives the frames to the sink until the end of the run, of which exactly one
// terminal frame tells. It returns as feed.Feed.Follow does.
func (w *Watch) Follow(ctx context.Context, sink feed.Sink) error {
	w.sink, ctx = sink, retry.Stream(ctx)
	if conversation.Waiting(w.run) {
		if err := w.await(ctx); err != nil {
			return err
		}
	}
	if conversation.GivenUp(w.run) {
		return w.tellEnd(ctx)
	}
	request := &streamv1.ReadRequest{HistoryOnly: true}
	if conversation.Live(w.run) {
		request = &streamv1.ReadRequest{RunId: w.run.GetRunId()}
	}
	if err := w.read(ctx, request); err != nil || w.ended {
		return err
	}
	return w.tellEnd(ctx)
}

// await waits for the turn of the run.
func (w *Watch) await(ctx context.Context) error {
	caughtUp := &streamv1.ReadResponse_CaughtUp{CaughtUp: &streamv1.CaughtUpFrame{Sequence: w.cursor}}
	if err := w.sink.Frame(feed.NewFrame("", &streamv1.ReadResponse{Frame: caughtUp})); err != nil {
		return err
	}
	if err := w.sink.Flush(); err != nil {
		return err
	}
	w.marked = true
	run, err := w.watcher.Turns.Await(ctx, w.session, w.run, w.sink.Beat)
	if err != nil {
		return err
	}
	w.run = run
	w.restrict()
	return nil
}

// read makes one read from the cursor on. When it returns nil and no terminal
// frame was given, the log has none.
func (w *Watch) read(ctx context.Context, r *streamv1.ReadRequest) error {
	r.Stream, r.Family, r.RecordedSequence = conversation.Stream(w.session), !w.only, w.session.GetStreamSequence()
	marks := !w.marked // the reader is told that it has caught up
	if w.only {
		r.RunId = w.run.GetRunId()
	}
	for {
		r.FromSequence = w.cursor
		err := w.watcher.Feed.Follow(ctx, r, &filter{w, ctx, marks, r.GetHistoryOnly()})
		switch {
		case errors.Is(err, errAbove):
		case errors.Is(err, errQuiet):
			r.HistoryOnly, marks = true, false
		case errors.Is(err, errOver):
			return nil
		default:
			return err
		}
	}
}

// filter stands between the feed and the reader's sink.
type filter struct {
	*Watch
	ctx     context.Context //nolint:containedctx // of the one read
	marks   bool
	history bool // the log is asked for what it has, and tells when that is all
}

func (f *filter) Flush() error { return f.sink.Flush() }

func (f *filter) Frame(frame *feed.Frame) error {
	f.settled = false
	f.cursor = feed.Cursor(frame.ReadResponse, f.cursor)
	switch kind := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		if f.only && kind.Chunk.GetChunk().GetAgentId() != f.run.GetRunId() {
			return nil
		}
		if f.floor > 0 && !f.heard && kind.Chunk.GetChunk().GetRunStarted() == nil && kind.Chunk.GetChunk().GetRunResumed() == nil {
			return f.truncate()
		}
		f.heard = true
	case *streamv1.ReadResponse_End:
		if kind.End.GetRunId() != f.run.GetRunId() {
			return nil
		}
		f.ended = true
		return f.sink.Frame(f.completed(frame, kind.End))
	case *streamv1.ReadResponse_Fail:
		if kind.Fail.GetRunId() != f.run.GetRunId() {
			return nil
		}
		f.ended = true
	case *streamv1.ReadResponse_Truncated:
		if f.olderThanTheRun() {
			f.floor = kind.Truncated.GetFloor()
			f.cursor, f.start = f.floor, 0
			return errAbove
		}
		f.ended = true
	case *streamv1.ReadResponse_CaughtUp:
		if !f.marks {
			return nil
		}
	}
	return f.sink.Frame(frame)
}

// truncate tells a reader who was given nothing of the run yet that its beginning
// is gone as well.
func (f *filter) truncate() error {
	f.ended = true
	err := f.sink.Frame(feed.NewFrame("", &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Truncated{Truncated: &streamv1.TruncatedFrame{Floor: f.floor}}}))
	if err == nil {
		err = f.sink.Flush()
	}
	if err == nil {
		err = errOver
	}
	return err
}

// olderThanTheRun reports whether the records that are gone may all be older
// than the run: nothing of it was seen, it still executes, and its start is only
// known as where the run before it had ended.
func (f *filter) olderThanTheRun() bool {
	if f.start == 0 || f.heard || f.cursor != f.start {
		return false
	}
	run, err := f.watcher.Sessions.Run(f.ctx, f.session.GetTenant(), f.run)
	return err == nil && conversation.Executing(run)
}

// completed puts back the output that was too large for the log.
func (f *filter) completed(frame *feed.Frame, end *streamv1.EndFrame) *feed.Frame {
	if !slices.Contains(end.GetEnd().GetOmitted(), "output") {
		return frame
	}
	run, err := f.watcher.Sessions.Run(f.ctx, f.session.GetTenant(), f.run)
	if err != nil {
		return frame // the reader finds it in the status of the session
	}
	return endFrame(end.GetSequence(), run)
}

// Beat passes the heartbeat on and looks after a run whose end the reader has had
// before, or does not get: a settled run has its end in the log.
func (f *filter) Beat() error {
	if err := f.sink.Beat(); err != nil || f.history {
		return err
	}
	run, err := f.watcher.Sessions.Run(f.ctx, f.session.GetTenant(), f.run)
	if err != nil || !run.GetSettled() {
		return nil //nolint:nilerr // the next beat asks again
	}
	if f.settled {
		return errQuiet
	}
	f.settled = true
	return nil
}

// tellEnd tells the end of a run from the state service.
func (w *Watch) tellEnd(ctx context.Context) error {
	run, err := w.watcher.Sessions.Run(ctx, w.session.GetTenant(), w.run)
	if err != nil {
		return err
	}
	if conversation.Executing(run) {
		return fault.New(fault.Unavailable, "STREAM_DROPPED", "the run goes on; connect again")
	}
	if err := w.sink.Frame(endFrame(w.cursor, run)); err != nil {
		return err
	}
	return w.sink.Flush()
}

func endFrame(sequence int64, run *statev1.Run) *feed.Frame {
	if run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED {
		fail := &streamv1.Fail{Error: run.GetFailure().GetError(), Code: run.GetFailure().GetCode()}
		return feed.NewFrame("", &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Fail{Fail: &streamv1.FailFrame{Sequence: sequence, RunId: run.GetRunId(), Fail: fail}}})
	}
	end := &streamv1.End{Status: endStatus(run.GetStatus()), Output: run.GetOutput()}
	return feed.NewFrame("", &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_End{End: &streamv1.EndFrame{Sequence: sequence, RunId: run.GetRunId(), End: end}}})
}

func endStatus(s statev1.RunStatus) streamv1.EndStatus {
	switch s {
	case statev1.RunStatus_RUN_STATUS_COMPLETED:
		return streamv1.EndStatus_END_STATUS_COMPLETED
	case statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		return streamv1.EndStatus_END_STATUS_INTERRUPTED
	default:
		return streamv1.EndStatus_END_STATUS_PAUSED
	}
}

// StatusName names how a run ended as the native wire does.
func StatusName(s streamv1.EndStatus) string {
	switch s {
	case streamv1.EndStatus_END_STATUS_COMPLETED:
		return "completed"
	case streamv1.EndStatus_END_STATUS_INTERRUPTED:
		return "interrupted"
	default:
		return "paused"
	}
}
