package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

// startNATS starts a NATS server, and returns its URL.
func startNATS(t *testing.T, jetStream bool) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: jetStream, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(limit) {
		t.Fatal("NATS does not start")
	}
	return s.ClientURL()
}

func TestTheDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	o := openOffice(t, writeAgents(t, operatorAgents+slowAgent), data)
	o.expects(0, []string{"ok    gateway", "ok    readiness", "ok    clock", "ok    credentials", "ok    agents", "slow", "0 active sessions", "skip  database", "skip  nats"}, "doctor")
	o.expects(1, []string{"fail  credentials", "--key", "skip  sessions", "1 of 7 checks"}, "doctor", "--key", "wrong")
	o.end(t)
	o.expects(1, []string{"fail  gateway", "skip  sessions"}, "doctor")

	o.opens(t, writeAgents(t, operatorAgents), data)
	o.sends(t, "lost", "slow", "", "Go")
	o.awaits(`no executor serves the agent "slow"`, "doctor", "--queued-for", "0s") // the former executor is silent by then
	o.expects(1, []string{"fail  sessions", "1 run queued: lost (for "}, "doctor", "--queued-for", "0s")
	o.expects(0, []string{"1 active session, and none is stuck"}, "doctor", "--queued-for", "1h")
	var checks []cli.Check
	if err := json.Unmarshal([]byte(o.expects(0, nil, "doctor", "--json")), &checks); err != nil || len(checks) != 8 {
		t.Errorf("the JSON has %d checks: %v", len(checks), err)
	}
	// This machine's database and NATS are checked if the environment names them.
	known := o.environ
	o.environ = append(known, "HOLDFAST_STATE_SQLITE_PATH="+filepath.Join(data, "state.db"), "HOLDFAST_STREAM_NATS_URL="+startNATS(t, true))
	o.expects(0, []string{"ok    database     SQLite 3.", "ok    nats         NATS 2."}, "doctor")
	o.environ = append(known, "HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(t), "HOLDFAST_STREAM_NATS_URL="+startNATS(t, false))
	o.expects(1, []string{"fail  database     PostgreSQL ", "has migration 0 of", "holdfast migrate up", "fail  nats", "2 of 8 checks"}, "doctor")
	o.environ = append(known, "HOLDFAST_STATE_POSTGRES_URL=postgres://127.0.0.1:1/x", "HOLDFAST_STREAM_NATS_URL=nats://127.0.0.1:1")
	o.expects(1, []string{"fail  database", "fail  nats"}, "doctor")
}

func TestTheDoctorReportsClocksThatDifferAndServicesThatAreMissing(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte(`{"status":"ok"}`))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"status":"unavailable","notReady":["state"]}`))
	})
	gateway := httptest.NewServer(mux)
	t.Cleanup(gateway.Close)
	d := newDesk(t, cli.URLVariable+"="+gateway.URL)
	d.expects(1, []string{"fail  readiness    the gateway misses state", "fail  clock", "differ by 1h0m0s", "fail  agents"}, "doctor")
}

func TestMigrateShowsAndUpdatesTheSchema(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string]string{
		"SQLite":     "HOLDFAST_STATE_SQLITE_PATH=" + filepath.Join(t.TempDir(), "state.db"),
		"PostgreSQL": "HOLDFAST_STATE_POSTGRES_URL=" + pgtest.URL(t),
	} {
		d := newDesk(t, environ)
		d.expects(0, []string{`"current": false`}, "migrate", "status", "--json")
		d.expects(0, []string{"0001_sessions.sql\n0002_whole.sql\n"}, "migrate", "plan")
		d.expects(0, []string{"-- 0001_sessions.sql\n", "CREATE TABLE"}, "migrate", "plan", "--sql")
		d.expects(0, []string{`"0001_sessions.sql",`, `"applied": 0`}, "migrate", "plan", "--json")
		d.expects(0, []string{name, "has all "}, "migrate", "up")
		d.expects(0, []string{name, "has all "}, "migrate", "status")
		d.expects(0, []string{name, "has all "}, "migrate", "plan")
	}
	newDesk(t).expects(2, []string{"DATABASE_UNNAMED"}, "migrate", "up")
	newDesk(t, "HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_SQLITE_PATH=x").expects(2, []string{"CONFIG_INVALID"}, "migrate", "status")
	newDesk(t, "HOLDFAST_STATE_POSTGRES_URL=postgres://127.0.0.1:1/x").expects(6, []string{"connection refused"}, "migrate", "status")
}
