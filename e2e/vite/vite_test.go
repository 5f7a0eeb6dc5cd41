package vite_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	app       = "../../examples/chat-vite"
	playLimit = 5 * time.Minute
	stopLimit = 10 * time.Second
)

// agents has an agent that repeats what it hears, and tells a story word by word.
func agents() string {
	words := make([]string, 200)
	for i := range words {
		words[i] = fmt.Sprintf("word%03d", i)
	}
	return fmt.Sprintf(`
models:
  scripted:
    script: |
      models:
        teller:
          rules:
            - when: {lastUser: '^tell me a story'}
              reply: [{text: '%s', chunk: 1 word, delay: 50ms}]
            - reply: 'You said: {{.LastUser}}'
agents:
  - {name: teller, description: Tells stories., model: scripted/teller}
`, strings.Join(words, " "))
}

// serve serves the app and returns its address.
func serve(t *testing.T, gateway string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(harness.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	vite := exec.CommandContext(t.Context(), "node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", port, "--strictPort")
	vite.Dir = app
	vite.Env = append(os.Environ(), "VITE_HOLDFAST_URL="+gateway, "VITE_HOLDFAST_AGENT=teller")
	vite.Cancel = func() error { return vite.Process.Signal(os.Interrupt) }
	vite.WaitDelay = stopLimit
	vite.Stdout, vite.Stderr = t.Output(), t.Output()
	if err := vite.Start(); err != nil {
		t.Fatalf("start vite: %v", err)
	}
	t.Cleanup(func() { _ = vite.Wait() }) // the test's context ends it
	return "http://127.0.0.1:" + port
}

func TestAConversationIsListedOpenedContinuedWithAPhotoEditedStoppedBranchedAndDeleted(t *testing.T) {
	t.Parallel()
	harness.InstallNPM(t, app)
	harness.InstallNPM(t, ".")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	d := harness.StartDev(t, agents())
	ctx, cancel := context.WithTimeout(t.Context(), playLimit)
	defer cancel()
	drive := exec.CommandContext(ctx, "node", "--no-warnings", "drive.mjs", chromium, serve(t, d.URL))
	if out, err := drive.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
