package harness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
)

// The API keys of the two tenants that every system has.
const (
	Key      = "e2e-key-of-the-first-tenant"
	OtherKey = "e2e-key-of-the-other-tenant"
)

// internalToken is set in every system, so that every call between services
// carries and checks it.
const internalToken = "e2e-internal-token"

// How processes end after SIGTERM. Steps in flight are cut soon, so that tests
// meet executors that give half a step back; StopLimit is how long any process
// may take.
const (
	grace      = 15 * time.Second
	drainGrace = 500 * time.Millisecond
	StopLimit  = grace + 45*time.Second
)

// PatientState is for the StateEnv of a system in which no executor dies: none of them is
// given up for lost on a machine that lets it wait for its processor.
const PatientState = "HOLDFAST_STATE_SILENT_AFTER=30s"

// Options say how a system differs from the plain one.
type Options struct {
	Agents    string // the YAML of the agents
	Executors int    // 0 means 1, NoExecutors none
	// States and Gateways are how many replicas these services have; 0 means 1. A
	// gateway asks the state replica of its number, and executors ask the first.
	States, Gateways int
	Endpoint         string // of an OpenTelemetry collector; empty sends no spans
	// ExecutorEnv, StreamEnv, StateEnv and GatewayEnv are added to the environment of
	// the executors, of the stream service, of the state service and of the gateways:
	// NAME=value.
	ExecutorEnv, StreamEnv, StateEnv, GatewayEnv []string
	LogLevel                                     string // of every process; empty means debug
	// NATS keeps the chunks in this system, a copy on each of its servers,
	// instead of in the stream service itself.
	NATS *NATS
	// Streams is how many replicas the stream service has, which needs NATS when
	// it is more than one; 0 means 1.
	Streams int
}

// NoExecutors is for a system to which executors are added.
const NoExecutors = -1

// System is the four services as processes of their own over a database of
// their own: state on Postgres, stream with an embedded JetStream or on NATS,
// executors, a gateway that asks for API keys.
type System struct {
	Client // of the first tenant

	State, Stream, Gateway *Process
	Executors              []*Process
	// States and Gateways are all replicas, of which State and Gateway are the first.
	States, Gateways []*Process
	// Streams are all replicas of the stream service, of which Stream is the
	// first. Of several the gateway reads from the first and the executors write
	// to the second, each through a proxy that can be switched to another one.
	Streams                     []*Process
	GatewayFront, ExecutorFront *Proxy // nil with one replica
	// StreamDir is where the stream service keeps its chunks; on NATS, nowhere.
	StreamDir string
	// Effects is the file of the tools' effects.
	Effects Effects

	t           testing.TB
	options     Options
	executorEnv []string
}

// Start starts a system and waits until it is ready. It ends with the test.
func Start(t testing.TB, o Options) *System {
	t.Helper()
	dir := t.TempDir()
	s := &System{t: t, options: o, Effects: Effects{t: t, dir: filepath.Join(dir, "notes")}}
	if err := os.MkdirAll(s.Effects.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.addStates(o, pgtest.URL(t))
	s.StreamDir = filepath.Join(dir, "stream")
	readFrom, writeTo := s.addStreams(o)
	s.executorEnv = append([]string{
		"HOLDFAST_EXECUTOR_NOTES_DIR=" + s.Effects.dir,
		"HOLDFAST_EXECUTOR_DRAIN_GRACE=" + drainGrace.String(),
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + s.State.Address,
		"HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + writeTo,
	}, o.ExecutorEnv...)
	if o.Executors != NoExecutors {
		agents := "HOLDFAST_EXECUTOR_AGENTS=" + writeFile(t, dir, "agents.yaml", o.Agents)
		for i := range max(o.Executors, 1) {
			s.Executors = append(s.Executors, o.service(t, "executor", fmt.Sprintf("-%d", i+1), append([]string{agents}, s.executorEnv...)...))
		}
	}
	s.addGateways(o, writeFile(t, dir, "keys.yaml", keysFile("first", Key, "other", OtherKey)), readFrom)
	s.Client = Client{URL: "http://" + s.Gateway.Address, Key: Key}
	s.start()
	return s
}

// addStates adds the replicas of the state service, over one database.
func (s *System) addStates(o Options, url string) {
	s.t.Helper()
	env := append([]string{"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=" + url}, o.StateEnv...)
	for i := range max(o.States, 1) {
		s.States = append(s.States, o.service(s.t, "state", replica(o.States, i), env...))
	}
	s.State = s.States[0]
}

// addGateways adds the replicas of the gateway.
func (s *System) addGateways(o Options, keys, readFrom string) {
	s.t.Helper()
	for i := range max(o.Gateways, 1) {
		p := o.service(s.t, "gateway", replica(o.Gateways, i), append([]string{
			"HOLDFAST_GATEWAY_API_KEYS=" + keys,
			"HOLDFAST_GATEWAY_STATE_ADDRESS=" + s.States[i%len(s.States)].Address,
			"HOLDFAST_GATEWAY_STREAM_ADDRESS=" + readFrom,
			// A state service that has to wait for its processor is no failure of a request.
			"HOLDFAST_GATEWAY_STATE_PATIENCE=" + startLimit.String(),
		}, o.GatewayEnv...)...)
		p.ready = ok("http://" + p.Address + "/readyz")
		s.Gateways = append(s.Gateways, p)
	}
	s.Gateway = s.Gateways[0]
}

// replica is what a name ends with where there are several.
func replica(of, i int) string {
	if of <= 1 {
		return ""
	}
	return fmt.Sprintf("-%d", i+1)
}

// At is the client of the first tenant at one of the gateways.
func (s *System) At(gateway int) Client {
	return Client{URL: "http://" + s.Gateways[gateway].Address, Key: Key}
}

// addStreams adds the replicas of the stream service, and returns the address
// that the gateway gets and the one that the executors get.
func (s *System) addStreams(o Options) (readFrom, writeTo string) {
	s.t.Helper()
	env := []string{"HOLDFAST_STREAM_BUS=embedded", "HOLDFAST_STREAM_DATA_DIR=" + s.StreamDir}
	if o.NATS != nil {
		env = []string{
			"HOLDFAST_STREAM_BUS=nats", "HOLDFAST_STREAM_NATS_URL=" + o.NATS.URL(),
			fmt.Sprintf("HOLDFAST_STREAM_REPLICAS=%d", o.NATS.Nodes()),
		}
	}
	// A service that boots while its NATS servers are broken waits as long as the test does.
	env = append(env, "HOLDFAST_STREAM_BOOT_TIMEOUT="+startLimit.String())
	env = append(env, o.StreamEnv...)
	if o.Streams <= 1 {
		s.Stream = o.service(s.t, "stream", "", env...)
		s.Streams = []*Process{s.Stream}
		return s.Stream.Address, s.Stream.Address
	}
	for i := range o.Streams {
		s.Streams = append(s.Streams, o.service(s.t, "stream", fmt.Sprintf("-%d", i+1), env...))
	}
	s.Stream = s.Streams[0]
	s.GatewayFront, s.ExecutorFront = StartProxy(s.t, s.Streams[0].Address), StartProxy(s.t, s.Streams[1].Address)
	return s.GatewayFront.Address, s.ExecutorFront.Address
}

// start starts everything at once: services wait for each other by themselves.
func (s *System) start() {
	s.t.Helper()
	all := slices.Concat(s.States, s.Gateways, s.Streams, s.Executors)
	s.t.Cleanup(func() {
		for _, p := range all {
			p.cleanup()
		}
	})
	for _, p := range all {
		p.StartOnly()
	}
	for _, p := range all {
		p.WaitReady()
	}
	if len(s.Executors) > 0 {
		s.waitAgents(s.t)
	}
}

// Executor makes one more executor, of a binary, which the caller starts. It ends with
// the test, which need not be that of the system.
func (s *System) Executor(t testing.TB, name, path string, env ...string) *Process {
	t.Helper()
	p := s.options.service(t, "executor", "", append(slices.Clone(s.executorEnv), env...)...)
	p.Name, p.path = name, path
	t.Cleanup(p.cleanup)
	return p
}

func (o Options) service(t testing.TB, name, suffix string, env ...string) *Process {
	t.Helper()
	address := FreeAddress(t)
	p := &Process{
		Name:    name + suffix,
		Address: address,
		t:       t,
		path:    Binary(t, name),
		ready:   grpcReady(address),
		env: append(baseEnv(),
			"HOLDFAST_"+strings.ToUpper(name)+"_LISTEN="+address,
			"HOLDFAST_INTERNAL_TOKEN="+internalToken,
			"HOLDFAST_SHUTDOWN_GRACE="+grace.String(),
			"HOLDFAST_LOG_LEVEL="+cmp.Or(o.LogLevel, "debug"),
		),
	}
	p.env = append(p.env, env...)
	if o.Endpoint != "" {
		// The spans of a killed process are lost with it unless they have
		// left it before.
		p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+o.Endpoint, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=500",
			"OTEL_RESOURCE_ATTRIBUTES=service.instance.id="+p.Name)
	}
	return p
}

// baseEnv is what every process gets; nothing else of the test's own
// environment reaches it.
func baseEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
}

func grpcReady(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil && answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("its health is %v", answer.GetStatus())
		}
		return err
	}
}

// Other is the client of the other tenant.
func (s *System) Other() Client { return Client{URL: s.URL, Key: OtherKey} }

// Busy waits until an executor holds a run, and returns it.
func (s *System) Busy() *Process {
	s.t.Helper()
	var busy *Process
	WaitFor(s.t, startLimit, "an executor to hold a run", func() (bool, string) {
		for _, p := range s.Executors {
			if p.Running() && len(s.liveRuns(p)) > 0 {
				busy = p
				return true, ""
			}
		}
		return false, "no executor holds any"
	})
	return busy
}

// Live counts the runs that an executor holds.
func (s *System) Live(p *Process) int { return len(s.liveRuns(p)) }

func (s *System) liveRuns(p *Process) []string {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	conn, err := rpc.Dial(rpc.TCP(), p.Address, rpc.ClientConfig{Security: rpc.Security{Token: internalToken}})
	if err != nil {
		s.t.Fatalf("dial %s: %v", p.Name, err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := executorv1.NewExecutorServiceClient(conn).Describe(ctx, &executorv1.DescribeRequest{})
	if err != nil {
		s.t.Fatalf("ask %s what it does: %v", p.Name, err)
	}
	return answer.GetLiveRunIds()
}

func keysFile(tenantsAndKeys ...string) string {
	var b strings.Builder
	for i := 0; i < len(tenantsAndKeys); i += 2 {
		digest := sha256.Sum256([]byte(tenantsAndKeys[i+1]))
		fmt.Fprintf(&b, "- {name: e2e, tenant: %s, sha256: %s}\n", tenantsAndKeys[i], hex.EncodeToString(digest[:]))
	}
	return b.String()
}

func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
