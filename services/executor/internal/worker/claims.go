package worker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// claimRuns holds a claim stream open until ctx ends. The runs live until live ends.
func (w *Worker) claimRuns(ctx, live context.Context) {
	var wait retry.Backoff
	var failed time.Time // when the current outage began; zero without one
	logged := false      // the current outage was logged
	for ctx.Err() == nil {
		changed := w.peers.Agents.Changed() // before Types, to miss no change
		if len(w.peers.Agents.Types())+len(w.peers.Agents.Problems()) == 0 && !w.peers.Agents.ServesStored() {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		claimed, err := w.claimOnStream(ctx, live, changed)
		if ctx.Err() != nil {
			return
		}
		if claimed || errors.Is(err, errChanged) {
			wait, failed, logged = retry.Backoff{}, time.Time{}, false
		}
		if isOutage(err) && failed.IsZero() {
			failed = time.Now()
		}
		if isOutage(err) && !logged && time.Since(failed) >= shortOutage {
			w.peers.Log.WarnContext(ctx, "the claim stream has failed and is reopened", "error", err)
			logged = true
		}
		if wait.Sleep(ctx) != nil {
			return
		}
	}
}

// isOutage reports whether a claim stream has ended because of a failure.
func isOutage(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) && !errors.Is(err, errChanged)
}

// shortOutage is how long an outage may last before it is logged. It covers a common
// start of the services.
const shortOutage = time.Second

// errChanged ends a claim stream with an outdated announcement.
var errChanged = errors.New("the agents have changed")

// claimOnStream announces the executor and takes claims until the stream ends or the agents change. It reports
// whether it has received anything.
func (w *Worker) claimOnStream(ctx, live context.Context, changed <-chan struct{}) (claimed bool, err error) {
	parent := ctx
	ctx, end := context.WithCancelCause(parent)
	cancel := func() { end(nil) }
	var sender sync.WaitGroup
	defer sender.Wait()
	defer cancel()
	stream, err := w.peers.Work.ClaimRuns(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(w.announcement(cancel)); err != nil {
		return false, streamError(stream, err)
	}
	sender.Go(func() { w.sendCredits(ctx, stream) })
	sender.Go(func() {
		select {
		case <-changed:
			end(errChanged)
		case <-ctx.Done():
		}
	})
	for {
		work, err := stream.Recv()
		if err != nil && errors.Is(context.Cause(ctx), errChanged) {
			return claimed, errChanged
		}
		if err != nil {
			return claimed, err
		}
		claimed = true
		w.handle(parent, live, work)
	}
}

// streamError returns the cause of a stream's end. Send itself only returns io.EOF.
func streamError(stream interface {
	Recv() (*statev1.ClaimRunsResponse, error)
}, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	_, received := stream.Recv()
	return cmp.Or(received, err)
}

// announcement returns the first request of a claim stream. reopen ends the stream.
func (w *Worker) announcement(reopen func()) *statev1.ClaimRunsRequest {
	r := &statev1.ClaimRunsRequest{ExecutorId: w.peers.ExecutorID, HeldRunIds: w.LiveRunIDs()}
	for _, t := range w.peers.Agents.Types() {
		r.Agents = append(r.Agents, catalog.Announced(t))
	}
	r.ServesStoredAgents = w.peers.Agents.ServesStored()
	r.Problems = announcedProblems(w.peers.Agents.Problems())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = 0
	r.SpareCredits = int32(w.config.Spare)
	r.Credits = int32(max(0, w.config.Slots+w.config.Spare-w.active))
	if w.announced.IsZero() {
		w.announced = time.Now()
	}
	w.reopen = reopen
	return r
}

// The limits of announced problems. The log has their full texts.
const (
	maxProblems    = 200
	maxProblemText = 2000 // bytes
)

// announcedProblems returns the first problems with the beginnings of their texts.
func announcedProblems(problems []catalog.Problem) []*statev1.Problem {
	shortened := func(text string) string {
		return strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), maxProblemText)], ""), "\x00", "")
	}
	var out []*statev1.Problem
	for _, p := range problems[:min(len(problems), maxProblems)] {
		out = append(out, &statev1.Problem{Kind: p.Kind, Name: shortened(p.Name), AgentType: shortened(p.Agent), Text: shortened(p.Text)})
	}
	return out
}

// sendCredits sends a credit for each slot that becomes free. The receiving side finds out why a stream breaks.
func (w *Worker) sendCredits(ctx context.Context, stream statev1.WorkService_ClaimRunsClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.freed:
		}
		w.mu.Lock()
		credits := w.free
		w.free = 0
		w.mu.Unlock()
		if credits > 0 && stream.Send(&statev1.ClaimRunsRequest{Credits: int32(credits)}) != nil {
			return
		}
	}
}

// heartbeatPatience is the most intervals that one heartbeat may take.
const heartbeatPatience = 3

// sendHeartbeats sends heartbeats until ctx ends.
func (w *Worker) sendHeartbeats(ctx context.Context) {
	ticks := time.NewTicker(w.config.HeartbeatInterval)
	defer ticks.Stop()
	listed, received := time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if !w.isAnnounced() {
			continue
		}
		list := time.Since(listed) >= w.config.HeldInterval
		err := w.sendHeartbeat(ctx, list)
		if err == nil && list {
			listed = time.Now()
		}
		if err != nil && received && ctx.Err() == nil {
			w.peers.Log.WarnContext(ctx, "the state service does not receive heartbeats", "error", err)
		}
		received = err == nil
	}
}

// isAnnounced reports whether the state service has had time to read the announcement. Earlier heartbeats would
// come from an unknown executor.
func (w *Worker) isAnnounced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.announced.IsZero() && time.Since(w.announced) >= w.config.HeartbeatInterval
}

// sendHeartbeat sends one heartbeat. With list, it has the ids of the held runs.
func (w *Worker) sendHeartbeat(ctx context.Context, list bool) error {
	r := &statev1.HeartbeatRequest{ExecutorId: w.peers.ExecutorID}
	if list {
		r.Held = &statev1.HeldRuns{RunIds: w.LiveRunIDs()}
	}
	// A hanging heartbeat must not delay the next ones until the executor counts as dead.
	call, cancel := context.WithTimeout(ctx, min(w.config.CallTimeout, heartbeatPatience*w.config.HeartbeatInterval))
	defer cancel()
	answer, err := w.peers.Work.Heartbeat(call, r)
	if err != nil {
		return err
	}
	for _, stop := range answer.GetStops() {
		w.passStop(stop.GetRunId(), stop.GetStop())
	}
	if answer.GetForgotten() {
		w.peers.Log.WarnContext(ctx, "the state service considers this executor dead; its runs are stopped")
		w.cancelForgotten()
	}
	return nil
}

// passStop passes a stop on to the runner of the run, if the worker owns the run.
func (w *Worker) passStop(runID string, stop *statev1.Stop) {
	s, ok := toStop(stop)
	if !ok {
		return
	}
	w.mu.Lock()
	h := w.runs[runID]
	w.mu.Unlock()
	if h != nil {
		h.stopper.request(s)
	}
}
