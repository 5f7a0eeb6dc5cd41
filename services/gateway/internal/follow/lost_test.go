package follow_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// between does something before the next GetRun once it is armed.
type between struct {
	statev1.RunServiceClient

	armed atomic.Bool
	do    func()
}

func (b *between) GetRun(ctx context.Context, r *statev1.GetRunRequest, o ...grpc.CallOption) (*statev1.GetRunResponse, error) {
	if b.armed.CompareAndSwap(true, false) {
		b.do()
	}
	return b.RunServiceClient.GetRun(ctx, r, o...)
}

func TestARunThatBeginsAndEndsBetweenTwoReadsIsSentWithItsSteps(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*follow.Request){
		"alone":            func(r *follow.Request) { r.OnlyRun = true },
		"with its session": func(*follow.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				first := w.start(t)
				first.Show(1, Started(), StepStarted(), Text("one"))
				got, err := w.State.StartRun(t.Context(), &statev1.StartRunRequest{
					Tenant: "t", SessionId: "s", AgentType: "demo", RequestKey: "2", OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
				})
				if err != nil {
					t.Fatal(err)
				}
				c := newClient()
				look := &between{RunServiceClient: w.follower.Sessions.Runs, do: func() {
					w.Stream.SetUnavailable(true)
					first.Complete()
					second := w.AwaitRun(t, "t", "s", first)
					second.Show(2, Started(), StepStarted(), Text("two"))
					second.Complete()
				}}
				w.follower.Sessions.Runs = look
				ended := w.begin(t, c, change, func(r *follow.Request) { r.RunID = got.GetRun().GetRunId() })
				look.armed.Store(true)
				wantEnd(t, ended)
				want := "run_2 run_started\nrun_2 step_started\ntext two\nrun_2 step_committed\nrun_2 run_completed"
				if got := content(c.has); !strings.HasSuffix(got, want) || c.count(isEnd) != 1 {
					t.Errorf("got\n%s\nwant\n%s and an end", got, want)
				}
			})
		})
	}
}

// appendLost puts steps of a claim into the log that the database does not have.
func (w *world) appendLost(t *testing.T, epoch int64, run string, from, to int32) {
	t.Helper()
	request := &streamv2.AppendRequest{Stream: &streamv2.StreamRef{Tenant: "t", RootSessionId: "s", SessionId: "s"}, Epoch: epoch}
	for step := from; step <= to; step++ {
		first := position.Position{Step: step, Attempt: 33, N: 1}.Sequence()
		chunk := func(c *eventv1.Chunk) *eventv1.Chunk {
			c.AgentId, c.Step = run, step
			return c
		}
		var stands int64
		if step > 1 {
			stands = position.Committed(step - 1)
		}
		boundary := &streamv2.Boundary{Last: first, StepCommitted: chunk(StepCommitted())}
		at := position.Committed(step)
		if step == to {
			at, boundary.RunEnded = position.Ended(step), chunk(&eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{}}})
			boundary.End = &streamv2.Terminal{RunId: run, Outcome: &streamv2.Terminal_End{End: &streamv2.End{Status: streamv2.EndStatus_END_STATUS_COMPLETED}}}
		}
		request.Records = append(request.Records,
			&streamv2.Record{Sequence: first, Chunks: []*eventv1.Chunk{chunk(Text("lost"))}, Attempt: &streamv2.Attempt{RunId: run, Stands: stands}},
			&streamv2.Record{Sequence: at, Boundary: boundary})
	}
	if _, err := w.follower.Live.Client.Append(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

// The log may be ahead of the database, after a backup was restored or a failover has lost commits.
func TestRecordsOfLostWorkAreNotShown(t *testing.T) {
	t.Parallel()
	for name, epoch := range map[string]func(claimed int64) int64{
		"of a lower epoch":                    func(claimed int64) int64 { return 1 },
		"of a higher epoch":                   func(claimed int64) int64 { return claimed + 5 },
		"of a claim that the database has":    func(claimed int64) int64 { return claimed },
		"of a claim and one that it has lost": func(claimed int64) int64 { return -claimed },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				run := w.start(t)
				claimed := w.State.Get("t", "s").GetSession().GetEpoch()
				from := int32(1)
				lost := epoch(claimed)
				if lost < 0 {
					w.appendLost(t, claimed, run.GetRunId(), 1, 2)
					from, lost = 3, claimed+5
				}
				w.appendLost(t, lost, run.GetRunId(), from, 5)
				readers := map[string]*client{"at the beginning": newClient(), "in a lost step": newClient(), "behind the lost steps": newClient()}
				readers["in a lost step"].cursor = position.Position{Step: 3, Attempt: 33, N: 1}.Sequence()
				readers["behind the lost steps"].cursor = position.Ended(5)
				ended := map[string]<-chan error{}
				for reader, c := range readers {
					ended[reader] = w.begin(t, c)
				}
				time.Sleep(3 * time.Second)
				for reader, c := range readers {
					if c.count(isEnd) != 0 {
						t.Errorf("%s: the end of a lost run was sent", reader)
					}
					if got := content(c.has); lost != claimed && from == 1 && strings.Contains(got, "lost") { // the step in flight of a known claim may be shown
						t.Errorf("%s: got %s", reader, got)
					}
				}
				session := w.State.Get("t", "s").GetSession()
				if got := w.follower.StepInFlight(t.Context(), session); lost != claimed && from == 1 && len(got) != 0 {
					t.Errorf("got %d frames in flight, want none", len(got))
				}
				next := run.Reclaim(5, claimed+5)
				next.Show(6, Started(), StepStarted(), Text("found"))
				synctest.Wait()
				next.Complete()
				for reader, c := range readers {
					wantEnd(t, ended[reader])
					c.check(t, reader, w.whole(t))
					if got := content(c.has); strings.Contains(got, "lost") || !strings.Contains(got, "found") {
						t.Errorf("%s: got %s", reader, got)
					}
				}
			})
		})
	}
}
