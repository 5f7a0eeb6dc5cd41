package harness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	grace      = 4 * time.Second
	drainGrace = 500 * time.Millisecond
	StopLimit  = grace + 6*time.Second
)

// Options say how a system differs from the plain one.
type Options struct {
	Agents    string // the YAML of the agents
	Executors int    // 0 means 1
	Endpoint  string // of an OpenTelemetry collector; empty sends no spans
	// ExecutorEnv and StreamEnv are added to the environment of the executors
	// and of the stream service: NAME=value.
	ExecutorEnv, StreamEnv []string
	LogLevel               string // of every process; empty means debug
}

// System is the four services as processes of their own over a database of
// their own: state on Postgres, stream with an embedded JetStream, executors,
// a gateway that asks for API keys.
type System struct {
	Client // of the first tenant

	State, Stream, Gateway *Process
	Executors              []*Process
	// StreamDir is where the stream service keeps its chunks.
	StreamDir string
	// Effects is the file of the tools' effects.
	Effects Effects

	t testing.TB
}

// Start starts a system and waits until it is ready. It ends with the test.
func Start(t testing.TB, o Options) *System {
	t.Helper()
	dir := t.TempDir()
	s := &System{t: t, Effects: Effects{t: t, dir: filepath.Join(dir, "notes")}}
	if err := os.MkdirAll(s.Effects.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.State = o.service(t, "state", "",
		"HOLDFAST_STATE_STORE=postgres",
		"HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(t))
	s.StreamDir = filepath.Join(dir, "stream")
	s.Stream = o.service(t, "stream", "", append([]string{
		"HOLDFAST_STREAM_BUS=embedded",
		"HOLDFAST_STREAM_DATA_DIR=" + s.StreamDir,
	}, o.StreamEnv...)...)
	env := append([]string{
		"HOLDFAST_EXECUTOR_AGENTS=" + writeFile(t, dir, "agents.yaml", o.Agents),
		"HOLDFAST_EXECUTOR_NOTES_DIR=" + s.Effects.dir,
		"HOLDFAST_EXECUTOR_DRAIN_GRACE=" + drainGrace.String(),
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + s.State.Address,
		"HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + s.Stream.Address,
	}, o.ExecutorEnv...)
	for i := range max(o.Executors, 1) {
		s.Executors = append(s.Executors, o.service(t, "executor", fmt.Sprintf("-%d", i+1), env...))
	}
	s.Gateway = o.service(t, "gateway", "",
		"HOLDFAST_GATEWAY_API_KEYS="+writeFile(t, dir, "keys.yaml", keysFile("first", Key, "other", OtherKey)),
		"HOLDFAST_GATEWAY_STATE_ADDRESS="+s.State.Address,
		"HOLDFAST_GATEWAY_STREAM_ADDRESS="+s.Stream.Address)
	s.Gateway.ready = httpReady(s.Gateway.Address)
	s.Client = Client{URL: "http://" + s.Gateway.Address, Key: Key}
	s.start()
	return s
}

// start starts everything at once: services wait for each other by themselves.
func (s *System) start() {
	s.t.Helper()
	all := append([]*Process{s.State, s.Stream, s.Gateway}, s.Executors...)
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
	s.waitAgents(s.t)
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

func httpReady(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		r.Close = true
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /readyz: %s", response.Status)
		}
		return nil
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
