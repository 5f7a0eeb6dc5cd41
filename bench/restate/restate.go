// Package restate runs the agent on Restate: the server from its npm package, and a service with the Go SDK.
package restate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
)

const (
	name   = "restate"
	folder = "restate" // with the lock file
)

// Options configure the agent's use of Restate.
type Options struct {
	// OneRecord runs the model and the tool as one step of Restate, with both messages as its result. A crash
	// between the two repeats the model call.
	OneRecord bool
}

type restate struct {
	Options
	program string // the server

	server, service *process.Process
	client          *http.Client
	ingress         string
	batch           int
}

// New returns Restate.
func New(o Options) func() peer.Peer { return func() peer.Peer { return &restate{Options: o} } }

// Prepare implements peer.Peer.
func (r *restate) Prepare(ctx context.Context, bin string) error {
	if err := peer.Install(ctx, folder); err != nil {
		return err
	}
	// Each platform's package holds the server itself; the main package would start it through Node.js.
	found, err := filepath.Glob(filepath.Join(folder, "node_modules/@restatedev/restate-server-*/bin/restate-server"))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("npm has installed %d servers for this platform, want 1", len(found))
	}
	if r.program, err = filepath.Abs(found[0]); err != nil {
		return err
	}
	return peer.BuildWorker(ctx, bin, name)
}

// Start implements peer.Peer.
func (r *restate) Start(ctx context.Context, w peer.World) error {
	var addresses [4]string
	for i := range addresses {
		var err error
		if addresses[i], err = process.FreeAddress(); err != nil {
			return err
		}
	}
	node, ingress, admin, service := addresses[0], addresses[1], addresses[2], addresses[3]
	r.ingress = "http://" + ingress
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var err error
	if r.server, err = process.Start(process.Spec{
		Name: name, Path: r.program, Dir: w.Dir, Args: []string{"--no-logo", "--listen-mode", "tcp"},
		Env: []string{
			"RESTATE_BASE_DIR=" + w.Dir, "RESTATE_NODE_NAME=bench", "RESTATE_LOG_FILTER=warn", "RESTATE_DISABLE_TELEMETRY=true",
			"RESTATE_BIND_ADDRESS=" + node, "RESTATE_INGRESS__BIND_ADDRESS=" + ingress, "RESTATE_ADMIN__BIND_ADDRESS=" + admin,
		},
	}); err != nil {
		return err
	}
	if r.service, err = process.Start(process.Spec{
		Name: "the service of " + name, Path: peer.Worker(w.Bin, name), Dir: w.Dir,
		Args: []string{"-listen", service, fmt.Sprint("-one-record=", r.OneRecord)},
	}); err != nil {
		return err
	}
	if err := r.service.WaitReady(ctx, process.Listens(service)); err != nil {
		return err
	}
	if err := r.server.WaitReady(ctx, func(ctx context.Context) error {
		return r.post(ctx, "http://"+admin+"/deployments", map[string]string{"uri": "http://" + service}, nil)
	}); err != nil {
		return err
	}
	return r.server.WaitReady(ctx, func(ctx context.Context) error { return r.Run(ctx, 1) })
}

// Run implements peer.Peer. The ingress answers a request at the end of its run.
func (r *restate) Run(ctx context.Context, n int) error {
	r.batch++
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			var messages int
			url := fmt.Sprintf("%s/Agent/run-%d-%d/Run", r.ingress, r.batch, i)
			err := r.post(ctx, url, agent.Ask(), &messages)
			if want := 2 * agent.Steps; err == nil && messages != want {
				err = fmt.Errorf("a run has %d messages, want %d", messages, want)
			}
			return err
		})
	}
	return g.Wait()
}

// post sends JSON and decodes the response unless answer is nil.
func (r *restate) post(ctx context.Context, url string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("POST %s: %s: %s", url, response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// PIDs implements peer.Peer.
func (r *restate) PIDs() []int { return []int{r.server.PID(), r.service.PID()} }

// Stop implements peer.Peer.
func (r *restate) Stop() {
	if r.client != nil {
		r.client.CloseIdleConnections()
	}
	r.service.Stop(syscall.SIGKILL)
	r.server.Stop(syscall.SIGKILL)
	r.server, r.service = nil, nil
}
