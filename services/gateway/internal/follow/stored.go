package follow

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

const (
	// pageSteps is the number of steps per request. A page is also limited to 4 MiB.
	pageSteps = 20
	// smallPage is the size, in bytes, up to which a page does not count as large.
	smallPage = 128 << 10
	// pieceBytes limits the texts of a rendered step.
	pieceBytes = 16 << 10
	// maxLateReads is how many more times a reader reads a step whose boundary the log lacks: the executor publishes
	// the boundary after the commit. With the pauses between them, the reader waits for up to 750 ms.
	maxLateReads = 4
)

// readSteps delivers the stored steps behind the cursor. It returns the last page, without the
// steps.
func (t *track) readSteps(ctx context.Context) (*statev1.ListStepsResponse, error) {
	for {
		page, err := t.deliverPage(ctx)
		if err == nil {
			t.know(page.GetSession())
		}
		if err != nil || !page.GetHasMore() {
			return page, err
		}
	}
}

func (t *track) deliverPage(ctx context.Context) (*statev1.ListStepsResponse, error) {
	page, release, err := t.readPage(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := t.rewindToStored(page); err != nil {
		return nil, err
	}
	for _, step := range page.GetSteps() {
		if err := t.deliverStep(ctx, page, step); err != nil {
			return nil, err
		}
	}
	if page.GetHasMore() || !t.follow.Ends() { // the end of the follow flushes the last page
		if err := t.follow.flush(); err != nil { // backpressure: read on when the sink is done
			return nil, err
		}
	}
	page.Steps = nil
	if page.GetHasMore() {
		return page, nil
	}
	return page, t.finishCatchUp(ctx, page)
}

// readPage reads the next page of steps. Only a few readers hold a large page at a time. Others
// wait without a page. The caller calls release.
func (t *track) readPage(ctx context.Context) (page *statev1.ListStepsResponse, release func(), err error) {
	large := &t.follow.largePages
	page = t.firstPage
	t.firstPage = nil
	if page == nil {
		page, err = t.listSteps(ctx)
	}
	if err != nil || proto.Size(page) <= smallPage {
		return page, func() {}, err
	}
	if !large.tryEnter() {
		page = nil
		if err := large.enter(ctx); err != nil {
			return nil, nil, err
		}
		if page, err = t.listSteps(ctx); err != nil {
			large.leave()
			return nil, nil, err
		}
	}
	return page, large.leave, nil
}

func (t *track) listSteps(ctx context.Context) (*statev1.ListStepsResponse, error) {
	return t.follow.listSteps(ctx, t.ref.GetTenant(), t.ref.GetSessionId(), t.step)
}

// listSteps reads a page of the session's steps.
func (f *Follower) listSteps(ctx context.Context, tenant, session string, after int32) (*statev1.ListStepsResponse, error) {
	var page *statev1.ListStepsResponse
	err := retry.Do(ctx, f.Sessions.Policy, func() (err error) {
		if err := f.stepReads.enter(ctx); err != nil {
			return err
		}
		defer f.stepReads.leave()
		page, err = f.Sessions.Sessions.ListSteps(ctx, &statev1.ListStepsRequest{
			Tenant: tenant, SessionId: session, AfterStep: after, Limit: pageSteps,
		})
		return err
	})
	return page, err
}

// rewindToStored rewinds the reader if the state service does not know its cursor.
func (t *track) rewindToStored(page *statev1.ListStepsResponse) error {
	if t.cursorExists(page) {
		return nil
	}
	valid, boundary := page.GetStands(), page.GetSession().GetPosition()
	var at int64
	if valid > 0 {
		at = position.Ended(valid)
	}
	if boundary < at { // the run continues behind that step
		at = boundary
	}
	t.step = valid
	return t.rewind(at)
}

// cursorExists reports whether the cursor is a position of the session in the page.
func (t *track) cursorExists(page *statev1.ListStepsResponse) bool {
	session, step := page.GetSession(), position.Of(t.cursor).Step
	switch {
	case step == 0: // only the beginning exists in every session
		return t.cursor == 0
	case step <= t.step: // behind a whole step
		return page.GetStands() == t.step
	case len(page.GetSteps()) > 0:
		return page.GetSteps()[0].GetStep() == step
	case step != session.GetStepCount()+1:
		return false
	}
	return t.cursor <= session.GetPosition() || !hasEnded(page.GetCurrentRun())
}

// deliverStep delivers the part of a stored step behind the cursor.
func (t *track) deliverStep(ctx context.Context, page *statev1.ListStepsResponse, step *statev1.StoredStep) error {
	run := &statev1.Run{RunId: step.GetRunId()}
	for _, known := range page.GetRuns() {
		if known.GetRunId() == step.GetRunId() {
			run = known
		}
	}
	if t.session == "" && hasEnded(t.follow.run) && run.GetTurn() > t.follow.run.GetTurn() && !t.follow.continueWith(run) {
		return t.follow.sendEnd(ctx) // skip the steps of later runs
	}
	if err := t.sendEndBefore(ctx, run); err != nil {
		return err
	}
	if t.wants(run.GetRunId()) {
		at, start := position.Of(t.cursor), startOf(step, run)
		if t.cursor > start && at.Step == step.GetStep() && at.Attempt != position.Stored { // inside an attempt
			if err := t.sendRestFromLog(ctx, start, position.Committed(step.GetStep())); err != nil {
				return err
			}
		}
		if err := t.replayAttempt(ctx, step, run); err != nil {
			return err
		}
		if err := t.sendStored(ctx, page, step, run); err != nil {
			return err
		}
	}
	t.step = step.GetStep()
	t.lastRun = run
	t.logIncomplete = false
	t.lateReads = 0
	t.cursor = max(t.cursor, position.Committed(t.step))
	return nil
}

// sendStored sends the part of the stored step behind the cursor, with long texts in pieces. Its numbers count the pieces.
func (t *track) sendStored(ctx context.Context, page *statev1.ListStepsResponse, step *statev1.StoredStep, run *statev1.Run) error {
	var previous string
	var err error
	if step.GetBeginsRun() {
		if previous, err = t.previousRunID(ctx, run); err != nil {
			return err
		}
	}
	if current := page.GetCurrentRun(); run.GetFinishStep() == step.GetStep() { // pages have runs without output
		if current.GetRunId() == run.GetRunId() {
			run = current
		} else if run.GetStatus() == statev1.RunStatus_RUN_STATUS_COMPLETED {
			if run, err = t.follow.runWithOutput(ctx, run); err != nil {
				return err
			}
		}
	}
	n := int32(0)
	for _, f := range renderStep(run, previous, step) {
		at := position.Of(f.Sequence)
		if at.N > position.MaxChunks { // chunks behind the step have fixed positions
			if err := t.sendNew(f); err != nil {
				return err
			}
			continue
		}
		for piece := range f.Pieces(pieceBytes) {
			if n++; n > position.MaxChunks {
				break
			}
			piece.Sequence = position.Position{Step: at.Step, Attempt: at.Attempt, N: n}.Sequence()
			if err := t.sendNew(piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendRestFromLog sends the rest of an attempt if the log is complete. Else it rewinds to the
// start. errReadSteps: the log has no gap and may soon have the rest.
func (t *track) sendRestFromLog(ctx context.Context, start, end int64) error {
	var taken error
	err := t.follow.Live.ReadStored(ctx, t.ref, t.cursor, false, func(r *live.Record) error {
		if !t.continues(r) || t.cursor >= end {
			return errReadSteps
		}
		taken = t.sendRecord(r)
		return taken
	})
	switch {
	case taken != nil || t.cursor >= end:
		return taken
	case err == nil && t.session == "" && t.lateReads < maxLateReads:
		t.lateReads++
		return errReadSteps
	}
	return t.rewind(start)
}

// replayAttempt repeats the step of Request.SeenLive as it was live, if the log has the whole attempt.
func (t *track) replayAttempt(ctx context.Context, step *statev1.StoredStep, run *statev1.Run) error {
	shown := position.Of(t.follow.request.SeenLive)
	isLive := shown.Attempt != 0 && shown.Attempt != position.Stored
	if t.session != "" || shown.Step != step.GetStep() || !isLive || t.cursor > startOf(step, run) {
		return nil
	}
	var records []*live.Record
	isComplete := false
	last := position.Position{Step: shown.Step, Attempt: shown.Attempt}.Sequence()
	_ = t.follow.Live.ReadStored(ctx, t.ref, last, false, func(r *live.Record) error { // without it, the step is sent as stored
		if r.Boundary != nil {
			isComplete = r.Boundary.GetLast() == last
		} else if r.First != last+1 {
			return errReadSteps
		}
		records = append(records, r)
		last = r.Last
		if isComplete {
			return errDone
		}
		return nil
	})
	for _, r := range records {
		if !isComplete {
			break
		}
		if err := t.sendRecord(r); err != nil {
			return err
		}
	}
	return nil
}

// startOf returns the position before the step.
func startOf(step *statev1.StoredStep, run *statev1.Run) int64 {
	var start int64
	if step.GetFollows() > 0 {
		start = position.Ended(step.GetFollows())
	}
	if step.GetBeginsRun() {
		start = max(start, run.GetStartPosition())
	}
	return start
}

// previousRunID returns the run that the run resumes or continues; "" for none.
func (t *track) previousRunID(ctx context.Context, run *statev1.Run) (string, error) {
	switch {
	case !resumes(run):
		return "", nil
	case t.lastRun.GetTurn() == run.GetTurn()-1:
		return t.lastRun.GetRunId(), nil
	}
	previous, err := t.follow.Sessions.PreviousRun(ctx, t.ref.GetTenant(), run)
	return previous.GetRunId(), err
}

// sendEndBefore sends the ends of the runs before this one that ended outside a step: of the last delivered run, and of
// all runs without a step behind it.
func (t *track) sendEndBefore(ctx context.Context, run *statev1.Run) error {
	start := run.GetStartPosition()
	if err := t.sendEndOfLastRun(ctx, start); err != nil {
		return err
	}
	if start <= t.cursor || position.Of(start).Attempt == position.Stored {
		return nil
	}
	former, err := t.follow.Sessions.RunsBehind(ctx, t.ref.GetTenant(), run, t.cursor)
	if err != nil {
		return err
	}
	for _, earlier := range former {
		if earlier.GetStepCount() > 0 && position.LastStep(earlier.GetEndPosition()) != t.step { // its steps were removed
			continue
		}
		t.lastRun = earlier
		if err := t.sendEndOfLastRun(ctx, start); err != nil {
			return err
		}
	}
	return nil
}

// sendEndOfLastRun sends the end of the last delivered run if it ended outside a step. An end behind
// until is void.
func (t *track) sendEndOfLastRun(ctx context.Context, until int64) error {
	run := t.lastRun
	if !hasEnded(run) || run.GetFinishStep() != 0 || run.GetEndPosition() <= t.cursor || run.GetEndPosition() > until {
		return nil
	}
	if run.GetStatus() == statev1.RunStatus_RUN_STATUS_COMPLETED && run.GetOutput() == "" {
		var err error
		if run, err = t.follow.runWithOutput(ctx, run); err != nil {
			return err
		}
	}
	return t.sendEndOutsideStep(ctx, run)
}

// sendEndOutsideStep sends the end of a run that ended outside a step. A partly seen step in flight is
// void: it is not stored.
func (t *track) sendEndOutsideStep(ctx context.Context, run *statev1.Run) error {
	start := run.GetStartPosition()
	if t.step > 0 {
		start = max(start, position.Committed(t.step))
	}
	at := position.Of(t.cursor)
	if t.cursor > start && at.Attempt != position.Stored && at.N <= position.MaxChunks {
		if err := t.sendRestFromLog(ctx, start, run.GetEndPosition()); err != nil {
			return err
		}
	}
	if run.GetStepCount() > 0 {
		return t.sendFrames(renderEnd(run, run.GetEndPosition(), t.step))
	}
	previous, err := t.previousRunID(ctx, run)
	if err != nil {
		return err
	}
	return t.sendFrames(renderOutside(run, previous, t.step))
}

// finishCatchUp moves the cursor to the session's position after all stored steps.
func (t *track) finishCatchUp(ctx context.Context, page *statev1.ListStepsResponse) error {
	if current := page.GetCurrentRun(); current != nil {
		if err := t.sendEndBefore(ctx, current); err != nil {
			return err
		}
		if hasEnded(current) {
			t.lastRun = current // it may have no step
		}
	}
	boundary := page.GetSession().GetPosition()
	if err := t.sendEndOfLastRun(ctx, boundary); err != nil {
		return err
	}
	t.cursor = max(t.cursor, boundary)
	return nil
}
