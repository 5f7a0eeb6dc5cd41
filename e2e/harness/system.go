package harness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

// The API keys of the two tenants of every system.
const (
	Key      = "e2e-key-of-the-first-tenant"
	OtherKey = "e2e-key-of-the-other-tenant"
)

// InternalToken secures the calls between services, unless an option names other tokens.
const InternalToken = "e2e-internal-token"

// Shutdown after SIGTERM. A short drainGrace interrupts steps in flight, so tests meet executors that return
// half a step. StopLimit is how long any process may take.
const (
	grace      = 15 * time.Second
	drainGrace = 500 * time.Millisecond
	StopLimit  = grace + 45*time.Second
)

// PatientState is for the StateEnv of a system without dying executors: a busy machine then does not lose one.
const PatientState = "HOLDFAST_STATE_SILENT_AFTER=30s"

// Options configure a system.
type Options struct {
	Agents    string // the YAML of the agents
	Executors int    // 0 means 1, NoExecutors none
	// States and Gateways are the numbers of replicas; 0 means 1. Gateway n calls state replica n, and executors
	// call the first.
	States, Gateways int
	Endpoint         string // of an OpenTelemetry collector; empty sends no spans
	// These variables, NAME=value, are added to the environment of each service.
	ExecutorEnv, StreamEnv, StateEnv, GatewayEnv []string
	LogLevel                                     string // of every process; empty means debug
	PostgresURL                                  string // of the database; empty makes a new one
	// NATS stores the chunks in this system, with a copy on each server, instead of an embedded log.
	NATS *NATS
	// Streams is the number of stream replicas; 0 means 1, more need NATS.
	Streams int
	// Fronts puts a proxy before the only state and the only stream service, so that a test can replace their
	// processes. See Successor.
	Fronts bool
}

// NoExecutors starts a system without executors.
const NoExecutors = -1

// System runs the four services as processes with a database of their own: state on Postgres, stream with an
// embedded JetStream or on NATS, executors, and a gateway with API keys.
type System struct {
	Client // of the first tenant

	State, Stream, Gateway *Process
	Executors              []*Process
	// States and Gateways are all replicas. State and Gateway are the first ones.
	States, Gateways []*Process
	// Streams are all stream replicas; Stream is the first. With several, the gateway reads from the first and
	// the executors write to the second, each through a switchable proxy.
	Streams                     []*Process
	GatewayFront, ExecutorFront *Proxy // nil with one replica; one and the same with Options.Fronts
	// StateFront is before the state service; nil without Options.Fronts.
	StateFront *Proxy
	// StreamDir is the data folder of the stream service; unused with NATS.
	StreamDir string
	// Effects reads the file of the tools' effects.
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
	if o.PostgresURL == "" {
		o.PostgresURL = pgtest.URL(t)
	}
	s.addStates(o, o.PostgresURL)
	s.StreamDir = filepath.Join(dir, "stream")
	readFrom, writeTo := s.addStreams(o)
	s.executorEnv = append([]string{
		"HOLDFAST_EXECUTOR_NOTES_DIR=" + s.Effects.dir,
		"HOLDFAST_EXECUTOR_DRAIN_GRACE=" + drainGrace.String(),
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + s.stateAddress(0),
		"HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + writeTo,
	}, o.ExecutorEnv...)
	if o.Executors != NoExecutors {
		agents := "HOLDFAST_EXECUTOR_AGENTS=" + writeFile(t, dir, "agents.yaml", o.Agents)
		for i := range max(o.Executors, 1) {
			s.Executors = append(s.Executors, o.service(t, "executor", fmt.Sprintf("-%d", i+1), append([]string{agents}, s.executorEnv...)...))
		}
	}
	var addresses []string // of the executors, which check stored agents
	for _, executor := range s.Executors {
		addresses = append(addresses, executor.Address)
	}
	o.GatewayEnv = append([]string{"HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES=" + strings.Join(addresses, ",")}, o.GatewayEnv...)
	s.addGateways(o, writeFile(t, dir, "keys.yaml", keysFile("first", Key, "other", OtherKey)), readFrom)
	s.Client = Client{URL: "http://" + s.Gateway.Address, Key: Key}
	s.start()
	return s
}

// addStates adds the state replicas over one database.
func (s *System) addStates(o Options, url string) {
	s.t.Helper()
	env := append([]string{"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=" + url}, o.StateEnv...)
	for i := range max(o.States, 1) {
		s.States = append(s.States, o.service(s.t, "state", replica(o.States, i), env...))
	}
	s.State = s.States[0]
	if o.Fronts {
		s.StateFront = StartProxy(s.t, s.State.Address)
	}
}

// stateAddress returns the address at which other services reach a state replica.
func (s *System) stateAddress(i int) string {
	if s.StateFront != nil {
		return s.StateFront.Address
	}
	return s.States[i].Address
}

// addGateways adds the gateway replicas.
func (s *System) addGateways(o Options, keys, readFrom string) {
	s.t.Helper()
	for i := range max(o.Gateways, 1) {
		p := o.service(s.t, "gateway", replica(o.Gateways, i), append([]string{
			"HOLDFAST_GATEWAY_API_KEYS=" + keys,
			"HOLDFAST_GATEWAY_STATE_ADDRESS=" + s.stateAddress(i%len(s.States)),
			"HOLDFAST_GATEWAY_STREAM_ADDRESS=" + readFrom,
			// A state service that waits for a processor must not fail a request.
			"HOLDFAST_GATEWAY_STATE_PATIENCE=" + startLimit.String(),
		}, o.GatewayEnv...)...)
		p.ready = ok("http://" + p.Address + "/readyz")
		if o.Executors == NoExecutors { // it becomes ready when the first executor has announced its agents
			p.ready = ok("http://" + p.Address + "/healthz")
		}
		s.Gateways = append(s.Gateways, p)
	}
	s.Gateway = s.Gateways[0]
}

// replica returns the suffix of a replica's name.
func replica(of, i int) string {
	if of <= 1 {
		return ""
	}
	return fmt.Sprintf("-%d", i+1)
}

// At returns the first tenant's client of a gateway replica.
func (s *System) At(gateway int) Client {
	return Client{URL: "http://" + s.Gateways[gateway].Address, Key: Key}
}

// addStreams adds the stream replicas and returns the addresses for the gateway and for the executors.
func (s *System) addStreams(o Options) (readFrom, writeTo string) {
	s.t.Helper()
	env := []string{"HOLDFAST_STREAM_BUS=embedded", "HOLDFAST_STREAM_DATA_DIR=" + s.StreamDir}
	if o.NATS != nil {
		env = []string{
			"HOLDFAST_STREAM_BUS=nats", "HOLDFAST_STREAM_NATS_URL=" + o.NATS.URL(),
			fmt.Sprintf("HOLDFAST_STREAM_REPLICAS=%d", o.NATS.Nodes()),
		}
	}
	// A service without working NATS servers keeps waiting during its boot.
	env = append(env, "HOLDFAST_STREAM_BOOT_TIMEOUT="+startLimit.String())
	env = append(env, o.StreamEnv...)
	if o.Streams <= 1 {
		s.Stream = o.service(s.t, "stream", "", env...)
		s.Streams = []*Process{s.Stream}
		if o.Fronts {
			s.GatewayFront = StartProxy(s.t, s.Stream.Address)
			s.ExecutorFront = s.GatewayFront
			return s.GatewayFront.Address, s.GatewayFront.Address
		}
		return s.Stream.Address, s.Stream.Address
	}
	for i := range o.Streams {
		s.Streams = append(s.Streams, o.service(s.t, "stream", fmt.Sprintf("-%d", i+1), env...))
	}
	s.Stream = s.Streams[0]
	s.GatewayFront, s.ExecutorFront = StartProxy(s.t, s.Streams[0].Address), StartProxy(s.t, s.Streams[1].Address)
	return s.GatewayFront.Address, s.ExecutorFront.Address
}

// start starts all processes at once. Services wait for each other.
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

// Executor adds another executor with its own binary; the caller starts it. It ends with the given test.
func (s *System) Executor(t testing.TB, name, path string, env ...string) *Process {
	t.Helper()
	p := s.options.service(t, "executor", "", append(slices.Clone(s.executorEnv), env...)...)
	p.Name, p.path = name, path
	t.Cleanup(p.cleanup)
	return p
}

// ServeAt gives an unstarted executor another address. A gateway may know the address already.
func (p *Process) ServeAt(address string) {
	p.Address, p.ready = address, grpcReady(address)
	p.env = append(p.env, "HOLDFAST_EXECUTOR_LISTEN="+address)
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
			"HOLDFAST_INTERNAL_TOKEN="+InternalToken,
			"HOLDFAST_SHUTDOWN_GRACE="+grace.String(),
			"HOLDFAST_LOG_LEVEL="+cmp.Or(o.LogLevel, "debug"),
		),
	}
	if name == "executor" {
		p.measureAt(FreeAddress(t))
	}
	p.env = append(p.env, env...)
	if o.Endpoint != "" {
		// Export at once: a killed process loses its buffered spans.
		p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+o.Endpoint, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=500",
			"OTEL_RESOURCE_ATTRIBUTES=service.instance.id="+p.Name)
	}
	return p
}

// measureAt makes an unstarted process serve its measurements at the address.
func (p *Process) measureAt(address string) {
	p.metrics = address
	p.env = append(p.env, "HOLDFAST_METRICS_LISTEN="+address)
}

// baseEnv is the environment of every process. Nothing else is inherited.
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

// Other returns the client of the other tenant.
func (s *System) Other() Client { return Client{URL: s.URL, Key: OtherKey} }

// Busy waits until an executor holds a run, and returns it.
func (s *System) Busy() *Process {
	s.t.Helper()
	var busy *Process
	WaitFor(s.t, startLimit, "an executor to hold a run", func() (bool, string) {
		for _, p := range s.Executors {
			if p.Running() && s.Live(p) > 0 {
				busy = p
				return true, ""
			}
		}
		return false, "no executor holds any"
	})
	return busy
}

// heldRuns finds the number of held runs among the measurements of an executor.
var heldRuns = regexp.MustCompile(`(?m)^holdfast_executor_runs (\d+)$`)

// Live counts the runs held by an executor.
func (s *System) Live(p *Process) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatalf("read the measurements of %s: %v", p.Name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	found := heldRuns.FindSubmatch(text)
	if err != nil || found == nil {
		s.t.Fatalf("%s measures no held runs: %s %v", p.Name, answer.Status, err)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func keysFile(tenantsAndKeys ...string) string {
	var b strings.Builder
	for i := 0; i < len(tenantsAndKeys); i += 2 {
		b.WriteString(keyLine("e2e", tenantsAndKeys[i], tenantsAndKeys[i+1]))
	}
	return b.String()
}

func keyLine(name, tenant, key string) string {
	digest := sha256.Sum256([]byte(key))
	return fmt.Sprintf("- {name: %s, tenant: %s, scopes: [operate], sha256: %s}\n", name, tenant, hex.EncodeToString(digest[:]))
}

func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
