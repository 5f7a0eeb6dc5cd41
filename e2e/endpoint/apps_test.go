package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/client"
)

// native is the language whose agents run in the executor's own process.
const native = "go"

// languages start a system with the conformance app of the language.
var languages = []struct {
	name  string
	start func(*testing.T) *world
}{
	{native, startGo},
	{"typescript", func(t *testing.T) *world { return startEndpoint(t, typescript) }},
	{"python", func(t *testing.T) *world { return startEndpoint(t, python) }},
}

// endpointPath is the path of the endpoint in every app.
const endpointPath = "/holdfast"

// appOf starts the conformance app of a language, with these secrets and other variables. It ends with the test.
type appOf func(t *testing.T, o *outside, secrets string, env ...string) *harness.Process

var endpointApps = map[string]appOf{"typescript": typescript, "python": python}

// newWorld starts what every system needs: the ledger and the model.
func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{outside: startOutside(t), model: startModel(t)}
}

// join adds the client of the system.
func (w *world) join(s *harness.Served) {
	w.served = s
	w.client = client.New(client.Config{URL: s.URL, Key: harness.Key})
	w.others = client.New(client.Config{URL: s.URL, Key: harness.SecondKey})
}

// modelEnv lets a stock executor call the scripted model.
func (w *world) modelEnv(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "models.yaml")
	text := fmt.Sprintf("models:\n  suite: {provider: openai, baseURL: %q}\n", w.model.URL+"/v1")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "HOLDFAST_EXECUTOR_AGENTS=" + file
}

// startGo starts a system whose agents are values in Go, in an executor of their own.
func startGo(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.join(harness.Serve(t, []string{"state", "stream", "gateway"}))
	app := w.served.Join("goapp", harness.Program(t, "e2e/endpoint/testdata/goapp"), nil,
		"MODEL_URL="+w.model.URL+"/v1", "OUTSIDE_URL="+w.outside.URL)
	app.Start()
	w.served.WaitAgent(t, "methodical")
	return w
}

// startEndpoint starts a system whose agents are at an endpoint.
func startEndpoint(t *testing.T, app appOf) *world {
	t.Helper()
	w := newWorld(t)
	p := app(t, w.outside, oldSecret+","+newSecret)
	w.serveEndpoint(t, "http://"+p.Address+endpointPath)
	w.served.WaitAgent(t, "methodical")
	return w
}

// serveEndpoint starts all services, with an executor that calls the endpoint.
func (w *world) serveEndpoint(t *testing.T, url string, env ...string) {
	t.Helper()
	w.join(harness.Serve(t, nil, append([]string{
		w.modelEnv(t), "HOLDFAST_EXECUTOR_ENDPOINTS=" + url, "HOLDFAST_EXECUTOR_ENDPOINT_SECRETS=" + newSecret,
		"HOLDFAST_EXECUTOR_ENDPOINT_POLL=200ms",
	}, env...)...))
}

// typescript starts the app in TypeScript.
func typescript(t *testing.T, o *outside, secrets string, env ...string) *harness.Process {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	folder, err := typescriptFolder()
	if err != nil {
		t.Fatal(err)
	}
	return startApp(t, "tsapp", []string{node, "--no-warnings", filepath.Join(folder, "app.mjs")}, o, secrets, env)
}

// typescriptFolder has the app in TypeScript and a link to the package, which it builds anew.
var typescriptFolder = sync.OnceValues(func() (folder string, err error) {
	source, err := filepath.Abs("../../clients/typescript")
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(context.Background(), "node", "prepare.mjs") // every test needs it
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the package: %w\n%s", err, out)
	}
	folder = filepath.Join(scratch, "tsapp")
	packages := filepath.Join(folder, "node_modules", "@holdfast")
	if err := os.MkdirAll(packages, 0o700); err != nil {
		return "", err
	}
	program, err := os.ReadFile("testdata/tsapp/app.mjs")
	if err != nil {
		return "", err
	}
	return folder, errors.Join(
		os.Symlink(source, filepath.Join(packages, "sdk")), os.WriteFile(filepath.Join(folder, "app.mjs"), program, 0o600),
	)
})

// python starts the app in Python.
func python(t *testing.T, o *outside, secrets string, env ...string) *harness.Process {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	library, err := filepath.Abs("../../clients/python/src")
	if err != nil {
		t.Fatal(err)
	}
	return startApp(t, "pyapp", []string{interpreter, "testdata/pyapp/app.py"}, o, secrets, append(env, "PYTHONPATH="+library))
}

// startApp starts an app and waits until it listens.
func startApp(t *testing.T, name string, command []string, o *outside, secrets string, env []string) *harness.Process {
	t.Helper()
	address := harness.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "OUTSIDE_URL="+o.URL, "SECRETS="+secrets)
	p := harness.NewProgram(t, name, address, append(command, host, port), env...)
	p.Start()
	return p
}
