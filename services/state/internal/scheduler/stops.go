package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// stops takes stop requests to the connected executors. Each stream empties its box at its own
// pace; the sender never waits.
type stops struct {
	mu    sync.Mutex
	boxes map[*stopBox]bool

	joined   chan struct{} // holds one signal: an executor has connected
	signaled chan struct{} // holds one signal: another replica has written a stop
}

// stopBox holds the stop requests for a claim stream. stops.mu guards pending and sent.
type stopBox struct {
	executorID string
	more       chan struct{}               // holds one signal: a stop is pending
	pending    map[string]session.Stop     // by run id
	sent       map[string]session.StopKind // by run id; a poll does not send these again
}

func newStops() *stops {
	return &stops{boxes: map[*stopBox]bool{}, joined: make(chan struct{}, 1), signaled: make(chan struct{}, 1)}
}

func (s *stops) join(executorID string) *stopBox {
	box := &stopBox{
		executorID: executorID,
		more:       make(chan struct{}, 1),
		pending:    map[string]session.Stop{},
		sent:       map[string]session.StopKind{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[box] = true
	signal(s.joined)
	return box
}

func (s *stops) leave(box *stopBox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.boxes, box)
}

// send puts a stop written by this replica into the boxes of its executor. It reports whether
// the executor is connected.
func (s *stops) send(stop store.StoppedRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	connected := false
	for box := range s.boxes {
		if box.executorID == stop.ExecutorID {
			box.put(stop)
			connected = true
		}
	}
	return connected
}

func (b *stopBox) put(stop store.StoppedRun) {
	if b.sent[stop.RunID] == stop.Stop.Kind {
		return
	}
	b.sent[stop.RunID] = stop.Stop.Kind
	b.pending[stop.RunID] = stop.Stop
	signal(b.more)
}

// sync puts all stops of the executors into their boxes, and forgets those of ended runs.
func (s *stops) sync(executors []string, all []store.StoppedRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for box := range s.boxes {
		if !slices.Contains(executors, box.executorID) {
			continue
		}
		sent := map[string]session.StopKind{}
		for _, stop := range all {
			if stop.ExecutorID == box.executorID {
				box.put(stop)
				sent[stop.RunID] = box.sent[stop.RunID]
			}
		}
		box.sent = sent
	}
}

// forget lets a stop be sent again: the executor has just received the run, and may have
// ignored an earlier one.
func (s *stops) forget(box *stopBox, runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(box.sent, runID)
}

func (s *stops) take(box *stopBox) map[string]session.Stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := box.pending
	box.pending = map[string]session.Stop{}
	return pending
}

// connected returns the executors with a stream here, each once.
func (s *stops) connected() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for box := range s.boxes {
		ids = append(ids, box.executorID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// pollStops finds the stops of other replicas until ctx ends, with one query for all connected
// executors, and none without.
func (s *Scheduler) pollStops(ctx context.Context) {
	ticker := time.NewTicker(s.config.StopPoll)
	defer ticker.Stop()
	failing := false
	for ticks := (<-chan time.Time)(nil); ; {
		select {
		case <-s.stops.joined:
			ticks = ticker.C
			continue
		case <-ticks:
		case <-s.stops.signaled:
		case <-ctx.Done():
			return
		}
		connected := s.stops.connected()
		if len(connected) == 0 {
			ticks = nil // until an executor connects
			continue
		}
		err := s.findStops(ctx, connected)
		if err != nil && !failing && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "stop requests could not be read; heartbeats deliver them meanwhile", "error", err)
		}
		failing = err != nil
	}
}

func (s *Scheduler) findStops(ctx context.Context, executors []string) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	all, err := s.Store.Stops(ctx, executors...)
	if err != nil {
		return err
	}
	s.stops.sync(executors, all)
	return nil
}

// sendStops sends stop requests until ctx ends, and does not wait for the claim loop.
func (c *claimer) sendStops(ctx context.Context) {
	for {
		select {
		case <-c.box.more:
		case <-ctx.Done():
			return
		}
		for runID, stop := range c.stops.take(c.box) {
			if c.sendStop(runID, stop) != nil {
				return // the stream is broken; its reader learns it too
			}
		}
	}
}

func (c *claimer) sendStop(runID string, stop session.Stop) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.SendStop(runID, stop)
}
