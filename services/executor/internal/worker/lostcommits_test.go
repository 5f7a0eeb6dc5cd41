package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// appendLost puts work into the live log of a session that its database has lost: a run up to the step.
func (p *system) appendLost(sessionID string, epoch int64, step int32) {
	p.t.Helper()
	p.ready()
	chunk := &eventv1.Chunk{AgentId: "lost", Step: step, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "lost"}}}
	first := position.Position{Step: step, Attempt: 33, N: 1}.Sequence()
	_, err := streamv2.NewStreamServiceClient(p.logs.get().conn).Append(p.context(), &streamv2.AppendRequest{
		Stream: &streamv2.StreamRef{Tenant: tenant, RootSessionId: sessionID, SessionId: sessionID}, Epoch: epoch,
		Records: []*streamv2.Record{
			{Sequence: first, Chunks: []*eventv1.Chunk{chunk}, Attempt: &streamv2.Attempt{RunId: "lost"}},
			{Sequence: position.Committed(step), Boundary: &streamv2.Boundary{Last: first, StepCommitted: chunk}},
		},
	})
	must(p.t, err)
}

func TestARunGoesOnAboveALogThatIsAheadOfItsDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		epoch int64         // of the lost work
		delay time.Duration // of the answer to the first append
	}{
		"of a lower epoch":                      {epoch: 1},
		"of a higher epoch":                     {epoch: 1 << 40},
		"that answers after the model, in time": {epoch: 1 << 40, delay: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				h := newSystem(t, define("demo", callsOnce("All done.", "slow", `{}`), slowTool(&runs)))
				h.faults.gate = func(ctx context.Context, _ *streamv2.AppendRequest) error {
					pause(ctx, c.delay)
					return nil
				}
				h.appendLost("s", c.epoch, 12)
				h.open()
				run := h.end(h.startRun("s", "demo", "hi"))
				if run.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED || run.GetAttempt() != 2 || run.GetLosses() != 0 || runs.Load() != 1 {
					t.Errorf("got %v after %d calls of the tool, want it completed by the second claim after 1", run, runs.Load())
				}
				var numbers []int32
				for _, step := range h.steps("s") {
					numbers = append(numbers, step.GetStep())
				}
				if want := []int32{13, 14}; !slices.Equal(numbers, want) {
					t.Errorf("got the steps %v, want %v, above the lost ones", numbers, want)
				}
				second := h.end(h.startRun("s", "demo", "hi again"))
				if second.GetAttempt() != 1 {
					t.Errorf("the next run had %d claims, want 1", second.GetAttempt())
				}
				h.verifyAppends()
			})
		})
	}
}

func TestARunRepeatsAStepThatItsDatabaseHasLost(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]func(request any) error{
		"before its plan": func(request any) error {
			if r, ok := request.(*statev1.RecordPlanRequest); ok && r.GetStep() == 1 {
				return fault.New(fault.Stale, "STEP_STALE", "step 1 is not the step in flight, 0")
			}
			return nil
		},
		"with its plan": func(request any) error {
			if r, ok := request.(*statev1.RecordResultRequest); ok && r.GetStep() == 1 {
				return fault.New(fault.Conflict, "CALL_UNKNOWN", "the plan does not have the call")
			}
			return nil
		},
		"before its commit": func(request any) error {
			if r, ok := request.(*statev1.CommitStepRequest); ok && r.GetStep() == 1 {
				return fault.New(fault.Stale, "STEP_STALE", "step 1 is not the step in flight, 0")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newSystem(t, define("demo", callsOnce("All done.", "slow", `{}`, "slow", `{}`), slowTool(new(atomic.Int32))))
				h.faults.refuse = loses
				h.open()
				h.follow("s")
				id := h.startRun("s", "demo", "hi")
				run := h.end(id)
				if run.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED || run.GetAttempt() != 2 {
					t.Errorf("got %v, want it completed by the second claim", run)
				}
				releases := h.released(id)
				if len(releases) != 1 || releases[0].GetSeen().GetStep() != 1 {
					t.Errorf("got the releases %v, want one that has seen step 1", releases)
				}
				h.verifyReaders("s")
			})
		})
	}
}
