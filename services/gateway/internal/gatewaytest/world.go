// Package gatewaytest is the world behind a gateway for its tests: a small state
// service and a small stream service in memory, which keep to their contracts as
// far as the gateway can see, and which a test drives by hand.
package gatewaytest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// The addresses of the services on the world's network.
const (
	StateAddress  = "state"
	StreamAddress = "stream"
)

// World is the services and their network.
type World struct {
	Network *rpc.Memory
	State   *State
	Stream  *Stream
}

// New starts the services; they stop with the test.
func New(t testing.TB) *World {
	t.Helper()
	w := &World{Network: rpc.NewMemory(), Stream: newStream()}
	w.State = newState(w.Stream)
	serve(t, w.Network, StateAddress, func(r grpc.ServiceRegistrar) {
		statev1.RegisterRunServiceServer(r, w.State)
		statev1.RegisterSessionServiceServer(r, w.State)
		statev1.RegisterCheckpointServiceServer(r, w.State)
		statev1.RegisterCallServiceServer(r, w.State)
	})
	serve(t, w.Network, StreamAddress, func(r grpc.ServiceRegistrar) { streamv1.RegisterStreamServiceServer(r, w.Stream) })
	return w
}

func serve(t testing.TB, network rpc.Network, address string, register func(grpc.ServiceRegistrar)) {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	register(server)
	listener, err := network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rpc.Serve(ctx, server, listener, 0) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve %s: %v", address, err)
		}
	})
}

// Patience is how long a test waits for what must come. It costs nothing where that
// comes, so it is long: many tests may share few processors.
const Patience = 90 * time.Second

// Run is a run that a test plays the executor of.
type Run struct {
	world *World
	*statev1.Run
	tenant string
}

// Started waits for the newest run of a session to be another than the one that
// it follows, which is nil for the first.
func (w *World) Started(t testing.TB, tenant, session string, former *Run) *Run {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		run := w.State.Newest(tenant, session)
		if run != nil && (former == nil || run.GetRunId() != former.GetRunId()) {
			return &Run{w, run, tenant}
		}
	}
	t.Fatalf("no run of %q has started", session)
	return nil
}

// Child begins a run in a session of a sub-agent below the run's.
func (r *Run) Child(session string) *Run {
	r.world.Stream.adopt(r.tenant, session, r.GetSessionId())
	return &Run{r.world, r.world.State.child(r.tenant, r.GetSessionId(), session), r.tenant}
}

// Say appends chunks of a step and gives the sequence of the last one.
func (r *Run) Say(step int32, events ...*eventv1.Chunk) int64 {
	var last int64
	for _, c := range events {
		c.AgentId, c.AgentType, c.Step = r.GetRunId(), r.GetAgentType(), step
		last = r.world.Stream.append(r.tenant, r.GetSessionId(), &record{chunk: c})
	}
	return last
}

// Rewind voids what was said after the sequence.
func (r *Run) Rewind(at int64) {
	r.world.Stream.rewind(r.tenant, r.GetSessionId(), r.GetRunId(), at)
}

// Complete commits the messages, writes the end and settles the run.
func (r *Run) Complete(messages ...*eventv1.Message) {
	r.Commit(messages...)
	r.world.State.finish(r.tenant, r.Run, statev1.RunStatus_RUN_STATUS_COMPLETED, nil)
	r.End()
}

// Interrupt commits the messages, writes the end of an interrupted run and settles it.
func (r *Run) Interrupt(messages ...*eventv1.Message) {
	r.stopAt(statev1.RunStatus_RUN_STATUS_INTERRUPTED, streamv1.EndStatus_END_STATUS_INTERRUPTED, messages)
}

// Suspend is Interrupt for a run that leaves calls open.
func (r *Run) Suspend(calls []*statev1.Call, messages ...*eventv1.Message) {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) { s.calls = calls })
	r.stopAt(statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, streamv1.EndStatus_END_STATUS_PAUSED, messages)
}

func (r *Run) stopAt(status statev1.RunStatus, end streamv1.EndStatus, messages []*eventv1.Message) {
	r.Commit(messages...)
	r.world.State.finish(r.tenant, r.Run, status, nil)
	r.world.Stream.append(r.tenant, r.GetSessionId(), &record{end: &streamv1.EndFrame{RunId: r.GetRunId(), End: &streamv1.End{Status: end}}})
	r.Settle()
}

// Continue begins the run that continues a suspended one.
func (r *Run) Continue() *Run { return &Run{r.world, r.world.State.proceed(r.tenant, r.Run), r.tenant} }

// Commit stores messages of the run.
func (r *Run) Commit(messages ...*eventv1.Message) { r.world.State.commit(r.tenant, r.Run, messages) }

// Store completes the run in the state service alone: its end is not written.
func (r *Run) Store(messages ...*eventv1.Message) {
	r.Commit(messages...)
	r.world.State.finish(r.tenant, r.Run, statev1.RunStatus_RUN_STATUS_COMPLETED, nil)
}

// End writes the end of a completed run and settles it.
func (r *Run) End() {
	r.world.Stream.append(r.tenant, r.GetSessionId(), &record{end: &streamv1.EndFrame{
		RunId: r.GetRunId(), End: &streamv1.End{Status: streamv1.EndStatus_END_STATUS_COMPLETED, Output: `"done"`}}})
	r.Settle()
}

// Settle settles the run without writing its end.
func (r *Run) Settle() { r.world.State.settle(r.tenant, r.Run) }

// Fail commits the messages and ends the run with a failure.
func (r *Run) Fail(sentence, code string, messages ...*eventv1.Message) {
	r.Commit(messages...)
	if len(messages) > 0 {
		r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) {
			s.checkpoints[len(s.checkpoints)-1].Status = statev1.SessionStatus_SESSION_STATUS_FAILED
		})
	}
	r.world.State.finish(r.tenant, r.Run, statev1.RunStatus_RUN_STATUS_FAILED, &statev1.Failure{Error: sentence, Code: code, Detail: "internals"})
	r.world.Stream.append(r.tenant, r.GetSessionId(), &record{fail: &streamv1.FailFrame{
		RunId: r.GetRunId(), Fail: &streamv1.Fail{Error: sentence, Code: code}}})
	r.Settle()
}
