package main

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor"
)

func TestAnExecutorOfOnesOwnJoinsAnExposedSystem(t *testing.T) {
	t.Parallel()
	r := startWith(t, []string{"HOLDFAST_STATE_LISTEN=127.0.0.1:0", "HOLDFAST_STREAM_LISTEN=127.0.0.1:0"}, "--data", t.TempDir(), "--expose")
	variables := regexp.MustCompile(`HOLDFAST_EXECUTOR_\w+_ADDRESS=\S+`).FindAllString(r.output, -1)
	if len(variables) != 2 {
		t.Fatalf("the two variables are missing in\n%s", r.output)
	}
	registry := executor.NewRegistry()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: "models: {m: {chunk: whole, rules: [{reply: I came from elsewhere.}]}}"})
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.Model("scripted", model); err != nil {
		t.Fatal(err)
	}
	if err := registry.Register(agent.Agent{Name: "guest", Model: "scripted/m"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- executor.Run(ctx, append(variables, "HOLDFAST_EXECUTOR_LISTEN=127.0.0.1:0", "HOLDFAST_LOG_LEVEL=error"), executor.Peers{Registry: registry})
	}()
	for begin := time.Now(); !strings.Contains(r.do(t, http.MethodGet, "/agents", ""), `"guest"`); time.Sleep(awaitPause) {
		if time.Since(begin) > limit {
			t.Fatal("the guest does not join")
		}
	}
	if got := r.do(t, http.MethodPost, "/chat", `{"id":"s","agentType":"guest","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`); !strings.Contains(got, "I came from elsewhere.") {
		t.Errorf("got %s", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAnExposedSystemThatOthersCanReachAsksForCredentials(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"dev", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--expose"}, []string{"HOLDFAST_STATE_LISTEN=0.0.0.0:0"}, &teller{}, &teller{})
	if fault.ReasonOf(err) != "INSECURE_LISTEN" || !strings.Contains(err.Error(), "HOLDFAST_STATE_LISTEN") {
		t.Errorf("got %v, want INSECURE_LISTEN", err)
	}
}

func TestEachRunIsALineOfTheTerminal(t *testing.T) {
	t.Parallel()
	r := start(t, "--data", t.TempDir())
	r.do(t, http.MethodPost, "/chat", `{"id":"sum","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"What is 6 * 7?"}]}]}`)
	want := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  demo  sum  completed, 2 steps, [0-9.]+m?s$`)
	for begin := time.Now(); !want.MatchString(r.teller.lines()); time.Sleep(awaitPause) { // the line follows the commit
		if time.Since(begin) > limit {
			t.Fatalf("the terminal shows %q", r.teller.lines())
		}
	}
}
