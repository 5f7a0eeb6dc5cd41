package main

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor"
)

func TestAnExecutorOfOnesOwnJoinsAnExposedSystem(t *testing.T) {
	t.Parallel()
	r := startWith(t, []string{"HOLDFAST_STATE_LISTEN=127.0.0.1:0", "HOLDFAST_STREAM_LISTEN=127.0.0.1:0"}, "--data", t.TempDir(), "--expose")
	r.join(t, "HOLDFAST_EXECUTOR_LISTEN=127.0.0.1:0")
	if got := r.do(t, http.MethodPost, "/chat", `{"id":"s","agentType":"guest","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`); !strings.Contains(got, "I came from elsewhere.") {
		t.Errorf("got %s", got)
	}
}

func TestMethodsOfAnExecutorThatJoinedAreReached(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	r := startWith(t, []string{"HOLDFAST_STATE_LISTEN=127.0.0.1:0", "HOLDFAST_STREAM_LISTEN=127.0.0.1:0", "HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES=" + address, "HOLDFAST_INTERNAL_TOKEN=" + strings.Repeat("t", 32)},
		"--data", t.TempDir(), "--expose")
	r.join(t, "HOLDFAST_EXECUTOR_LISTEN="+address, "HOLDFAST_INTERNAL_TOKEN="+strings.Repeat("t", 32))
	if got := r.callMethod(t, "guest", "greet"); !strings.Contains(got, `"result":"hello from elsewhere"`) {
		t.Errorf("got %s", got)
	}
	if got := r.do(t, http.MethodPost, "/agents/guest/room/call/greet", ""); !strings.Contains(got, `{"result":"hello from elsewhere"}`) {
		t.Errorf("over HTTP: got %s", got)
	}
}

func TestACallOfAMethodSaysThatItsExecutorCannotBeReached(t *testing.T) {
	t.Parallel()
	r := startWith(t, []string{"HOLDFAST_STATE_LISTEN=127.0.0.1:0", "HOLDFAST_STREAM_LISTEN=127.0.0.1:0", "HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES=" + freeAddress(t)},
		"--data", t.TempDir(), "--expose")
	r.join(t, "HOLDFAST_EXECUTOR_LISTEN=127.0.0.1:0")
	if got := r.callMethod(t, "guest", "greet"); !strings.Contains(got, "No executor with this agent can be reached.") {
		t.Errorf("got %s", got)
	}
}

// join lets an executor with the agent guest join until the test ends.
func (r *running) join(t *testing.T, environ ...string) {
	t.Helper()
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
	greet := agent.Method{Name: "greet", Call: func(context.Context, *agent.MethodCall) (any, error) { return "hello from elsewhere", nil }}
	if err := registry.Register(agent.Agent{Name: "guest", Model: "scripted/m", Methods: []agent.Method{greet}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- executor.Run(ctx, slices.Concat(variables, environ, []string{"HOLDFAST_LOG_LEVEL=error"}), executor.Peers{Registry: registry})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for begin := time.Now(); !strings.Contains(r.do(t, http.MethodGet, "/agents", ""), `"guest"`); time.Sleep(awaitPause) {
		if time.Since(begin) > limit {
			t.Fatal("the guest does not join")
		}
	}
}

// callMethod calls a method over a socket, and returns the frame of its result.
func (r *running) callMethod(t *testing.T, agent, method string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, strings.Replace(r.url, "http", "ws", 1)+"/agents/"+agent+"/room", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	if err := socket.Write(ctx, websocket.MessageText, []byte(`{"type":"rpc","id":"call-1","method":"`+method+`","args":[]}`)); err != nil {
		t.Fatal(err)
	}
	for {
		_, frame, err := socket.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(frame), `"call-1"`) {
			return string(frame)
		}
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
