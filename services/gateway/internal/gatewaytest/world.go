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
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
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
		statev1.RegisterCallServiceServer(r, w.State)
	})
	serve(t, w.Network, StreamAddress, func(r grpc.ServiceRegistrar) { streamv2.RegisterStreamServiceServer(r, w.Stream) })
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

	now      *attempt           // at the step in flight; nil before the run is claimed
	stands   int64              // the session's position when the step in flight began
	root     string             // of the session's family
	ending   *eventv1.Chunk     // says how the run ends
	messages []*eventv1.Message // of the step in flight
	lost     string             // why the next attempt begins
	silent   bool               // what is durable is not told in the log
	stored   bool               // a step of the run is stored
}

// Started waits for the newest run of a session to be another than the one that
// it follows, which is nil for the first.
func (w *World) Started(t testing.TB, tenant, session string, former *Run) *Run {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		run := w.State.Newest(tenant, session)
		if run != nil && (former == nil || run.GetRunId() != former.GetRunId()) {
			return &Run{world: w, Run: run, tenant: tenant}
		}
	}
	t.Fatalf("no run of %q has started", session)
	return nil
}

// Child begins a run in a session of a sub-agent below the run's.
func (r *Run) Child(session string) *Run {
	return &Run{world: r.world, Run: r.world.State.child(r.tenant, r.GetSessionId(), session), tenant: r.tenant}
}

// Complete commits what was said and the messages, and ends the run.
func (r *Run) Complete(messages ...*eventv1.Message) {
	r.over(statev1.RunStatus_RUN_STATUS_COMPLETED, nil, Completed(), end(streamv2.EndStatus_END_STATUS_COMPLETED), messages)
}

// Interrupt is Complete for a run that was interrupted.
func (r *Run) Interrupt(messages ...*eventv1.Message) {
	r.over(statev1.RunStatus_RUN_STATUS_INTERRUPTED, nil, Interrupted(), end(streamv2.EndStatus_END_STATUS_INTERRUPTED), messages)
}

// Suspend is Complete for a run that leaves calls open.
func (r *Run) Suspend(calls []*statev1.Call, messages ...*eventv1.Message) {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) { s.calls = calls })
	r.over(statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, nil, Suspended(), end(streamv2.EndStatus_END_STATUS_PAUSED), messages)
}

// Fail commits the messages and ends the run with a failure. Without messages it ends outside of
// a step: what was said of the step in flight is not stored.
func (r *Run) Fail(sentence, code string, messages ...*eventv1.Message) {
	failed := &eventv1.Chunk{Event: &eventv1.Chunk_Error{Error: &eventv1.Error{Error: sentence, Code: code}}}
	fail := &streamv2.Terminal{Outcome: &streamv2.Terminal_Fail{Fail: &streamv2.Fail{Error: sentence, Code: code}}}
	r.over(statev1.RunStatus_RUN_STATUS_FAILED, &statev1.Failure{Error: sentence, Code: code, Detail: "internals"}, failed, fail, messages)
}

func end(status streamv2.EndStatus) *streamv2.Terminal {
	output := ""
	if status == streamv2.EndStatus_END_STATUS_COMPLETED {
		output = `"done"`
	}
	return &streamv2.Terminal{Outcome: &streamv2.Terminal_End{End: &streamv2.End{Status: status, Output: output}}}
}

// ending is how a run ends.
type ending struct {
	status   statev1.RunStatus
	failure  *statev1.Failure
	chunk    *eventv1.Chunk
	terminal *streamv2.Terminal
}

// over ends the run: with the step in flight where something of it was said and it is stored,
// otherwise outside of a step.
func (r *Run) over(status statev1.RunStatus, failure *statev1.Failure, chunk *eventv1.Chunk, terminal *streamv2.Terminal, messages []*eventv1.Message) {
	if r.now == nil {
		r.claim()
	}
	terminal.RunId = r.GetRunId()
	if r.ending != nil && failure == nil {
		chunk = r.ending
	}
	end := &ending{status, failure, chunk, terminal}
	if r.now.said > 0 && (failure == nil || len(messages) > 0) {
		r.commitStep(end, messages)
		return
	}
	r.Commit(messages...)
	r.endOutside(end)
}

// Continue begins the run that continues a suspended one.
func (r *Run) Continue() *Run {
	return &Run{world: r.world, Run: r.world.State.proceed(r.tenant, r.Run), tenant: r.tenant}
}

// Commit stores messages of the run, and the steps that they are of. Those of a step that is
// said are stored with it.
func (r *Run) Commit(messages ...*eventv1.Message) {
	if r.now == nil {
		r.claim()
	}
	if r.now.said > 0 { // they become durable with the step that is said
		r.messages = append(r.messages, messages...)
		return
	}
	for _, step := range stepsOf(messages) {
		if step[0].GetStep() >= r.now.step || !r.stored {
			r.storeMessages(step)
		}
	}
	r.world.State.change(r.tenant, r.Run, func(s *session, run *statev1.Run) { s.commit(run, messages) })
}

// Silently lets f do things of which the log tells nothing.
func (r *Run) Silently(f func()) {
	r.silent = true
	f()
	r.silent = false
}
