package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// Store is the scheduler's part of store.Store.
type Store interface {
	UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error)
	UsageSums(ctx context.Context, tenant string, q store.UsageQuery, limit int) ([]store.UsageSum, error)
	Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis, problems ...session.Problem) error
	Stops(ctx context.Context, executorIDs ...string) ([]store.StoppedRun, error)
	Unserved(ctx context.Context) (map[string]session.Millis, error)
	LastSeen(ctx context.Context) (map[string]session.Millis, error)
}

// Commands ends claims after a failed sending.
type Commands interface {
	// Release queues a claimed run again.
	Release(ctx context.Context, ref session.ClaimRef) error

	// Fail ends a claimed run as failed, with the consequences for its family. bytes is about
	// how much memory the command needs.
	Fail(ctx context.Context, ref session.ClaimRef, failure session.Failure, bytes int) error
}

// Peers are the scheduler's dependencies. All fields but Signals and Meters must be set.
//
// Caps returns the caps on running runs; nil for none. They may change at any time. EpochStep returns how far the next
// claim raises its epoch; nil for 1.
type Peers struct {
	Store    Store
	Signals  store.Signaler // between the replicas; nil for a single one
	Commands Commands
	Caps     func() *store.Caps
	Suspects *sweep.Suspects // receives the executors of broken streams
	Now      func() time.Time
	Log      *slog.Logger
	Meters   *meters.Meters // nil measures nothing

	EpochStep func() int64
}

// Scheduler hands out runs to the executors connected to this replica. Its methods may be
// called by many goroutines at once.
type Scheduler struct {
	config Config
	Peers
	hub      *hub
	stops    *stops
	replicas *replicas
	turn     turn
	// spareTurn is the turn of claims with spare credits. A claim of a calm tenant must not restart the turn of the others.
	spareTurn turn
	absence   absence

	mu       sync.Mutex // guards stopped, and streams against Stop
	stopped  bool
	stopping chan struct{} // closed by Stop
	streams  sync.WaitGroup
}

// New returns a scheduler. It starts nothing.
func New(c Config, p Peers) *Scheduler {
	return &Scheduler{
		config: c, Peers: p, hub: newHub(p.Now), stops: newStops(), replicas: newReplicas(p.Signals), stopping: make(chan struct{}),
		turn: turn{weights: c.TenantWeights}, absence: absence{after: c.AgentGoneAfter, since: map[string]time.Time{}},
	}
}

// Run finds stop requests and agents without an executor, and exchanges signals with the other replicas, until ctx ends.
func (s *Scheduler) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { s.pollStops(ctx) })
	loops.Go(func() { s.exchangeSignals(ctx) })
	loops.Go(func() { s.watchAbsence(ctx) })
	loops.Wait()
}

// Stop ends all claim streams with Unavailable (STOPPING), refuses new ones, and waits for
// their goroutines. If a client reads nothing, its stream ends only with the gRPC server.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	s.mu.Unlock()
	s.streams.Wait()
}

// start runs f in a goroutine, and Stop waits for it. It reports false after Stop.
func (s *Scheduler) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.streams.Go(f)
	return true
}

func errStopping() error {
	return fault.New(fault.Unavailable, "STOPPING", "this state service is stopping; open the stream on another one")
}

// Wake wakes a claim loop for a queued run of the agent, here or at another replica.
func (s *Scheduler) Wake(agentType string) {
	if !s.hub.signal(agentType) {
		s.replicas.send(signalQueued + agentType)
	}
}

// Notify takes the changes of a committed command, some of them nil. It wakes claim loops for the runs due now. It
// sends stop requests to the executors of running runs, and of runs ended from outside.
func (s *Scheduler) Notify(changes []*session.Change) {
	now := s.millis()
	for _, c := range changes {
		if c == nil {
			continue
		}
		tenant := ""
		if c.Session != nil {
			tenant = c.Session.Tenant
		}
		for _, r := range []*session.Run{c.NewRun, c.Dequeued} {
			if r != nil {
				s.wakeIfDue(tenant, r, now)
			}
		}
		if r := c.CutOff; r != nil && r.ExecutorID != "" { // its next write is refused anyway
			if !s.stops.send(cutOff(r.ExecutorID, r.RunID)) {
				s.replicas.send(signalCutOff + r.RunID + " " + r.ExecutorID)
			}
		}
		for i := range c.Runs {
			r := &c.Runs[i]
			s.wakeIfDue(tenant, r, now)
			if r.Status == session.RunRunning && r.Stop != nil {
				s.sendStop(store.StoppedRun{ExecutorID: r.ExecutorID, RunID: r.RunID, Stop: *r.Stop})
			}
		}
	}
}

// wakeIfDue wakes a claim loop for a run due now, and for the successor of an ended run.
func (s *Scheduler) wakeIfDue(tenant string, r *session.Run, now session.Millis) {
	capped := s.isCapped(tenant, r.UserID)
	switch {
	case capped && (r.Status.Ended() || r.Status == session.RunQueued && r.DueAt <= now):
		s.wakeForCapped(r.AgentType)
	case r.Status == session.RunQueued && r.DueAt <= now:
		s.Wake(r.AgentType)
	}
}

// isCapped reports whether there is a cap on the running runs of the tenant or the user.
func (s *Scheduler) isCapped(tenant, userID string) bool {
	ofTenant, ofUser := s.Caps().Of(tenant, userID)
	return ofTenant > 0 || ofUser > 0
}

// wakeForCapped wakes a claim loop for a run that may have to stay queued. The loop does not look for it again.
func (s *Scheduler) wakeForCapped(agentType string) {
	if !s.hub.notify(agentType, 0) {
		s.replicas.send(signalQueued + agentType)
	}
}

// sendStop sends a stop request to the run's executor, here or by another replica.
func (s *Scheduler) sendStop(run store.StoppedRun) {
	if !s.stops.send(run) {
		s.replicas.send(signalStop)
	}
}

// cutOff is the stop of a run ended by others than its executor.
func cutOff(executorID, runID string) store.StoppedRun {
	return store.StoppedRun{ExecutorID: executorID, RunID: runID, Stop: session.Stop{Kind: session.StopAbort}}
}

// Connected returns the executors connected to this replica, each once.
func (s *Scheduler) Connected() []string { return s.stops.connected() }

// Idle returns the free credits of the executor when its claim loop is at rest: all signaled
// runs are found and all claims are sent. Tests wait for it.
func (s *Scheduler) Idle(executorID string) (free int, atRest bool) { return s.hub.idle(executorID) }

// claimBy returns the command by which the executor claims a run.
func (s *Scheduler) claimBy(executorID string) session.Claim {
	command := session.Claim{ExecutorID: executorID, Now: s.millis()}
	if s.EpochStep != nil {
		command.EpochStep = s.EpochStep()
	}
	return command
}

func (s *Scheduler) millis() session.Millis { return session.Millis(s.Now().UnixMilli()) }
