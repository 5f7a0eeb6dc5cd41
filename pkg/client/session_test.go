package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

func TestTheClientHasTheWholeService(t *testing.T) {
	t.Parallel()
	c := serveHouse(t, &oneRun{})
	ctx := t.Context()
	first, err := c.Start(ctx, &agentv1.StartRequest{SessionId: "s", Message: "one"})
	if err != nil || first.GetWaiting() {
		t.Fatalf("start: got %v, %v", first, err)
	}
	if _, err := c.Start(ctx, &agentv1.StartRequest{SessionId: "s", Message: "two"}); fault.ReasonOf(err) != "SESSION_BUSY" {
		t.Errorf("start beside a live run: got %v", err)
	}
	second, err := c.Start(ctx, &agentv1.StartRequest{SessionId: "s", Message: "two", OnBusy: agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE})
	if err != nil || !second.GetWaiting() {
		t.Errorf("start with enqueue: got %v, %v", second, err)
	}
	if can, err := c.CanResume(ctx, "s"); err != nil || can.GetCanResume() || can.GetReason() != "active" {
		t.Errorf("can resume: got %v, %v", can, err)
	}
	if _, err := c.Interrupt(ctx, &agentv1.InterruptRequest{SessionId: "s", WaitMs: 1}); !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != "STOP_NOT_OBSERVED" {
		t.Errorf("interrupt that is not seen in time: got %v", err)
	}
	if stopped, err := c.Abort(ctx, &agentv1.AbortRequest{SessionId: "s"}); err != nil || stopped.GetEffect() != "requested" {
		t.Errorf("abort: got %v, %v", stopped, err)
	}
	if resumed, err := c.Resume(ctx, &agentv1.ResumeRequest{SessionId: "s"}); err != nil || resumed.GetRunId() == "" {
		t.Errorf("resume: got %v, %v", resumed, err)
	}
	if _, err := c.Resume(ctx, &agentv1.ResumeRequest{SessionId: "s", CheckpointId: "cp"}); fault.ReasonOf(err) != "RESUME_INVALID" {
		t.Errorf("resume with a field too many: got %v", err)
	}
	if _, err := c.CanResume(ctx, "nobody"); !errors.Is(err, fault.NotFound) {
		t.Errorf("can resume nothing: got %v", err)
	}
}

func ExampleClient_Resume() {
	holdfast, leave := exampleHouse()
	defer leave()

	ctx := context.Background()
	_, err := holdfast.Start(ctx, &agentv1.StartRequest{SessionId: "report-1", Message: "Write the report."})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = holdfast.Interrupt(ctx, &agentv1.InterruptRequest{SessionId: "report-1", Reason: "the user wants to add something"})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := holdfast.Resume(ctx, &agentv1.ResumeRequest{
		SessionId: "report-1", Message: "Keep it short.", ModifyState: `{"pages": 1, "draft": null}`, RequestKey: "keep-it-short",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.GetRunId())
	// Output: run-2
}

func ExampleClient_Start_onBusy() {
	holdfast, leave := exampleHouse()
	defer leave()

	ctx := context.Background()
	for _, message := range []string{"Write the report.", "And translate it."} {
		run, err := holdfast.Start(ctx, &agentv1.StartRequest{
			SessionId: "report-1", Message: message, OnBusy: agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE, TimeoutMs: 60_000,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(run.GetRunId(), run.GetWaiting())
	}
	// Output:
	// run-1 false
	// run-2 true
}

// oneRun is a session with at most one live run.
type oneRun struct {
	agentv1connect.UnimplementedAgentServiceHandler
	mu   sync.Mutex
	runs int
	live bool
}

func (o *oneRun) begin() string {
	o.runs, o.live = o.runs+1, true
	return fmt.Sprintf("run-%d", o.runs)
}

func (o *oneRun) Start(_ context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.live && r.GetOnBusy() != agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE {
		return nil, fault.New(fault.Conflict, "SESSION_BUSY", "a run is live")
	}
	waiting := o.live
	return &agentv1.StartResponse{SessionId: r.GetSessionId(), RunId: o.begin(), Waiting: waiting}, nil
}

func (o *oneRun) Resume(_ context.Context, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.GetCheckpointId() != "" {
		return nil, fault.New(fault.Invalid, "RESUME_INVALID", "the mode continue has no checkpoint_id")
	}
	return &agentv1.ResumeResponse{SessionId: r.GetSessionId(), RunId: o.begin()}, nil
}

func (o *oneRun) CanResume(_ context.Context, r *agentv1.CanResumeRequest) (*agentv1.CanResumeResponse, error) {
	if r.GetSessionId() == "nobody" {
		return nil, fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", r.GetSessionId())
	}
	return &agentv1.CanResumeResponse{Reason: "active", Status: "active"}, nil
}

func (o *oneRun) Interrupt(_ context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	if r.GetWaitMs() == 0 {
		return &agentv1.InterruptResponse{Effect: "requested", RunId: "run-1"}, nil
	}
	return nil, fault.New(fault.Unavailable, "STOP_NOT_OBSERVED", "run-1 has not ended")
}

func (o *oneRun) Abort(context.Context, *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	return &agentv1.AbortResponse{Effect: "requested", RunId: "run-1"}, nil
}

func fixture(o *oneRun) *httptest.Server {
	_, handler := agentv1connect.NewAgentServiceHandler(o, connect.WithInterceptors(rpc.ConnectInterceptor(nil)))
	return httptest.NewServer(handler)
}

func serveHouse(t *testing.T, o *oneRun) *client.Client {
	t.Helper()
	server := fixture(o)
	t.Cleanup(server.Close)
	return client.New(client.Config{URL: server.URL, HTTP: server.Client()})
}

func exampleHouse() (holdfast *client.Client, leave func()) {
	server := fixture(&oneRun{})
	return client.New(client.Config{URL: server.URL}), server.Close
}
