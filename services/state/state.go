// Package state is the state service, the only door to the database: what happened in every
// session. Its packages are session (the rules), governor (the rules of providers' limits), store (the
// rows), server (the gRPC services), scheduler (the hand-out of runs) and sweep (the work due by time).
package state

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/quota"
	"github.com/holdfast-run/holdfast/services/state/internal/server"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/bucket"
	"github.com/holdfast-run/holdfast/services/state/internal/store/folder"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// Config configures the service. config.Load fills in the defaults of the tags; the zero value
// has none.
type Config struct {
	Store       string `env:"HOLDFAST_STATE_STORE" envDefault:"sqlite" doc:"where sessions are stored: memory (lost with the process), sqlite, postgres"`
	SQLitePath  string `env:"HOLDFAST_STATE_SQLITE_PATH" envDefault:"holdfast-state.db" doc:"file of the sqlite store; its folder must exist"`
	PostgresURL string `env:"HOLDFAST_STATE_POSTGRES_URL" doc:"postgres:// URL of the postgres store's database"`
	Connections int    `env:"HOLDFAST_STATE_POSTGRES_CONNECTIONS" envDefault:"16" doc:"most connections to postgres, and one more for the signals of other replicas"`
	Files       string `env:"HOLDFAST_STATE_FILES" envDefault:"database" doc:"where the bytes of files are stored: database, folder, s3. A change does not move stored files"`
	FilesFolder string `env:"HOLDFAST_STATE_FILES_FOLDER" doc:"folder of the bytes of files, shared by all replicas; for HOLDFAST_STATE_FILES=folder"`
	S3          bucket.Config
	Quotas      string        `env:"HOLDFAST_STATE_QUOTAS" doc:"YAML file of the quotas of tenants and users; a change takes effect within seconds. Empty for none"`
	OpenWithin  time.Duration `env:"HOLDFAST_STATE_OPEN_WITHIN" envDefault:"60s" doc:"how long to wait at the start for an unreachable database"`
	SilentAfter time.Duration `env:"HOLDFAST_STATE_SILENT_AFTER" envDefault:"2500ms" doc:"an executor without a heartbeat for this long loses its runs"`
	BrokenAfter time.Duration `env:"HOLDFAST_STATE_BROKEN_AFTER" envDefault:"1s" doc:"the same after the claim stream of the executor broke, as by its death; at least two heartbeat intervals. 0 means HOLDFAST_STATE_SILENT_AFTER"`
	SweepEvery  time.Duration `env:"HOLDFAST_STATE_SWEEP_EVERY" envDefault:"500ms" doc:"interval of the looks for silent executors and overdue calls"`
	ExpireEvery time.Duration `env:"HOLDFAST_STATE_EXPIRE_EVERY" envDefault:"1m" doc:"interval of the looks for expired sessions and unused files"`
	Group       group.Config
	Server      server.Config
	Grants      grant.Config
	// CallbackKeys empty means the secret of the grants.
	CallbackKeys string `env:"HOLDFAST_CALLBACK_KEYS" secret:"true" doc:"secret that signs the URLs to which other systems post the results of calls, at least 32 bytes; several with commas between them: the first signs, all are accepted. Empty: HOLDFAST_GRANT_SECRET, and without both no tool can answer later. One process with a folder for its data makes one"`
}

// ProcessConfig is the configuration of a process with this service only.
type ProcessConfig struct {
	Config    Config
	Listen    string        `env:"HOLDFAST_STATE_LISTEN" envDefault:"127.0.0.1:7411" doc:"address to serve gRPC on"`
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for calls in flight at shutdown"`
	Internal  rpc.Security  `envPrefix:"HOLDFAST_INTERNAL_"`
	Telemetry telemetry.Config
}

// Peers are the dependencies of the service. Nil fields get the real clock, random ids and
// slog.Default; a nil Meter measures nothing.
type Peers struct {
	Now   func() time.Time
	NewID func() string // unique; ASCII letters and digits
	// EpochStep returns how far the next claim raises its epoch: above 0. A nil field gets random steps.
	EpochStep func() int64
	Log       *slog.Logger
	Meter     metric.Meter
}

// maxEpochStep makes equal epochs of two claims improbable, and leaves room for four billion claims of a session.
const maxEpochStep = 1 << 31

func randomEpochStep() int64 { return 1 + mathrand.Int64N(maxEpochStep) } //nolint:gosec // epochs are no secret

func (p Peers) withDefaults() Peers {
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.NewID == nil {
		p.NewID = func() string { return strings.ToLower(rand.Text()) }
	}
	if p.EpochStep == nil {
		p.EpochStep = randomEpochStep
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	if p.Meter == nil {
		p.Meter = noop.Meter{}
	}
	return p
}

// Service is the state service.
type Service struct {
	store       store.Store
	closeBlobs  func() error
	watchQuotas func(context.Context) // until the context ends
	server      *server.Server
	meters      *meters.Meters
	sweep       *sweep.Sweep
}

// New opens the store and updates its schema. It starts nothing. It retries an unreachable
// database for Config.OpenWithin.
//
// Invalid (CONFIG_INVALID, GRANT_SECRET_INVALID, CALLBACK_KEYS_INVALID, QUOTAS_INVALID), Unavailable (STORE_UNAVAILABLE).
func New(ctx context.Context, c Config, p Peers) (*Service, error) {
	p = p.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	keys, err := c.Grants.Keys()
	if err != nil {
		return nil, err
	}
	if c.Server.Callbacks, err = grant.NewCallbackKeys(cmp.Or(c.CallbackKeys, c.Grants.Secret)); err != nil {
		return nil, err
	}
	quotas, err := quota.Read(c.Quotas)
	if err != nil {
		return nil, err
	}
	c.Server.Quotas = quotas
	c.Server.EpochStep = p.EpochStep
	opened, err := open(ctx, c, p)
	if err != nil {
		return nil, fmt.Errorf("open the %s store: %w", c.Store, err)
	}
	var closeBlobs func() error
	if opened.Blobs, closeBlobs, err = c.openBlobs(opened.Blobs); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	s := &Service{
		store: opened, closeBlobs: closeBlobs, watchQuotas: func(ctx context.Context) { quotas.Watch(ctx, p.Log) },
		server: server.New(c.Server, opened, keys, p.Now, p.NewID, p.Log),
	}
	if s.meters, err = meters.New(p.Meter, opened, p.Now); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.server.Measure(s.meters)
	s.sweep = &sweep.Sweep{
		Meters: s.meters,
		Store:  opened, Every: c.SweepEvery, SilentAfter: c.SilentAfter, BrokenAfter: c.BrokenAfter, ExpireEvery: c.ExpireEvery,
		Suspects: s.server.Suspects(), Now: p.Now, Wake: s.server.Wake, TimeOut: s.server.TimeOut, Expire: s.server.Expire,
		Files: sweep.Files{Store: opened, Blobs: opened.Blobs, Now: func() session.Millis { return session.Millis(p.Now().UnixMilli()) }}.Run,
		Audit: s.server.ExpireAudit, Deliveries: s.server.ExpireDeliveries, Log: p.Log,
	}
	return s, nil
}

func (c Config) check() error {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "CONFIG_INVALID", format, args...)
	}
	switch {
	case c.SilentAfter <= 0 || c.SweepEvery <= 0 || c.ExpireEvery <= 0:
		return invalid("HOLDFAST_STATE_SILENT_AFTER, HOLDFAST_STATE_SWEEP_EVERY and HOLDFAST_STATE_EXPIRE_EVERY must be above 0")
	case c.BrokenAfter < 0:
		return invalid("HOLDFAST_STATE_BROKEN_AFTER must not be below 0")
	case c.Store == "sqlite" && c.SQLitePath == "":
		return invalid("the sqlite store needs HOLDFAST_STATE_SQLITE_PATH")
	case c.Store == "postgres" && c.PostgresURL == "":
		return invalid("the postgres store needs HOLDFAST_STATE_POSTGRES_URL")
	case c.Store != "memory" && c.Store != "sqlite" && c.Store != "postgres":
		return invalid("HOLDFAST_STATE_STORE is %q; choose memory, sqlite or postgres", c.Store)
	case c.Files == "folder" && c.FilesFolder == "":
		return invalid("files in a folder need HOLDFAST_STATE_FILES_FOLDER")
	case c.Files != "database" && c.Files != "folder" && c.Files != "s3":
		return invalid("HOLDFAST_STATE_FILES is %q; choose database, folder or s3", c.Files)
	case c.Store == "postgres" && c.Connections <= 0:
		return invalid("HOLDFAST_STATE_POSTGRES_CONNECTIONS must be above 0")
	}
	if err := c.Group.Check(); err != nil {
		return err
	}
	return c.Server.Check()
}

// open retries an unreachable store until OpenWithin has passed. It returns any other error at
// once.
func open(ctx context.Context, c Config, p Peers) (store.Store, error) {
	const firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
	deadline := time.NewTimer(c.OpenWithin)
	defer deadline.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		opened, err := openOnce(ctx, c, p.Meter)
		if err == nil || ctx.Err() != nil || !errors.Is(err, fault.Unavailable) {
			return opened, err
		}
		p.Log.WarnContext(ctx, "store cannot be reached yet", "store", c.Store, "error", err)
		select {
		case <-time.After(pause):
		case <-deadline.C:
			return store.Store{}, err
		case <-ctx.Done():
			return store.Store{}, ctx.Err()
		}
	}
}

// openBlobs returns the configured store of bytes, and a function that closes it.
func (c Config) openBlobs(database store.Blobs) (store.Blobs, func() error, error) {
	nothing := func() error { return nil }
	switch c.Files {
	case "folder":
		f, err := folder.Open(c.FilesFolder)
		if err != nil {
			return nil, nothing, err
		}
		return f, f.Close, nil
	case "s3":
		b, err := bucket.Open(c.S3, nil)
		if err != nil {
			return nil, nothing, err
		}
		return b, nothing, nil
	default:
		return database, nothing, nil
	}
}

func openOnce(ctx context.Context, c Config, meter metric.Meter) (store.Store, error) {
	if c.Store == "postgres" {
		s, err := postgres.Open(ctx, c.PostgresURL, c.Connections, c.Group, meter)
		if err != nil {
			return store.Store{}, err
		}
		return s.Parts(), nil
	}
	path := c.SQLitePath
	if c.Store == "memory" {
		path = sqlite.InMemory
	}
	s, err := sqlite.Open(ctx, path, c.Group, meter)
	if err != nil {
		return store.Store{}, err
	}
	return s.Parts(), nil
}

// Register offers the gRPC services of the contract.
func (s *Service) Register(r grpc.ServiceRegistrar) { s.server.Register(r) }

// Run runs the background work until ctx ends. Then it ends the claim streams, waits for them,
// and returns nil. Stop the gRPC server at the same time: it ends the streams of clients that
// read nothing.
func (s *Service) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { s.server.Run(ctx) })
	background.Go(func() { s.watchQuotas(ctx) })
	err := s.sweep.Run(ctx)
	s.server.Stop()
	background.Wait()
	return err
}

// Close closes the store. Calls in flight fail.
func (s *Service) Close() error {
	s.meters.Close()
	return errors.Join(s.store.Close(), s.closeBlobs())
}
