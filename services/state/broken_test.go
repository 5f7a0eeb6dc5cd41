package state_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// owner is an executor with a run. A test ends its claim stream.
type owner struct {
	*house
	stream grpc.BidiStreamingClient[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]
	cut    context.CancelFunc // breaks the stream, as the death of the process would
	die    context.CancelFunc // ends the heartbeats
}

// owned runs a service with an executor that holds a run and sends heartbeats, and with another
// one with free credits.
func owned(t *testing.T, test func(o *owner, other <-chan *statev1.ClaimRunsResponse)) {
	synctest.Test(t, func(t *testing.T) {
		h := run(t, defaults(t, "HOLDFAST_STATE_STORE=memory"))
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		streaming, cut := context.WithCancel(ctx)
		beating, die := context.WithCancel(ctx)
		o := &owner{house: h, cut: cut, die: die}
		o.open(streaming)
		synctest.Wait() // it is registered
		go h.beat(beating, "e1")
		h.start("s")
		if _, err := o.stream.Recv(); err != nil {
			t.Fatal(err)
		}
		other := h.executor(ctx, "e2")
		go h.beat(ctx, "e2")
		time.Sleep(10*time.Second + 123*time.Millisecond)
		test(o, other)
	})
}

func (o *owner) open(ctx context.Context) {
	o.Helper()
	var err error
	o.stream, err = o.work.ClaimRuns(ctx)
	must(o.T, err)
	must(o.T, o.stream.Send(&statev1.ClaimRunsRequest{ExecutorId: "e1", Agents: []*statev1.Agent{{AgentType: "support"}}, Credits: 1}))
}

// moves checks when the run comes to the other executor.
func moves(t *testing.T, other <-chan *statev1.ClaimRunsResponse, from, to time.Duration) {
	t.Helper()
	began := time.Now()
	claim := (<-other).GetExecute()
	if took := time.Since(began); claim.GetRun().GetAttempt() != 2 || took < from || took > to {
		t.Errorf("got claim %d after %v, want 2 after %v to %v", claim.GetRun().GetAttempt(), took, from, to)
	}
}

func TestARunOfAKilledExecutorContinuesElsewhereAfterASecond(t *testing.T) {
	t.Parallel()
	owned(t, func(o *owner, other <-chan *statev1.ClaimRunsResponse) {
		o.die()
		o.cut()
		moves(o.T, other, time.Second, 1300*time.Millisecond)
		beat, err := o.work.Heartbeat(o.Context(), &statev1.HeartbeatRequest{ExecutorId: "e1"})
		if err != nil || !beat.GetForgotten() {
			t.Errorf("got %v, %v; want the killed one forgotten", beat, err)
		}
	})
}

func TestAnExecutorThatDrainsKeepsItsRun(t *testing.T) {
	t.Parallel()
	owned(t, func(o *owner, other <-chan *statev1.ClaimRunsResponse) {
		o.cut()
		time.Sleep(time.Minute)
		if len(other) > 0 {
			t.Error("the run went to another executor")
		}
		o.die()
		moves(o.T, other, 2*time.Second, 3200*time.Millisecond)
	})
}

func TestAnExecutorThatEndsItsStreamIsNotSuspected(t *testing.T) {
	t.Parallel()
	owned(t, func(o *owner, other <-chan *statev1.ClaimRunsResponse) {
		must(o.T, o.stream.CloseSend())
		o.die()
		moves(o.T, other, 2*time.Second, 3200*time.Millisecond)
	})
}

func TestAHangingExecutorLosesItsRunBySilence(t *testing.T) {
	t.Parallel()
	owned(t, func(o *owner, other <-chan *statev1.ClaimRunsResponse) {
		o.die() // its stream stays open
		moves(o.T, other, 2*time.Second, 3200*time.Millisecond)
	})
}

func TestAnExecutorThatOpensAnotherStreamIsNotSuspected(t *testing.T) {
	t.Parallel()
	owned(t, func(o *owner, other <-chan *statev1.ClaimRunsResponse) {
		cut := o.cut
		held, err := o.work.ClaimRuns(o.Context())
		must(o.T, err)
		run, err := o.runs.ListRuns(o.Context(), &statev1.ListRunsRequest{Tenant: "acme", SessionId: "s"})
		must(o.T, err)
		must(o.T, held.Send(&statev1.ClaimRunsRequest{
			ExecutorId: "e1", Agents: []*statev1.Agent{{AgentType: "support"}}, HeldRunIds: []string{run.GetRuns()[0].GetRunId()},
		}))
		o.die()
		synctest.Wait()
		cut()
		moves(o.T, other, 2*time.Second, 3200*time.Millisecond)
	})
}
