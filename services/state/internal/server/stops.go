package server

import (
	"context"
	"slices"
	"sync"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// stops takes to the executors that are connected here which of their runs are
// to stop. Nobody who tells ever waits: each stream has a box of its own, and
// empties it at its own pace.
type stops struct {
	mu    sync.Mutex
	boxes map[*stopBox]bool
	came  chan struct{} // holds one signal: somebody is connected
	heard chan struct{} // holds one signal: another replica has taken a stop
}

// stopBox is what a claim stream is to be told.
type stopBox struct {
	executorID string
	more       chan struct{} // holds one signal: something waits

	waits map[string]session.Stop     // by run; guarded by stops.mu, like told
	told  map[string]session.StopKind // what was said of each run, so that it is not said with each poll
}

func newStops() *stops {
	return &stops{boxes: map[*stopBox]bool{}, came: make(chan struct{}, 1), heard: make(chan struct{}, 1)}
}

func (s *stops) join(executorID string) *stopBox {
	box := &stopBox{executorID: executorID, more: make(chan struct{}, 1), waits: map[string]session.Stop{}, told: map[string]session.StopKind{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[box] = true
	signal(s.came)
	return box
}

func (s *stops) leave(box *stopBox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.boxes, box)
}

// signal leaves a signal where none waits.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tell is for a stop that this replica has just written. It reports whether the executor
// is connected here.
func (s *stops) tell(stop store.StoppedRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := false
	for box := range s.boxes {
		if box.executorID == stop.ExecutorID {
			box.put(stop)
			here = true
		}
	}
	return here
}

func (b *stopBox) put(stop store.StoppedRun) {
	if b.told[stop.RunID] == stop.Stop.Kind {
		return
	}
	b.told[stop.RunID] = stop.Stop.Kind
	b.waits[stop.RunID] = stop.Stop
	signal(b.more)
}

// found is for all stops of the executors, as a poll has found them. What was
// told of others is forgotten: those runs are over.
func (s *stops) found(executors []string, all []store.StoppedRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for box := range s.boxes {
		if !slices.Contains(executors, box.executorID) {
			continue // it came after the poll had begun
		}
		still := map[string]session.StopKind{}
		for _, stop := range all {
			if stop.ExecutorID == box.executorID {
				box.put(stop)
				still[stop.RunID] = box.told[stop.RunID]
			}
		}
		box.told = still
	}
}

// handed lets what was said of a run be said again: the executor has learned of
// the run only now, and may have passed over it.
func (s *stops) handed(box *stopBox, runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(box.told, runID)
}

func (s *stops) take(box *stopBox) map[string]session.Stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := box.waits
	box.waits = map[string]session.Stop{}
	return waits
}

// connected are the executors that have a stream here, each once.
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

// PollStops looks for the stops that other replicas have taken, in one query for
// all executors that are connected here, and not while there are none. It
// returns when ctx ends.
func (s *Server) PollStops(ctx context.Context) {
	poll := time.NewTicker(s.config.StopPoll)
	defer poll.Stop()
	broken := false
	for next := (<-chan time.Time)(nil); ; {
		select {
		case <-s.stops.came:
			next = poll.C
			continue
		case <-next:
		case <-s.stops.heard:
		case <-ctx.Done():
			return
		}
		connected := s.stops.connected()
		if len(connected) == 0 {
			next = nil // until somebody comes
			continue
		}
		err := s.pollStops(ctx, connected)
		if err != nil && !broken && ctx.Err() == nil {
			s.log.WarnContext(ctx, "stops were not looked for; heartbeats tell them meanwhile", "error", err)
		}
		broken = err != nil
	}
}

func (s *Server) pollStops(ctx context.Context, executors []string) error {
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	all, err := s.store.Stops(ctx, executors...)
	if err != nil {
		return err
	}
	s.stops.found(executors, all)
	return nil
}

// tellStops sends what the executor is to stop until ctx ends. It does not wait
// for the claims, which may be slow to be found.
func (c *claimer) tellStops(ctx context.Context) {
	for {
		select {
		case <-c.box.more:
		case <-ctx.Done():
			return
		}
		for runID, stop := range c.server.stops.take(c.box) {
			told := &statev1.StoppedRun{RunId: runID, Stop: stopOut(&stop)}
			if c.out(&statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Stop{Stop: told}}) != nil {
				return // the stream is at its end, which its reader learns too
			}
		}
	}
}

// out sends on the stream, which takes one message at a time.
func (c *claimer) out(answer *statev1.ClaimRunsResponse) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(answer)
}
