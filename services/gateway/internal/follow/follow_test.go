package follow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

type world struct {
	*World
	follower *follow.Follower
	runs     int
	last     *Run
}

func open(t *testing.T) *world {
	t.Helper()
	w := New(t)
	state, err := rpc.Dial(w.Network, StateAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := rpc.Dial(w.Network, StreamAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = state.Close(), stream.Close() })
	sessions := &conversation.Reader{
		Runs: statev1.NewRunServiceClient(state), Sessions: statev1.NewSessionServiceClient(state),
		Policy: retry.Policy{Limit: Patience, Now: time.Now},
	}
	hub := &live.Hub{Client: streamv2.NewStreamServiceClient(stream), Log: slog.New(slog.DiscardHandler)}
	return &world{World: w, follower: &follow.Follower{Sessions: sessions, Live: hub, HeartbeatInterval: time.Minute}}
}

// start starts a run of the session s.
func (w *world) start(t *testing.T, change ...func(*statev1.StartRunRequest)) *Run {
	t.Helper()
	w.runs++
	request := &statev1.StartRunRequest{Tenant: "t", SessionId: "s", AgentType: "demo", RequestKey: fmt.Sprint(w.runs)}
	for _, c := range change {
		c(request)
	}
	if _, err := w.State.StartRun(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	w.last = w.AwaitRun(t, "t", "s", w.last)
	return w.last
}

// client is a sink that applies frames.
type client struct {
	mu     sync.Mutex
	has    map[int64]*eventv1.Chunk // of the session
	below  map[string]map[int64]*eventv1.Chunk
	got    []*frame.Frame
	cursor int64
	wrong  []string
	each   func(*frame.Frame) error
}

func newClient() *client {
	return &client{has: map[int64]*eventv1.Chunk{}, below: map[string]map[int64]*eventv1.Chunk{}}
}

// copy is a client with the first frames of another.
func (c *client) copy(frames int) *client {
	out := newClient()
	for _, f := range c.got[:frames] {
		_ = out.Frame(f)
	}
	out.got = nil
	return out
}

func (c *client) Flush() error     { return nil }
func (c *client) Heartbeat() error { return nil }

func (c *client) Frame(f *frame.Frame) error {
	if c.each != nil {
		if err := c.each(f); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, f)
	held := c.has
	if f.Session != "" {
		if held = c.below[f.Session]; held == nil {
			held = map[int64]*eventv1.Chunk{}
			c.below[f.Session] = held
		}
	} else {
		if f.Chunk != nil && f.Sequence <= c.cursor {
			c.wrong = append(c.wrong, fmt.Sprintf("%v after %v", position.Of(f.Sequence), position.Of(c.cursor)))
		}
		c.cursor = f.Sequence
	}
	switch {
	case f.Chunk != nil:
		held[f.Sequence] = f.Chunk
	case f.Rewound:
		maps.DeleteFunc(held, func(at int64, _ *eventv1.Chunk) bool { return at > f.Sequence })
	}
	return nil
}

func (c *client) count(is func(*frame.Frame) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, f := range c.got {
		if is(f) {
			n++
		}
	}
	return n
}

func isRewound(f *frame.Frame) bool  { return f.Rewound }
func isCaughtUp(f *frame.Frame) bool { return f.CaughtUp }
func isEnd(f *frame.Frame) bool      { return f.Terminal != nil }

// content is the content of the chunks in order. Pieces of a text are joined.
func content(has map[int64]*eventv1.Chunk) string {
	var out []string
	text := ""
	for _, at := range slices.Sorted(maps.Keys(has)) {
		c := has[at]
		if c.GetToolArgStreamStart() != nil || c.GetToolArgStreamDelta() != nil || c.GetToolArgStreamEnd() != nil {
			continue // these tests do not send them live
		}
		if d := c.GetTextDelta(); d != nil {
			text += d.GetDelta()
			continue
		}
		if text != "" {
			out, text = append(out, "text "+text), ""
		}
		b, _ := eventv1.MarshalChunk(c)
		var flat struct{ Type, ToolCallID, AgentID string }
		_ = json.Unmarshal(b, &flat)
		out = append(out, strings.TrimSpace(flat.AgentID+" "+flat.Type+" "+flat.ToolCallID))
	}
	if text != "" {
		out = append(out, "text "+text)
	}
	return strings.Join(out, "\n")
}

// follow follows the session from the client's cursor.
func (w *world) follow(ctx context.Context, c *client, change ...func(*follow.Request)) error {
	r := follow.Request{Tenant: "t", SessionID: "s", After: c.cursor}
	for _, f := range change {
		f(&r)
	}
	begun, err := w.follower.Begin(ctx, r)
	if err != nil {
		return err
	}
	return begun.To(ctx, c)
}

// whole follows to the end, as a new reader.
func (w *world) whole(t *testing.T) *client {
	t.Helper()
	c := newClient()
	if err := w.follow(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) check(t *testing.T, name string, want *client) {
	t.Helper()
	if got, want := content(c.has), content(want.has); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
	if len(c.wrong) > 0 {
		t.Errorf("%s: positions went back: %v", name, c.wrong)
	}
	if c.count(isEnd) != 1 || !isEnd(c.got[len(c.got)-1]) {
		t.Errorf("%s: got %d ends, want one, at the end", name, c.count(isEnd))
	}
}

// begin starts a follow, and waits until it has caught up.
func (w *world) begin(t *testing.T, c *client, change ...func(*follow.Request)) <-chan error {
	t.Helper()
	ended := make(chan error, 1) // buffered for its only result
	go func() { ended <- w.follow(t.Context(), c, change...) }()
	synctest.Wait()
	return ended
}

func wantEnd(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still follows")
	}
}

// twoRuns plays two runs while a client reads, and returns the client.
func (w *world) twoRuns(t *testing.T) *client {
	t.Helper()
	first := w.start(t)
	c := newClient()
	ended := w.begin(t, c)
	first.Show(1, Started(), StepStarted(), Text("one "), Text("two"), Call("c1", `{}`))
	synctest.Wait()
	first.Show(1, Result("c1", `1`), StepCommitted())
	first.Show(2, StepStarted(), Text("three "), Text("four"))
	synctest.Wait()
	first.Complete()
	wantEnd(t, ended)
	second := w.start(t)
	ended = w.begin(t, c)
	second.Show(3, Started(), StepStarted(), Text("five "), Text("six"))
	synctest.Wait()
	second.Complete()
	wantEnd(t, ended)
	return c
}

func TestAReaderThatReconnectsAnywhereHasTheSameChunks(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*world){
		"the log has everything": func(*world) {},
		"the log is lost":        func(w *world) { w.Stream.LoseRecords("t", "s") },
		"the log is away":        func(w *world) { w.Stream.SetUnavailable(true) },
		"the log has holes": func(w *world) {
			n := 0
			w.Stream.LoseRecordsIf("t", "s", func(*streamv2.Record) bool { n++; return n%3 == 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				saw := w.twoRuns(t)
				disturb(w)
				want := w.whole(t)
				if got, want := content(saw.has), content(want.has); got != want {
					t.Errorf("live: got\n%s\nwant\n%s", got, want)
				}
				for cut := range saw.got {
					c := saw.copy(cut)
					if err := w.follow(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					c.check(t, fmt.Sprint("cut live, after ", cut), want)
				}
				for cut := range want.got {
					c := want.copy(cut)
					if err := w.follow(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					c.check(t, fmt.Sprint("cut stored, after ", cut), want)
					if c.count(isRewound) > 0 {
						t.Errorf("cut stored, after %d: what is stored was taken back", cut)
					}
				}
			})
		})
	}
}

func TestAReaderInsideAFinishedStepGetsTheRestFromTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		saw := w.twoRuns(t)
		for cut := range saw.got {
			c := saw.copy(cut)
			if err := w.follow(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if c.count(isRewound) > 0 {
				t.Errorf("after %d: was taken back although the log has the rest", cut)
			}
		}
	})
}

func TestAReaderThatReconnectsInsideALiveStepContinuesThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		saw := newClient()
		ended := w.begin(t, saw)
		run.Show(1, Started(), StepStarted(), Text("one "), Text("two"), StepCommitted(), StepStarted(), Text("three"))
		synctest.Wait()
		var all []*client
		var ends []<-chan error
		for cut := range len(saw.got) + 1 {
			c := saw.copy(cut)
			all, ends = append(all, c), append(ends, w.begin(t, c))
		}
		run.Show(2, Text(" four"))
		synctest.Wait()
		run.Complete()
		wantEnd(t, ended)
		want := w.whole(t)
		for i, c := range all {
			wantEnd(t, ends[i])
			c.check(t, fmt.Sprint("after ", i), want)
			if c.count(isRewound) > 0 || c.count(isCaughtUp) != 1 {
				t.Errorf("after %d: %d rewinds and %d times caught up, want 0 and 1", i, c.count(isRewound), c.count(isCaughtUp))
			}
		}
	})
}

func TestANewAttemptRewindsReadersOfTheLastOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		saw := newClient()
		ended := w.begin(t, saw)
		run.Show(1, Started(), StepStarted(), Text("kept"), StepCommitted())
		at := run.Show(2, StepStarted())
		run.Show(2, Text("void"))
		synctest.Wait()
		cut := saw.copy(len(saw.got))
		run.Rewind(at)
		run.Show(2, Text("good"))
		again := w.begin(t, cut)
		run.Complete()
		wantEnd(t, ended)
		wantEnd(t, again)
		want := w.whole(t)
		for name, c := range map[string]*client{"live": saw, "cut": cut} {
			c.check(t, name, want)
			if c.count(isRewound) != 1 {
				t.Errorf("%s: got %d rewinds, want 1", name, c.count(isRewound))
			}
		}
		if strings.Contains(content(saw.has), "void") {
			t.Error("what is void stands")
		}
	})
}

func TestRemovedStepsAreVoidForTheirReaders(t *testing.T) {
	t.Parallel()
	for _, to := range []int32{0, 1, 2} {
		t.Run(fmt.Sprint("to step ", to), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				saw := w.twoRuns(t)
				w.State.RewindToStep("t", "s", to)
				before := make([]*client, len(saw.got)+1)
				for cut := range before { // while nothing runs
					before[cut] = saw.copy(cut)
					if err := w.follow(t.Context(), before[cut]); err != nil {
						t.Fatal(err)
					}
				}
				run := w.start(t)
				run.Show(4, Started(), StepStarted(), Text("seven"))
				var all []*client
				var ends []<-chan error
				for cut := range len(saw.got) + 1 {
					c := saw.copy(cut)
					all, ends = append(all, c), append(ends, w.begin(t, c))
				}
				run.Complete()
				want := w.whole(t)
				for i, c := range all {
					wantEnd(t, ends[i])
					c.check(t, fmt.Sprint("after ", i), want)
				}
				for i, c := range before {
					c.got = nil
					if err := w.follow(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					c.check(t, fmt.Sprint("twice, after ", i), want)
				}
			})
		})
	}
}

func TestAnUnknownPositionIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.twoRuns(t)
		want := w.whole(t)
		for _, after := range []int64{4711, position.Ended(77), position.Position{Step: 3, Attempt: 9, N: 1}.Sequence(), position.Position{Step: 99, Attempt: 1, N: 1}.Sequence(), position.Start(2)} {
			c := newClient()
			c.cursor = after
			if err := w.follow(t.Context(), c); err != nil {
				t.Errorf("%v: %v", position.Of(after), err)
			}
			if after == 4711 {
				c.check(t, "old sequence", want)
			}
			if !isEnd(c.got[len(c.got)-1]) {
				t.Errorf("%v: no end", position.Of(after))
			}
		}
	})
}

func TestALostLogCostsOneRepetitionOfTheStepInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		c := newClient()
		ended := w.begin(t, c)
		run.Show(1, Started(), StepStarted(), Text("one"), StepCommitted())
		at := run.Show(2, StepStarted(), Text("two "))
		synctest.Wait()
		w.Stream.LoseRecords("t", "s")
		run.Rewind(at) // the executor begins a new attempt with the chunks that it has
		run.Show(2, Text("three"))
		synctest.Wait()
		run.Complete()
		wantEnd(t, ended)
		c.check(t, "live", w.whole(t))
		if c.count(isRewound) != 1 {
			t.Errorf("got %d rewinds, want 1", c.count(isRewound))
		}
	})
}

func TestAReaderWithoutAnythingReadsAFirstStepThatTheLogLacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		run.Show(1, Started(), StepStarted(), Text("one"))
		w.Stream.LoseRecords("t", "s")
		c := newClient()
		ended := w.begin(t, c)
		synctest.Wait()
		run.WithPartialSteps(func() { run.Show(1, StepCommitted()) })
		run.Show(2, StepStarted(), Text("two"))
		synctest.Wait()
		run.Complete()
		wantEnd(t, ended)
		c.check(t, "late", w.whole(t))
	})
}

func TestStepsAreReadWithoutTheLog(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*world, *Run, func()){
		"away":                 func(w *world, _ *Run, do func()) { w.Stream.SetUnavailable(true); do() },
		"hears nothing":        func(w *world, _ *Run, do func()) { w.Stream.WithholdLive(true); do() },
		"the log has no bound": func(_ *world, run *Run, do func()) { run.WithoutBoundaries(do) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				run := w.start(t)
				c := newClient()
				ended := w.begin(t, c)
				run.Show(1, Started(), StepStarted(), Text("one "))
				synctest.Wait()
				disturb(w, run, func() {
					run.Show(1, Text("two"), StepCommitted())
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if got := content(c.has); !strings.Contains(got, "text one two\nrun_1 step_committed") {
						t.Errorf("the step is stored and was not seen: %s", got)
					}
					run.Show(2, StepStarted(), Text("three"))
					run.Complete()
				})
				wantEnd(t, ended)
				c.check(t, "live", w.whole(t))
			})
		})
	}
}

// wantWait checks that a reader waits for a late boundary, and is rewound so many times if it comes just too late.
func wantWait(t *testing.T, rewinds int, read func(t *testing.T, w *world, run *Run, late time.Duration) *client) {
	t.Helper()
	for late, want := range map[time.Duration]int{700 * time.Millisecond: 0, 800 * time.Millisecond: rewinds} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				c := read(t, w, w.start(t), late)
				c.check(t, "reader", w.whole(t))
				if got := c.count(isRewound); got != want {
					t.Errorf("got %d rewinds, want %d", got, want)
				}
			})
		})
	}
}

// finish ends a run whose step 1 is in flight.
func finish(run *Run) {
	run.Show(1, StepCommitted())
	run.Show(2, StepStarted(), Text("two"))
	run.Complete()
}

func TestALiveReaderWaitsForTheBoundaryOfAStep(t *testing.T) {
	t.Parallel()
	wantWait(t, 2, func(t *testing.T, w *world, run *Run, late time.Duration) *client {
		c := newClient()
		ended := w.begin(t, c)
		run.Show(1, Started(), StepStarted(), Text("one"))
		// The reader polls after five seconds of silence, and finds the step without its boundary.
		afterPoll := func() { time.Sleep(5*time.Second + late) }
		run.WithLateBoundaries(afterPoll, func() { finish(run) })
		wantEnd(t, ended)
		return c
	})
}

func TestAReaderWhoConnectsBeforeTheBoundaryOfAStepWaitsForIt(t *testing.T) {
	t.Parallel()
	wantWait(t, 1, func(t *testing.T, w *world, run *Run, late time.Duration) *client {
		before := newClient()
		first := w.begin(t, before)
		run.Show(1, Started(), StepStarted(), Text("one"))
		var c *client
		var second <-chan error
		connect := sync.OnceFunc(func() {
			synctest.Wait()
			c = before.copy(len(before.got))
			second = w.begin(t, c)
			time.Sleep(late) // fake
		})
		run.WithLateBoundaries(connect, func() { finish(run) })
		wantEnd(t, first)
		wantEnd(t, second)
		return c
	})
}

func TestAGapInTheStepInFlightEndsWithTheStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		run.Show(1, Started(), StepStarted(), Text("one "))
		hole := run.Show(1, Text("two "))
		w.Stream.LoseRecordsIf("t", "s", func(r *streamv2.Record) bool { return r.GetSequence() == hole })
		run.Show(1, Text("three "))
		c := newClient()
		ended := w.begin(t, c)
		synctest.Wait()
		asked := w.State.CallCount()
		for range 100 {
			run.Show(1, Text("x"))
		}
		synctest.Wait()
		if more := w.State.CallCount() - asked; more > 10 {
			t.Errorf("asked %d times for what is lost", more)
		}
		if got := content(c.has); strings.Contains(got, "three") {
			t.Errorf("what follows a hole was given: %s", got)
		}
		began := time.Now()
		run.Complete()
		wantEnd(t, ended)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the boundary of the step was seen after %v, want at once", took)
		}
		c.check(t, "live", w.whole(t))
	})
}

func TestALaggingReaderIsNotDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.follower.Live.Records = 4
		run := w.start(t)
		slow := newClient()
		release := make(chan struct{})
		slow.each = func(f *frame.Frame) error {
			if f.Chunk.GetTextDelta() != nil {
				<-release
			}
			return nil
		}
		ended := w.begin(t, slow)
		run.Show(1, Started(), StepStarted())
		for range 50 {
			run.Show(1, Text("x"))
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		run.Complete()
		wantEnd(t, ended)
		slow.check(t, "slow", w.whole(t))
	})
}

func TestASinkThatFailsEndsTheFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.twoRuns(t)
		c, stalled := newClient(), errors.New("stalled")
		c.each = func(f *frame.Frame) error {
			if position.Of(f.Sequence).Step == 2 {
				return stalled
			}
			return nil
		}
		if err := w.follow(t.Context(), c); !errors.Is(err, stalled) {
			t.Errorf("got %v, want the sink's error", err)
		}
		if w.Stream.OpenReads() != 0 {
			t.Error("a call is left open")
		}
	})
}

func TestARunIsFollowedAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.twoRuns(t)
		for _, id := range []string{"run_1", "run_2"} {
			c := newClient()
			if err := w.follow(t.Context(), c, func(r *follow.Request) { r.RunID, r.OnlyRun = id, true }); err != nil {
				t.Fatal(err)
			}
			for _, f := range c.got {
				if f.Chunk != nil && f.Chunk.GetAgentId() != id || f.Terminal != nil && f.Terminal.GetRunId() != id {
					t.Errorf("%s: got %v", id, f)
				}
			}
			if got := c.count(isEnd); got != 1 || c.has[slices.Min(slices.Collect(maps.Keys(c.has)))].GetRunStarted() == nil {
				t.Errorf("%s: got %d ends of %s", id, got, content(c.has))
			}
		}
	})
}

func TestARunThatWaitsIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		first := w.start(t)
		first.Show(1, Started(), StepStarted(), Text("one"))
		got, err := w.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "t", SessionId: "s", AgentType: "demo", RequestKey: "2", OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE})
		if err != nil {
			t.Fatal(err)
		}
		c := newClient()
		ended := w.begin(t, c, func(r *follow.Request) { r.RunID, r.OnlyRun = got.GetRun().GetRunId(), true })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c.count(isCaughtUp) != 1 || len(c.got) != 1 {
			t.Errorf("got %v, want caught_up alone", c.got)
		}
		first.Complete()
		w.last = first
		second := w.AwaitRun(t, "t", "s", first)
		second.Show(2, Started(), StepStarted(), Text("two"))
		second.Complete()
		wantEnd(t, ended)
		if got, want := content(c.has), "run_2 run_started\nrun_2 step_started\ntext two\nrun_2 step_committed\nrun_2 run_completed"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestARunThatFailsOutsideAStepIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		first := w.start(t)
		saw := newClient()
		ended := w.begin(t, saw)
		first.Show(1, Started(), StepStarted(), Text("one"), StepCommitted(), StepStarted(), Text("lost"))
		synctest.Wait()
		first.Fail("It failed.", "x")
		wantEnd(t, ended)
		second := w.start(t)
		second.Show(2, Started(), StepStarted(), Text("two"))
		second.Complete()
		want := w.whole(t)
		if got := content(want.has); !strings.Contains(got, "run_1 error\nrun_2 run_started") {
			t.Errorf("got %s", got)
		}
		for cut := range saw.got {
			c := saw.copy(cut)
			if err := w.follow(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(content(c.has), "run_1 error\nrun_2 run_started") || len(c.wrong) > 0 {
				t.Errorf("after %d: got %s, %v", cut, content(c.has), c.wrong)
			}
		}
	})
}

func TestARunningSessionBelowIsFollowedFromTheBeginningOfItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		family := func(r *follow.Request) { r.Family = true }
		saw, late, alone := newClient(), newClient(), newClient()
		ended := w.begin(t, saw, family)
		run.Show(1, Started(), StepStarted(), Text("above"))
		child := run.Child("c")
		child.Show(1, Started(), StepStarted(), Text("one"), StepCommitted(), StepStarted(), Text("two"))
		done := run.Child("d")
		done.Show(1, Started(), StepStarted(), Text("done"))
		done.Complete()
		synctest.Wait()
		again := w.begin(t, late, family)
		only := w.begin(t, alone)
		child.Show(2, Text(" three"))
		synctest.Wait()
		child.Complete()
		run.Complete()
		wantEnd(t, ended)
		wantEnd(t, again)
		wantEnd(t, only)
		if got, want := content(late.below["c"]), content(saw.below["c"]); got != want || !strings.Contains(got, "two three") {
			t.Errorf("a later reader got\n%s\nthe first\n%s", got, want)
		}
		if len(late.below["d"]) > 0 || len(saw.below["d"]) == 0 {
			t.Errorf("of a session that has ended got %v, live %v", late.below["d"], saw.below["d"])
		}
		if len(alone.below) > 0 {
			t.Errorf("got %v, want nothing of sessions below", alone.below)
		}
		for name, c := range map[string]*client{"first": saw, "late": late, "alone": alone} {
			c.check(t, name, w.whole(t))
		}
	})
}

func TestManyReadersShareOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		run.Show(1, Started(), StepStarted(), Text("one"))
		var all []*client
		var ends []<-chan error
		for range 50 {
			c := newClient()
			all, ends = append(all, c), append(ends, w.begin(t, c))
		}
		if live, _ := w.Stream.Reads(); live != 1 {
			t.Errorf("got %d calls, want one", live)
		}
		w.Stream.DropReads()
		run.Show(1, Text("two"))
		time.Sleep(time.Second)
		synctest.Wait()
		run.Complete()
		for i, c := range all {
			wantEnd(t, ends[i])
			c.check(t, fmt.Sprint(i), w.whole(t))
		}
		synctest.Wait()
		if w.Stream.OpenReads() != 0 {
			t.Errorf("%d calls are left", w.Stream.OpenReads())
		}
	})
}

func TestQuietReadersOfASessionShareOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		var all []*client
		var ends []<-chan error
		for range 50 {
			c := newClient()
			all, ends = append(all, c), append(ends, w.begin(t, c))
		}
		before := w.State.CallCount()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.State.CallCount() - before; got > 125 {
			t.Errorf("asked %d times in a minute, want about one a second", got)
		}
		run.WithoutBoundaries(func() { run.Complete() })
		for i, c := range all {
			wantEnd(t, ends[i])
			c.check(t, fmt.Sprint(i), w.whole(t))
		}
	})
}
