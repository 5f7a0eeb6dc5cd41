package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// freeAddress returns an address on loopback that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// production is an environment in which all services find each other.
func production(t *testing.T) (environ []string, gateway string) {
	t.Helper()
	data, state, stream, public := t.TempDir(), freeAddress(t), freeAddress(t), freeAddress(t)
	return []string{
		"HOLDFAST_STATE_SQLITE_PATH=" + filepath.Join(data, "state.db"), "HOLDFAST_STREAM_DATA_DIR=" + filepath.Join(data, "stream"),
		"HOLDFAST_STATE_LISTEN=" + state, "HOLDFAST_EXECUTOR_STATE_ADDRESS=" + state, "HOLDFAST_GATEWAY_STATE_ADDRESS=" + state,
		"HOLDFAST_STREAM_LISTEN=" + stream, "HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + stream, "HOLDFAST_GATEWAY_STREAM_ADDRESS=" + stream,
		"HOLDFAST_EXECUTOR_LISTEN=" + freeAddress(t), "HOLDFAST_EXECUTOR_AGENTS=" + writeAgents(t, operatorAgents+slowAgent),
		"HOLDFAST_GATEWAY_LISTEN=" + public, "HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true", "HOLDFAST_LOG_LEVEL=error",
	}, "http://" + public
}

// served runs holdfast serve until the end of the test, or until stop.
func served(t *testing.T, environ []string, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, append([]string{"serve"}, args...), environ, io.Discard, io.Discard) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("serve %q ended with %v", args, err)
			}
		case <-time.After(limit):
			t.Errorf("serve %q does not end", args)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestServeRunsTheServicesTogetherAndApart(t *testing.T) {
	t.Parallel()
	environ, gateway := production(t)
	d := newDesk(t, cli.URLVariable+"="+gateway)
	stop := served(t, environ)
	d.awaits("sums", "agents", "list")
	d.expects(5, []string{"Let me see."}, "chat", "sums", "--session", "kept", "-m", "What is 6 * 7?")
	stop()
	d.expects(6, []string{"GATEWAY_UNREACHABLE"}, "agents", "list")

	served(t, environ, "--services", "state,stream")
	served(t, environ, "--services", "executor")
	served(t, environ, "--services", "gateway")
	d.awaits("an approval", "calls", "list")
	d.expects(0, []string{"accepted"}, "calls", "approve", "kept", "call_1_1")
	d.awaits("It is 42.", "runs", "watch", "kept")
}

func TestServeMakesTheChecksOfTheSingleServices(t *testing.T) {
	t.Parallel()
	environ, _ := production(t)
	for _, c := range []struct {
		reason string
		change string
		args   []string
	}{
		{"SERVICE_UNKNOWN", "", []string{"--services", "state,browser"}},
		{"CONFIG_INVALID", "HOLDFAST_SHUTDOWN_GRACE=soon", nil},
		{"INSECURE_LISTEN", "HOLDFAST_GATEWAY_LISTEN=0.0.0.0:0", []string{"--services", "gateway"}},
		{"INSECURE_LISTEN", "HOLDFAST_STATE_LISTEN=0.0.0.0:0", []string{"--services", "state"}},
		{"INSECURE_LISTEN", "HOLDFAST_STREAM_LISTEN=:0", []string{"--services", "stream"}},
		{"CONFIG_INVALID", "HOLDFAST_GATEWAY_INSECURE_NO_AUTH=false", []string{"--services", "gateway"}},
		{"AGENTS_NOT_FOUND", "HOLDFAST_EXECUTOR_AGENTS=none.yaml", []string{"--services", "executor"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := run(ctx, append([]string{"serve"}, c.args...), append(slices.Clone(environ), c.change), io.Discard, io.Discard)
		cancel()
		if fault.ReasonOf(err) != c.reason {
			t.Errorf("%s, %q: got %v, want %s", c.change, c.args, err, c.reason)
		}
	}
}

func TestTheConfigurationShowsItsSourcesAndNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	environ := []string{
		"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=postgres://holdfast:" + secret + "@db:5432/holdfast", "HOLDFAST_GRANT_SECRET=" + secret,
		"HOLDFAST_INTERNAL_TOKEN=" + secret, "HOLDFAST_GATEWAY_TOKEN_SECRET=" + secret, "HOLDFAST_STATE_S3_SECRET_KEY=" + secret,
		"HOLDFAST_STREAM_NATS_URL=nats://" + secret + "@a:4222", "HOLDFAST_STATE_STOER=x", cli.KeyVariable + "=" + secret,
	}
	d := newDesk(t, environ...)
	for _, want := range []string{
		"HOLDFAST_STATE_STORE postgres environment state", "HOLDFAST_STATE_LISTEN 127.0.0.1:7411 default state",
		"HOLDFAST_STATE_POSTGRES_URL postgres://holdfast:******@db:5432/holdfast environment", "HOLDFAST_GRANT_SECRET ****** environment state, stream",
		"HOLDFAST_INTERNAL_TOKENS - - state, stream, executor, gateway", "! HOLDFAST_STATE_STOER is set",
	} {
		got := d.expects(0, nil, "config")
		if lines := strings.Join(strings.Fields(got), " "); !strings.Contains(lines, want) || strings.Contains(got, secret) || strings.Contains(got, cli.KeyVariable) {
			t.Fatalf("no %q, or a secret, in\n%s", want, got)
		}
	}
	if got := d.expects(0, []string{"HOLDFAST_STREAM_NATS_URL"}, "config", "--service", "stream", "--set"); strings.Contains(got, "_STATE_STORE") || strings.Contains(got, "7412") {
		t.Errorf("got more than the set variables of stream:\n%s", got)
	}
	var view configView
	if err := json.Unmarshal([]byte(d.expects(0, nil, "config", "--json")), &view); err != nil || len(view.Settings) < 100 || len(view.Unknown) != 1 {
		t.Errorf("the JSON has %d settings and %q unknown: %v", len(view.Settings), view.Unknown, err)
	}
	wrong := newDesk(t, "HOLDFAST_STATE_SWEEP_EVERY=often")
	wrong.expects(2, []string{"CONFIG_INVALID", "HOLDFAST_STATE_SWEEP_EVERY"}, "config", "--service", "state")
	wrong.expects(2, []string{"SERVICE_UNKNOWN"}, "config", "--service", "browser")
}

// The disposition of a signal is that of the whole process.
//
//nolint:paralleltest // see above
func TestAHangupDoesNotEndServe(t *testing.T) {
	signal.Reset(syscall.SIGHUP)
	if err := run(t.Context(), []string{"serve", "--services", "nothing"}, nil, io.Discard, io.Discard); fault.ReasonOf(err) != "SERVICE_UNKNOWN" {
		t.Fatalf("got %v, want SERVICE_UNKNOWN", err)
	}
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("a hangup would end the services")
	}
}
