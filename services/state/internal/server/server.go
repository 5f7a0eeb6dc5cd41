package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/grant"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// Server joins the gRPC services of the contract with the scheduler. Its methods may be
// called by many goroutines at once.
type Server struct {
	scheduler *scheduler.Scheduler
	suspects  *sweep.Suspects

	runner *runner

	auditRetention time.Duration

	runs        *runService
	sessions    *sessionService
	work        *workService
	checkpoints *checkpointService
	calls       *callService
	usage       *usageService
	memories    *memoryService
	stored      *storedAgentService
	files       *fileService
	governors   *governorService
	audit       *auditService
	erasure     *erasureService
	overdue     *overdue
	outbox      *outboxService
}

// New returns a server on the store, which signs and checks grants with the keys. It starts nothing.
func New(c Config, s store.Store, keys grant.Keys, now func() time.Time, newID func() string, log *slog.Logger) *Server {
	suspects, clock, ids := sweep.NewSuspects(), clock(now), ids(newID)
	grants, admissions := &grants{keys: keys, store: s, now: now}, newAdmissions(c.Quotas, s, clock)
	r := newRunner(s, c.Limits, clock, ids)
	r.scheduler = scheduler.New(c.Scheduler, scheduler.Peers{
		Store: s, Signals: s.Signals, Commands: r, Caps: c.Quotas.Caps, Suspects: suspects, Now: now, Log: log, EpochStep: c.EpochStep,
	})
	outbox := newOutboxService(s, r, c.Webhooks, clock)
	r.told = outbox.told
	waits := &queue{registry: s, counts: s, caps: c.Quotas.Caps, clock: clock}
	return &Server{
		scheduler:      r.scheduler,
		suspects:       suspects,
		runner:         r,
		auditRetention: c.AuditRetention,
		runs:           &runService{grants: grants, store: s, files: s, registry: s, stored: s, runner: r, queue: waits, admissions: admissions},
		sessions: &sessionService{
			grants: grants, store: s, files: s, lister: s, registry: s, stored: s, counts: s, runner: r, admissions: admissions, queue: waits,
		},
		work: &workService{
			grants: grants, registry: s, stored: s, runner: r, scheduler: r.scheduler, suspects: suspects,
			suspendedTTL: c.SuspendedTTL, clock: clock,
			callbacks: c.Callbacks,
		},
		checkpoints: &checkpointService{store: s, runner: r, admissions: admissions},
		calls:       &callService{store: s, lister: s, runner: r, callbacks: c.Callbacks, now: now},
		usage:       &usageService{store: s, accounts: s, runner: r},
		memories:    &memoryService{store: s, runner: r},
		stored:      &storedAgentService{store: s, runner: r},
		governors:   &governorService{store: s, runner: r},
		files: &fileService{
			grants: grants, store: s, blobs: s.Blobs, admissions: admissions, runner: r,
			grace: session.Millis(c.FileGrace.Milliseconds()), clock: clock,
		},
		audit:   &auditService{store: s, runner: r, clock: clock},
		erasure: &erasureService{store: s, runner: r, clock: clock},
		overdue: &overdue{lister: s, runner: r, clock: clock, log: log},
		outbox:  outbox,
	}
}

// Measure makes the server and its scheduler measure. Call it before Register.
func (s *Server) Measure(m *meters.Meters) {
	s.runner.meters, s.scheduler.Meters, s.files.meters = m, m, m
}

// Register offers the services.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	statev1.RegisterRunServiceServer(r, s.runs)
	statev1.RegisterSessionServiceServer(r, s.sessions)
	statev1.RegisterWorkServiceServer(r, s.work)
	statev1.RegisterCheckpointServiceServer(r, s.checkpoints)
	statev1.RegisterCallServiceServer(r, s.calls)
	statev1.RegisterUsageServiceServer(r, s.usage)
	statev1.RegisterMemoryServiceServer(r, s.memories)
	statev1.RegisterStoredAgentServiceServer(r, s.stored)
	statev1.RegisterFileServiceServer(r, s.files)
	statev1.RegisterGovernorServiceServer(r, s.governors)
	statev1.RegisterAuditServiceServer(r, s.audit)
	statev1.RegisterErasureServiceServer(r, s.erasure)
	statev1.RegisterOutboxServiceServer(r, s.outbox)
	statev1.RegisterOperatorServiceServer(r, &operatorService{overdue: s.overdue})
}

// Run runs the scheduler's background work until ctx ends.
func (s *Server) Run(ctx context.Context) { s.scheduler.Run(ctx) }

// Stop ends all claim streams; see scheduler.Scheduler.Stop. Other calls go on.
func (s *Server) Stop() { s.scheduler.Stop() }

// Wake wakes a claim loop for a queued run of the agent.
func (s *Server) Wake(agentType string) { s.scheduler.Wake(agentType) }

// Suspects returns the executors with a broken claim stream.
func (s *Server) Suspects() *sweep.Suspects { return s.suspects }

// TimeOut answers the overdue calls of a session. It does nothing for a deleted session.
func (s *Server) TimeOut(ctx context.Context, key session.Key) error {
	return s.overdue.timeOut(ctx, key)
}

// ExpireAudit deletes the entries of the audit log that are older than the retention.
func (s *Server) ExpireAudit(ctx context.Context) error {
	return s.audit.expire(ctx, s.auditRetention)
}

// ExpireDeliveries deletes old deliveries.
func (s *Server) ExpireDeliveries(ctx context.Context) error { return s.outbox.expire(ctx) }

// Expire fails at most limit expired sessions.
func (s *Server) Expire(ctx context.Context, limit int) (sweep.Summary, error) {
	return s.overdue.expire(ctx, limit)
}

// clock reads the time.
type clock func() time.Time

func (now clock) millis() session.Millis { return session.Millis(now().UnixMilli()) }

// ids makes unique ids.
type ids func() string

func (newID ids) run() string     { return "run_" + newID() }
func (newID ids) session() string { return "ses_" + newID() }
func (newID ids) message() string { return "msg_" + newID() }
func (newID ids) memory() string  { return "mem_" + newID() }
