package registry

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/webhook"
)

const endpointSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// application is an application at an address of this machine, which can be down.
type application struct {
	*endpointapp.App
	*testing.T
	address string
	server  *http.Server
}

func startApplication(t *testing.T, agents ...string) *application {
	t.Helper()
	secret, err := webhook.ParseSecret(endpointSecret)
	if err != nil {
		t.Fatal(err)
	}
	a := &application{App: &endpointapp.App{Secrets: []webhook.Secret{secret}}, T: t, address: "127.0.0.1:0"}
	a.describe(agents...)
	a.up()
	t.Cleanup(a.down)
	return a
}

func (a *application) describe(agents ...string) {
	list := []any{}
	for _, name := range agents {
		list = append(list, map[string]any{"name": name, "model": "scripted/demo", "tools": []any{map[string]any{"name": "t", "callbacks": []string{"execute"}}}})
	}
	a.Describe(map[string]any{"endpoint": 1, "agents": list, "sources": map[string]string{"bad name": "src/a.ts:1"}})
}

func (a *application) url() string { return "http://" + a.address + "/agents" }

func (a *application) up() {
	a.Helper()
	var network net.ListenConfig
	listener, err := network.Listen(a.Context(), "tcp", a.address)
	if err != nil {
		a.Fatal(err)
	}
	a.address = listener.Addr().String()
	server := &http.Server{Handler: a.App, ReadHeaderTimeout: time.Minute}
	a.server = server
	go func() { _ = server.Serve(listener) }() // ErrServerClosed
}

func (a *application) down() { _ = a.server.Close() }

// syncBuffer is a log.
type syncBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// modelsFile writes a file with a scripted model, and more.
func modelsFile(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "models.yaml")
	text := "models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// followEndpoints loads the agents and follows them.
func followEndpoints(t *testing.T, c AgentsConfig, lookup func(string) (string, bool)) (*Registry, *syncBuffer, *changes) {
	t.Helper()
	r, log, seen := New(), &syncBuffer{}, &changes{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	if err := r.Load(t.Context(), c, Peers{Log: logger, LookupEnv: lookup, Changed: seen.add}); err != nil {
		t.Fatal(err)
	}
	catalog, err := NewCatalog(r, agent.Hooks{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() { catalog.Run(t.Context(), func() []string { return nil }, logger) })
	t.Cleanup(func() {
		following.Wait()
		_ = r.Close()
	})
	return r, log, seen
}

type changes struct {
	mu   sync.Mutex
	list []Change
}

func (c *changes) add(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, change)
}

func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.list)
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within 90 s: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func (r *Registry) texts() string {
	var lines []string
	for _, p := range r.Problems() {
		lines = append(lines, p.Kind+": "+p.Text)
	}
	return strings.Join(lines, "\n")
}

func TestAnEndpointIsASourceOfAgents(t *testing.T) {
	t.Parallel()
	app := startApplication(t, "first")
	c := AgentsConfig{AgentsFiles: modelsFile(t, ""), Endpoints: app.url(), EndpointSecrets: []string{endpointSecret}, EndpointPoll: 10 * time.Millisecond}
	r, log, seen := followEndpoints(t, c, nil)
	if got := r.Types(); !slices.Equal(got, []string{"first"}) {
		t.Fatalf("types = %q; %s", got, r.texts())
	}

	app.describe("first", "second")
	eventually(t, "another agent", func() bool { return slices.Equal(r.Types(), []string{"first", "second"}) })

	app.Describe(`{"endpoint":1,"agents":[{"name":"first","model":"scripted/demo"},{"name":"second","model":"scripted/demo","maxSteps":0}],"sources":{"second":"src/a.ts:9"}}`)
	const mistake = `agent: src/a.ts:9: agent "second": maxSteps is 0; it must be between 1 and 10000` + "\nthe former definition of the agent \"second\" is served"
	eventually(t, "a mistake", func() bool { return r.texts() == mistake })
	eventually(t, "it is told", func() bool { return strings.Contains(seen.String(), "src/a.ts:9") })
	if got := r.Types(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("types = %q", got)
	}

	app.Describe(`nonsense`)
	eventually(t, "an unreadable description", func() bool { return strings.Contains(r.texts(), "the description is no JSON object") })
	if got := r.Types(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("types = %q", got)
	}

	app.down()
	eventually(t, "the problem", func() bool { return strings.Contains(r.texts(), "endpoint: the endpoint cannot be reached") })
	if got := r.Types(); !slices.Equal(got, []string{"first", "second"}) || !strings.Contains(r.texts(), "its last description is served") {
		t.Errorf("types = %q; %s", got, r.texts())
	}
	app.describe("second")
	app.up()
	eventually(t, "the repair", func() bool { return slices.Equal(r.Types(), []string{"second"}) && r.texts() == "" })
	for text, want := range map[string]int{"does not describe its agents": 1, "describes its agents again": 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times:\n%s", text, n, log)
		}
	}
	if want := "[{[second] [first] [] []}"; !strings.HasPrefix(strings.ReplaceAll(seen.String(), "[first]", "[first]"), "[{[second] ") {
		t.Errorf("changes = %s, want %s", seen, want)
	}
}

func TestAnExecutorStartsWithoutItsOnlyEndpoint(t *testing.T) {
	t.Parallel()
	app := startApplication(t, "late")
	app.down()
	c := AgentsConfig{AgentsFiles: modelsFile(t, ""), Endpoints: app.url(), EndpointSecrets: []string{endpointSecret}, EndpointPoll: time.Second}
	r, log, _ := followEndpoints(t, c, nil)
	if len(r.Types()) != 0 || !strings.HasPrefix(r.texts(), "endpoint: the endpoint cannot be reached: ") || !strings.Contains(log.String(), "does not describe its agents") {
		t.Errorf("types = %q; %s; log %s", r.Types(), r.texts(), log)
	}
	app.up()
	eventually(t, "the agents", func() bool { return slices.Equal(r.Types(), []string{"late"}) && r.texts() == "" })
}

func TestABadDescriptionDoesNotKeepAnExecutorFromStarting(t *testing.T) {
	t.Parallel()
	app := startApplication(t)
	app.Describe(`{"endpoint":1,"agents":[{"name":"bad","model":"nobody/x"}]}`)
	c := AgentsConfig{Endpoints: app.url(), EndpointSecrets: []string{endpointSecret}}
	r := New()
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Load(t.Context(), c, Peers{Log: slog.New(slog.DiscardHandler)}); err != nil || !strings.Contains(r.texts(), `there is no provider "nobody"`) {
		t.Errorf("Load = %v; %s", err, r.texts())
	}
}

func TestEndpointsOfFiles(t *testing.T) {
	t.Parallel()
	app := startApplication(t, "filed")
	variables := map[string]string{"APP_KEY": endpointSecret}
	lookup := func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
	path := modelsFile(t, "endpoints:\n  - {url: \""+app.url()+"\", secrets: [\"${APP_KEY}\"]}\n")
	c := AgentsConfig{AgentsFiles: path, FileEnv: []string{"*_KEY"}, EndpointPoll: 10 * time.Millisecond, AgentsPoll: 10 * time.Millisecond}
	refused := New()
	t.Cleanup(func() { _ = refused.Close() })
	if err := refused.Load(t.Context(), c, Peers{Log: slog.New(slog.DiscardHandler), LookupEnv: lookup}); fault.ReasonOf(err) != "AGENTS_INVALID" ||
		!strings.Contains(err.Error(), "add it to HOLDFAST_EXECUTOR_ENDPOINT_HOSTS") {
		t.Errorf("a host that is not allowed: %v", err)
	}
	c.EndpointHosts = []string{"127.0.0.1"}
	r, _, _ := followEndpoints(t, c, lookup)
	if got := r.Types(); !slices.Equal(got, []string{"filed"}) {
		t.Errorf("types = %q; %s", got, r.texts())
	}
	described := func() int { return len(r.endpoints.list) }
	if n := described(); n != 1 {
		t.Errorf("%d endpoints are followed", n)
	}
	if err := os.WriteFile(path, []byte("agents: [{name: own, model: scripted/demo}]\nmodels: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file without the endpoint", func() bool { return slices.Equal(r.Types(), []string{"own"}) })
	r.endpoints.mu.Lock()
	defer r.endpoints.mu.Unlock()
	if n := described(); n != 0 {
		t.Errorf("%d endpoints are still followed", n)
	}
}

func TestEndpointsOfTheConfigurationAreChecked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]AgentsConfig{
		"endpoint 2: HOLDFAST_EXECUTOR_ENDPOINT_SECRETS: an endpoint on another machine needs": {Endpoints: "http://127.0.0.1:1/;https://app.example/x"},
		"HOLDFAST_EXECUTOR_ENDPOINT_SECRETS: a secret begins with whsec_":                      {Endpoints: "http://127.0.0.1:1/", EndpointSecrets: []string{"x"}},
		"url: it must begin with https:// or http:// and a host":                               {Endpoints: "app.example"},
		"HOLDFAST_EXECUTOR_AGENTS names no file, and HOLDFAST_EXECUTOR_ENDPOINTS no endpoint":  {Endpoints: ";"},
		"must be above 0": {Endpoints: "http://127.0.0.1:1/", EndpointCalls: -1},
	} {
		err := New().Load(t.Context(), c, Peers{Log: slog.New(slog.DiscardHandler)})
		if fault.ReasonOf(err) != "CONFIG_INVALID" && !strings.Contains(fmt.Sprint(err), "CONFIG_INVALID") || !strings.Contains(err.Error(), want) {
			t.Errorf("Load = %v, want %q", err, want)
		}
	}
	_, err := ParseAgents([]byte("endpoints: [{url: 'http://127.0.0.1:1'}]\nagents: [{name: a, model: openai/x}]\n"), "", func(name string) (string, bool) {
		return "x", name == "OPENAI_API_KEY"
	})
	if err == nil || !strings.Contains(err.Error(), "endpoints need files of agents that an executor follows") {
		t.Errorf("ParseAgents = %v", err)
	}
}

func TestAnEndpointBeyondTheLimitOfAgentsIsLeftOutAlone(t *testing.T) {
	t.Parallel()
	names := func(prefix string, n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("%s%d", prefix, i)
		}
		return list
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	model := "models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\nagents: [{name: own, model: scripted/demo}]\n"
	if err := os.WriteFile(file, []byte(model), 0o600); err != nil {
		t.Fatal(err)
	}
	list := []*application{
		startApplication(t, names("a", 400)...), startApplication(t, names("b", 400)...), startApplication(t, names("c", 300)...),
	}
	slices.SortFunc(list, func(a, b *application) int { return strings.Compare(a.url(), b.url()) }) // the last one is left out
	r := New()
	c := AgentsConfig{AgentsFiles: file, EndpointSecrets: []string{endpointSecret}}
	for _, app := range list {
		c.Endpoints += app.url() + ";"
	}
	if err := r.Load(t.Context(), c, Peers{}); err != nil {
		t.Fatal(err)
	}
	served := len(r.Types())
	left := list[2]
	problems := strings.Join(r.Diagnose(), "\n")
	if !r.Has("own") || served > maxAgents || served < 701 || !strings.Contains(problems, "agents are left out: one executor serves at most 1000") {
		t.Errorf("%d agents, %s", served, problems)
	}
	if p := r.Problems(); len(p) != 1 || p[0].Kind != "endpoint" || p[0].Name != left.url() {
		t.Errorf("problems = %+v, want the endpoint %s alone", p, left.url())
	}

	// An endpoint that grows beyond the limit keeps its former agents.
	grown := list[0]
	grown.describe(names("grown", 500)...)
	for _, e := range r.endpoints.list {
		e.ask(t.Context(), slog.New(slog.DiscardHandler))
	}
	if err := r.Reload(t.Context()); err != nil || !r.Has("own") || len(r.Types()) > maxAgents {
		t.Errorf("%d agents, %v", len(r.Types()), err)
	}
}
