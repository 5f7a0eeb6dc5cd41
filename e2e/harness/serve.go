package harness

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// SecondKey is another API key of the first tenant of a Served.
const SecondKey = "e2e-second-key-of-the-first-tenant"

// Served is `holdfast serve`: services of production in one process, with the state in memory. Executors of other
// processes can join.
type Served struct {
	Client // of the first tenant, with the scope operate
	*Process

	env []string // of every process of this system
	t   testing.TB
}

// Serve starts `holdfast serve` with these services, or all of them without, and waits until it is ready. It ends with the
// test.
func Serve(t testing.TB, services []string, env ...string) *Served {
	t.Helper()
	dir := t.TempDir()
	keys := writeFile(t, dir, "keys.yaml", keysFile("first", Key, "other", OtherKey)+keyLine("second", "first", SecondKey))
	state, stream, gateway, executor := FreeAddress(t), FreeAddress(t), FreeAddress(t), FreeAddress(t)
	s := &Served{t: t, Client: Client{URL: "http://" + gateway, Key: Key}}
	s.env = append(baseEnv(),
		"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STREAM_DATA_DIR="+filepath.Join(dir, "stream"), PatientState,
		"HOLDFAST_STATE_LISTEN="+state, "HOLDFAST_EXECUTOR_STATE_ADDRESS="+state, "HOLDFAST_GATEWAY_STATE_ADDRESS="+state,
		"HOLDFAST_STREAM_LISTEN="+stream, "HOLDFAST_EXECUTOR_STREAM_ADDRESS="+stream, "HOLDFAST_GATEWAY_STREAM_ADDRESS="+stream,
		"HOLDFAST_GATEWAY_LISTEN="+gateway, "HOLDFAST_GATEWAY_API_KEYS="+keys,
		"HOLDFAST_EXECUTOR_LISTEN="+executor, "HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES="+executor,
		"HOLDFAST_INTERNAL_TOKEN="+InternalToken, "HOLDFAST_SHUTDOWN_GRACE="+grace.String(), "HOLDFAST_LOG_LEVEL=info",
	)
	args := []string{"serve"}
	if len(services) > 0 {
		args = append(args, "--services", strings.Join(services, ","))
	}
	s.Process = s.Join("holdfast serve", Binary(t, "holdfast"), args, env...)
	s.Address = gateway
	s.ready = ok(s.URL + "/healthz")
	s.Start()
	return s
}

// Join returns another process of the system, such as an executor, for the caller to start. Its environment is that of the
// system and env. It ends with the test.
func (s *Served) Join(name, path string, args []string, env ...string) *Process {
	p := &Process{Name: name, t: s.t, path: path, args: args, env: append(slices.Clone(s.env), env...)}
	p.ready = func(context.Context) error { return nil } // the test waits for its agents
	s.t.Cleanup(p.cleanup)
	return p
}
