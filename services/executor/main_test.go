//go:build unix

package executor_test

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor"
)

func TestAProcessServesGoAndYAMLAndReadsItsFilesAgainAtAHangup(t *testing.T) {
	t.Parallel()
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP) // so that an early one does not end the test
	t.Cleanup(func() { signal.Stop(received) })

	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		text := "models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\nagents: [{name: " + name + ", model: scripted/demo}]\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	agents := executor.NewRegistry()
	if err := agents.Register(agent.Agent{Name: "go", Model: "openai/x"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- executor.Run(ctx, []string{
			"HOLDFAST_EXECUTOR_LISTEN=127.0.0.1:0", "HOLDFAST_EXECUTOR_AGENTS=" + dir, "HOLDFAST_EXECUTOR_AGENTS_POLL=0",
			"HOLDFAST_EXECUTOR_STATE_ADDRESS=127.0.0.1:1", "HOLDFAST_LOG_LEVEL=error", "OPENAI_API_KEY=k",
		}, executor.Peers{Registry: agents})
	}()
	await := func(want ...string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for !slices.Equal(agents.Types(), want) {
			if time.Now().After(deadline) {
				t.Fatalf("agents = %q, want %q", agents.Types(), want)
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			<-received
		}
	}
	await("first", "go")
	write("second")
	await("first", "go", "second")
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestAProcessWithoutAgentsSaysWhatToChange(t *testing.T) {
	t.Parallel()
	openai := executor.NewRegistry()
	if err := openai.Register(agent.Agent{Name: "go", Model: "openai/x"}); err != nil {
		t.Fatal(err)
	}
	for reason, test := range map[string]struct {
		environ []string
		agents  *executor.Registry
	}{
		"CONFIG_INVALID":   {nil, nil},
		"AGENTS_NOT_FOUND": {[]string{"HOLDFAST_EXECUTOR_AGENTS=none.yaml"}, nil},
		"HOSTS_INVALID":    {[]string{"HOLDFAST_EXECUTOR_AGENTS=none.yaml", "HOLDFAST_EXECUTOR_TOOL_HOSTS=https://x"}, nil},
		"MODEL_INVALID":    {[]string{"HOLDFAST_EXECUTOR_LISTEN=127.0.0.1:0"}, openai},
		"INSECURE_LISTEN":  {[]string{"HOLDFAST_EXECUTOR_LISTEN=0.0.0.0:0"}, openai},
	} {
		err := executor.Run(t.Context(), append(test.environ, "HOLDFAST_LOG_LEVEL=error"), executor.Peers{Registry: test.agents})
		if fault.ReasonOf(err) != reason {
			t.Errorf("Run = %v, want %s", err, reason)
		}
	}
}
