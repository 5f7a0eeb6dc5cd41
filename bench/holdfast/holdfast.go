// Package holdfast runs Holdfast as four processes or as one.
package holdfast

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

// source is the folder of Holdfast's own module.
const source = ".."

// agents returns the agents file. The last step has no call. The tool is read-only, or has effects.
func agents(readOnly bool) string {
	return fmt.Sprintf(`
models:
  scripted:
    script: |
      models:
        steps:
          chunk: whole
          delay: 0s
          rules:
            - when: {step: %d}
              reply: '%s'
            - reply: [{call: {name: calculate, arguments: {expression: '6 * 7'}}}]
agents:
  - {name: steps, model: scripted/steps, tools: [{use: calculate, readOnly: %t}]}
`, agent.Steps, agent.Final, readOnly)
}

// holdfast is one of the two forms.
type holdfast struct {
	packages []string
	agents   string
	start    func(ctx context.Context, h *holdfast, w peer.World, agents string) error

	processes []*process.Process
	client    agentv1connect.AgentServiceClient
	transport *http.Transport
	batch     int
	shortest  map[int]time.Duration // duration of the shortest batch, by number of runs
}

// Prepare implements peer.Peer.
func (h *holdfast) Prepare(ctx context.Context, bin string) error {
	return peer.Build(ctx, source, bin, h.packages...)
}

// Start implements peer.Peer.
func (h *holdfast) Start(ctx context.Context, w peer.World) error {
	file := filepath.Join(w.Dir, "agents.yaml")
	if err := os.WriteFile(file, []byte(h.agents), 0o600); err != nil {
		return err
	}
	h.shortest = map[int]time.Duration{}
	if err := h.start(ctx, h, w, file); err != nil {
		return err
	}
	return h.processes[0].WaitReady(ctx, func(ctx context.Context) error { return h.Run(ctx, 1) })
}

// begin starts a process of Holdfast.
func (h *holdfast) begin(s process.Spec) error {
	s.Env = append(s.Env, "HOLDFAST_LOG_LEVEL=warn")
	p, err := process.Start(s)
	if err == nil {
		h.processes = append(h.processes, p)
	}
	return err
}

// connect creates the gateway's client.
func (h *holdfast) connect(gateway string) {
	h.transport = &http.Transport{MaxIdleConnsPerHost: 64}
	h.client = agentv1connect.NewAgentServiceClient(&http.Client{Transport: h.transport}, "http://"+gateway)
}

// Run implements peer.Peer. It starts the runs through the gateway, sleeps about as long as the shortest batch
// took, and then polls one run after the other, because polling adds to the measured cost. The previous batch is no measure:
// after a slow one, the sleep would make the next ones slow, and the services would cost more while they idle.
func (h *holdfast) Run(ctx context.Context, n int) error {
	begin := time.Now()
	h.batch++
	session := func(i int) string { return fmt.Sprintf("runs-%d-%d-%d", n, h.batch, i) }
	g, starting := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			_, err := h.client.Start(starting, &agentv1.StartRequest{SessionId: session(i), AgentType: "steps", Message: "Go on."})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := wait(ctx, h.shortest[n]*9/10-time.Since(begin)); err != nil {
		return err
	}
	for i := range n {
		if err := h.await(ctx, session(i), begin); err != nil {
			return err
		}
	}
	if took := time.Since(begin); h.shortest[n] == 0 || took < h.shortest[n] {
		h.shortest[n] = took
	}
	return nil
}

// minPause is the shortest pause between two polls of a run.
const minPause = 2 * time.Millisecond

// await waits for the end of a run. Pauses grow with the time since begin, so long runs are not polled more
// often than short ones.
func (h *holdfast) await(ctx context.Context, session string, begin time.Time) error {
	for {
		got, err := h.client.Get(ctx, &agentv1.GetRequest{SessionId: session})
		if err != nil {
			return err
		}
		switch got.GetStatus() {
		case "completed":
			if got.GetStepCount() != agent.Steps {
				return fmt.Errorf("the run of %s had %d steps, want %d", session, got.GetStepCount(), agent.Steps)
			}
			return nil
		case "failed":
			return fmt.Errorf("the run of %s failed: %s", session, got.GetError())
		}
		if err := wait(ctx, max(time.Since(begin)/10, minPause)); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PIDs implements peer.Peer.
func (h *holdfast) PIDs() []int {
	var pids []int
	for _, p := range h.processes {
		pids = append(pids, p.PID())
	}
	return pids
}

// Stop implements peer.Peer.
func (h *holdfast) Stop() {
	if h.transport != nil {
		h.transport.CloseIdleConnections()
	}
	for _, p := range h.processes {
		p.Stop(syscall.SIGKILL) // a graceful shutdown is not measured
	}
	h.processes = nil
}

// OneProcess returns Holdfast in one process: `holdfast dev` on Postgres, with a read-only tool.
func OneProcess() peer.Peer {
	return &holdfast{
		packages: []string{"./cmd/holdfast"},
		agents:   agents(true),
		start: func(_ context.Context, h *holdfast, w peer.World, agents string) error {
			gateway, err := process.FreeAddress()
			if err != nil {
				return err
			}
			h.connect(gateway)
			return h.begin(process.Spec{
				Name: "holdfast", Path: filepath.Join(w.Bin, "holdfast"), Dir: w.Dir,
				Args: []string{"dev", "--listen", gateway, "--data", filepath.Join(w.Dir, "data"), "--agents", agents},
				Env:  []string{"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=" + w.Database},
			})
		},
	}
}

// FourProcesses returns Holdfast with one process per service and a read-only tool.
func FourProcesses() peer.Peer { return fourProcesses(agents(true)) }

// FourProcessesRecorded is FourProcesses with a tool that has effects.
func FourProcessesRecorded() peer.Peer { return fourProcesses(agents(false)) }

func fourProcesses(agents string) peer.Peer {
	services := []string{"state", "stream", "executor", "gateway"}
	h := &holdfast{agents: agents, start: startFour}
	for _, s := range services {
		h.packages = append(h.packages, "./services/"+s+"/cmd/"+s)
	}
	return h
}

func startFour(_ context.Context, h *holdfast, w peer.World, agents string) error {
	addresses := map[string]string{}
	for _, s := range []string{"state", "stream", "executor", "gateway"} {
		var err error
		if addresses[s], err = process.FreeAddress(); err != nil {
			return err
		}
	}
	h.connect(addresses["gateway"])
	begin := func(service string, env ...string) error {
		prefix := "HOLDFAST_" + strings.ToUpper(service) + "_"
		return h.begin(process.Spec{
			Name: service, Path: filepath.Join(w.Bin, service), Dir: w.Dir,
			Env: append(
				env,
				prefix+"LISTEN="+addresses[service],
				prefix+"STATE_ADDRESS="+addresses["state"],
				prefix+"STREAM_ADDRESS="+addresses["stream"],
			),
		})
	}
	for service, env := range map[string][]string{
		"state":    {"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=" + w.Database},
		"stream":   {"HOLDFAST_STREAM_BUS=embedded", "HOLDFAST_STREAM_DATA_DIR=" + filepath.Join(w.Dir, "stream")},
		"executor": {"HOLDFAST_EXECUTOR_AGENTS=" + agents},
		"gateway":  {"HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true"},
	} {
		if err := begin(service, env...); err != nil {
			return err
		}
	}
	return nil
}
