package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// stagedStore is a store that counts looks and runs test code around its next write.
type stagedStore struct {
	store.Store
	looks      atomic.Int64 // for queued runs
	next       atomic.Pointer[func(write func() error) error]
	retry      atomic.Bool            // decides every write twice, as after a conflict
	beforeLook atomic.Pointer[func()] // called once, before the next look for queued runs
}

// parts returns the store with its wrapped parts.
func (s *stagedStore) parts() store.Store {
	parts := s.Store
	parts.Updater = s
	return parts
}

func (s *stagedStore) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	if _, queued := due.(store.Queued); queued {
		s.looks.Add(1)
		if first := s.beforeLook.Swap(nil); first != nil {
			(*first)()
		}
	}
	return s.Store.UpdateDue(ctx, due, need, limit, decide)
}

func (s *stagedStore) Update(ctx context.Context, targets []session.Target, bytes int, decide store.Decide) error {
	tried := decide
	if s.retry.Load() {
		tried = func(views []*session.View) ([]*session.Change, error) {
			_, _ = decide(views)
			return decide(views)
		}
	}
	write := func() error { return s.Store.Update(ctx, targets, bytes, tried) }
	if around := s.next.Swap(nil); around != nil {
		return (*around)(write)
	}
	return write()
}

func (s *stagedStore) around(f func(write func() error) error) { s.next.Store(&f) }

// newStaged returns a bench on a staged memory store.
func newStaged(t *testing.T, changes ...func(*Config)) (*bench, *stagedStore) {
	on := &stagedStore{Store: sqlitetest.Open(t)}
	return newBenchOn(t, on.parts(), changes...), on
}

// stagedOnEveryStore is onEveryStore with staged stores and without polls.
func stagedOnEveryStore(t *testing.T, test func(b *bench, on *stagedStore), changes ...func(*Config)) {
	t.Helper()
	wrap := func(s store.Store) store.Store { return (&stagedStore{Store: s}).parts() }
	wrappingEveryStore(t, wrap, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(append([]func(*Config){noStopPoll, func(c *Config) { c.Scheduler.Poll = time.Hour }}, changes...)...)
		on, _ := b.store.Updater.(*stagedStore)
		test(b, on)
	})
}

// waitUntilIdle waits until the claim loops of the executors are at rest.
func (b *bench) waitUntilIdle(executorIDs ...string) {
	b.Helper()
	b.eventually("the claim loops are at rest", func() bool {
		return !slices.ContainsFunc(executorIDs, func(id string) bool {
			_, atRest := b.server.scheduler.Idle(id)
			return !atRest
		})
	})
}

// freeCredits waits until the executor is idle, and returns its credits.
func (b *bench) freeCredits(executorID string) int {
	b.Helper()
	b.waitUntilIdle(executorID)
	free, _ := b.server.scheduler.Idle(executorID)
	return free
}

func (b *bench) status(sessionID string) statev1.RunStatus {
	b.Helper()
	return b.get(sessionID).GetCurrentRun().GetStatus()
}

const runRunning = statev1.RunStatus_RUN_STATUS_RUNNING

func TestAStartHandsItsRunToAnIdleExecutor(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 10)
		b.waitUntilIdle("e1")
		before := on.looks.Load()
		for i := range 3 {
			b.waitUntilIdle("e1")
			id := fmt.Sprint("s", i)
			started := b.start(id)
			if got := started.GetRun().GetStatus(); got != runQueued || started.GetSession().GetEpoch() != 0 {
				b.Errorf("got %v, want the run as it was started", started)
			}
			if got := b.status(id); got != runRunning {
				b.Errorf("got a run that is %v when the start is answered, want it claimed", got)
			}
			claim := s.execute()
			run := claim.GetRun()
			if run.GetRunId() != started.GetRun().GetRunId() || claim.GetEpoch() != 1 || run.GetAttempt() != 1 || run.GetStartedAt() == 0 {
				b.Errorf("got %v, want the run claimed", claim)
			}
			b.commit(endingStep(refTo(claim), 1, completed))
		}
		if looks := on.looks.Load() - before; looks != 0 {
			b.Errorf("got %d looks for queued runs, want none", looks)
		}
	})
}

// A claim has the same content whether it was handed over or found.
func TestAHandedOverClaimEqualsAFoundOne(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 100)
		replica := b.replica()
		handed := s.converse("handed", b.server)
		if on.looks.Load() != 1 {
			b.Errorf("got %d looks, want the one at the beginning", on.looks.Load())
		}
		found := s.converse("queued", replica)
		for i := range handed {
			if got, want := withoutVarying(b, handed[i]), withoutVarying(b, found[i]); got != want {
				b.Fatalf("claim %d\n got %s\nwant %s", i, got, want)
			}
		}
	}, func(c *Config) { c.Scheduler.TailMessages = 4 })
}

// maxHandOverBytes is the largest claim made by a command.
const maxHandOverBytes = 4 << 20

// converse runs several turns through a replica, and returns the claims.
func (s *stream) converse(sessionID string, through *Server) (claims []*statev1.Claim) {
	claimed := func() *statev1.RunRef {
		if through != s.server {
			s.server.Wake("support")
		}
		claim := s.execute()
		claims = append(claims, claim)
		s.waitUntilIdle("e1")
		s.advance(time.Millisecond) // calls of the same time are sorted by id
		return refTo(claim)
	}
	for turn := range int32(3) {
		r := startOf(sessionID)
		r.CustomState, r.Tags, r.Metadata, r.RequestKey = `{"n": [1,2], "a":{}}`, []string{"x"}, map[string]string{"k": "v"}, fmt.Sprint(turn)
		r.Messages = append(r.Messages, userMessage(fmt.Sprint("and ", turn)))
		if turn > 0 {
			r.AbandonCalls = true
			resumeOf(r).StateOps = []*statev1.StateOp{
				{Key: "b", Op: &statev1.StateOp_Replace{Replace: `2`}}, {Key: "n", Op: &statev1.StateOp_Replace{Replace: `{"z":1,"y":"<&>"}`}},
			}
		}
		s.waitUntilIdle("e1")
		_, err := through.runs.StartRun(s.Context(), r)
		s.must(err)
		ref := claimed()
		s.commit(suspendingStep(ref, 3*turn+1, fmt.Sprint("a", turn), fmt.Sprint("b", turn)))
		for _, call := range []string{"a", "b"} {
			_, err := through.calls.SubmitCall(s.Context(), submitOf(sessionID, fmt.Sprint(call, turn), result(`{"n":2}`)))
			s.must(err)
		}
		ref = claimed()
		commit := suspendingStep(ref, 3*turn+2, fmt.Sprint("c", turn), fmt.Sprint("d", turn))
		commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: fmt.Sprint("a", turn), Revision: 1}}
		s.commit(commit)
		_, err = through.calls.SubmitCalls(s.Context(), &statev1.SubmitCallsRequest{Tenant: "acme", SessionId: sessionID, Answers: []*statev1.SubmittedAnswer{
			{ToolCallId: fmt.Sprint("c", turn), Answer: result(`1`)}, {ToolCallId: fmt.Sprint("d", turn), Answer: result(`2`)},
		}})
		s.must(err)
		ref = claimed()
		s.commit(suspendingStep(ref, 3*turn+3, fmt.Sprint("e", turn)))
	}
	return claims
}

var varying = regexp.MustCompile(`id[0-9]+|[0-9]{13}|cpv1-[^"]*`)

// withoutVarying returns the claim as text, without ids and times.
func withoutVarying(b *bench, c *statev1.Claim) string {
	b.Helper()
	text, err := protojson.Marshal(c)
	b.must(err)
	var compact bytes.Buffer
	b.must(json.Compact(&compact, varying.ReplaceAll(text, []byte("it"))))
	return strings.NewReplacer("handed", "s", "queued", "s").Replace(compact.String())
}

func TestOnlyIdleExecutorsAreHandedRuns(t *testing.T) {
	t.Parallel()
	b, _ := newStaged(t)
	full := b.open("full", 0)
	other, err := b.work.ClaimRuns(t.Context())
	b.must(err)
	b.must(other.Send(&statev1.ClaimRunsRequest{ExecutorId: "other", Agents: []*statev1.Agent{{AgentType: "sales"}}, Credits: 10}))
	b.waitUntilIdle("other")
	ended := b.open("ended", 10)
	b.must(ended.CloseSend())
	if err := <-ended.end; !errors.Is(err, io.EOF) {
		t.Fatalf("got %v", err)
	}
	b.start("a")
	if got := b.status("a"); got != runQueued {
		t.Errorf("got %v, want the run queued: no executor can take it", got)
	}
	b.must(full.Send(&statev1.ClaimRunsRequest{Credits: 1}))
	if claim := full.execute(); claim.GetSession().GetSessionId() != "a" || claim.GetEpoch() != 1 {
		t.Errorf("got %v", claim)
	}
}

func TestACommandThatBeginsNoRunReturnsTheCredit(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 2)
		r := startOf("a")
		r.RequestKey = "k"
		b.waitUntilIdle("e1")
		first := b.send(r)
		s.execute()
		b.waitUntilIdle("e1")
		for what, again := range map[string]func() error{
			"a repetition": func() error {
				got, err := b.runs.StartRun(b.Context(), r)
				if !got.GetRepeated() || got.GetRun().GetRunId() != first.GetRun().GetRunId() {
					b.Errorf("got %v, want the first run", got)
				}
				return err
			},
			"a busy session": func() error {
				_, err := b.runs.StartRun(b.Context(), startOf("a"))
				b.refuses(err, fault.Conflict, "SESSION_BUSY")
				return nil
			},
			"a run that waits": func() error {
				waits := startOf("a")
				waits.OnBusy = statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
				_, err := b.runs.StartRun(b.Context(), waits)
				return err
			},
			"an outage": func() error {
				on.around(func(func() error) error { return store.Unavailable(errors.New("away")) })
				_, err := b.runs.StartRun(b.Context(), startOf("b"))
				b.refuses(err, fault.Unavailable, "STORE_UNAVAILABLE")
				return nil
			},
			"a panic": func() error {
				on.around(func(func() error) error { panic("a bug") })
				if _, err := b.runs.StartRun(b.Context(), startOf("b")); err == nil {
					b.Error("got no error")
				}
				return nil
			},
		} {
			b.must(again())
			if n := b.freeCredits("e1"); n != 1 {
				b.Fatalf("after %s: got %d places, want 1", what, n)
			}
		}
		if len(s.got) > 0 {
			b.Errorf("got %v", <-s.got)
		}
	})
}

func TestARetriedWriteTakesOneCredit(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 2)
		b.waitUntilIdle("e1")
		on.retry.Store(true)
		b.start("a")
		if claim := s.execute(); claim.GetEpoch() != 1 {
			b.Errorf("got %v", claim)
		}
		if n := b.freeCredits("e1"); n != 1 {
			b.Errorf("got %d places, want 1", n)
		}
	})
}

// Each credit is used for one run.
func TestAnExecutorIsNeverHandedMoreRunsThanItHasCredits(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, _ *stagedStore) {
		const runs, places = 64, 10
		executors := []*stream{b.open("e1", places), b.open("e2", places)}
		b.waitUntilIdle("e1", "e2")
		var starts sync.WaitGroup
		for i := range runs {
			starts.Go(func() {
				if _, err := b.runs.StartRun(b.Context(), startOf(fmt.Sprint("s", i))); err != nil {
					b.Error(err)
				}
			})
		}
		got := map[string]bool{}
		take := func(s *stream) {
			if id := s.execute().GetRun().GetRunId(); got[id] {
				b.Errorf("run %s was handed over twice", id)
			} else {
				got[id] = true
			}
		}
		for _, s := range executors {
			for range places {
				take(s)
			}
		}
		starts.Wait()
		for len(got) < runs {
			s := executors[len(got)%2]
			b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
			take(s)
		}
		for _, s := range executors {
			b.must(s.CloseSend())
			if err := <-s.end; !errors.Is(err, io.EOF) {
				b.Errorf("got %v", err)
			}
			if len(s.got) > 0 {
				b.Errorf("got %v for a place that was not there", <-s.got)
			}
		}
	})
}

func TestAStreamThatEndsAfterTheWriteReleasesTheRun(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		first := b.open("e1", 1)
		b.waitUntilIdle("e1")
		on.around(func(write func() error) error {
			err := write()
			first.cancel()
			b.eventually("the stream has ended", func() bool { return len(b.server.scheduler.Connected()) == 0 })
			return err
		})
		b.start("a")
		if got := b.status("a"); got != runQueued {
			b.Errorf("got %v, want the run queued again", got)
		}
		if claim := b.open("e2", 1).execute(); claim.GetEpoch() != 2 || claim.GetRun().GetAttempt() != 2 {
			b.Errorf("got %v", claim)
		}
	})
}

func TestAHandedClaimThatCannotBeSentIsReleased(t *testing.T) {
	t.Parallel()
	b, _ := newStaged(t)
	d := b.unwritable("e1", 5)
	ended := make(chan error)
	go func() { ended <- b.server.work.ClaimRuns(d) }()
	b.waitUntilIdle("e1")
	b.start("a")
	if err := <-ended; err == nil || err.Error() != "broken pipe" || d.sends != 1 {
		t.Errorf("got %v after %d sends, want the stream's error after 1", err, d.sends)
	}
	if got := b.status("a"); got != runQueued {
		t.Errorf("got %v, want the run queued again", got)
	}
	if claim := b.open("e2", 5).execute(); claim.GetEpoch() != 2 {
		t.Errorf("got epoch %d, want 2", claim.GetEpoch())
	}
}

func TestARunIsNotHandedToAnUnregisteredExecutor(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 1)
		b.waitUntilIdle("e1")
		on.around(func(write func() error) error {
			_, err := b.store.UnregisterSilent(b.Context(), b.millis()+1)
			return errors.Join(err, write())
		})
		b.start("a")
		if got := b.status("a"); got != runQueued {
			b.Errorf("got %v, want it queued", got)
		}
		s.cancel()
		b.eventually("the stream has ended", func() bool { return len(b.server.scheduler.Connected()) == 0 }) // its last look would find the run
		next := b.open("e1", 1)
		b.eventually("the run is claimed", func() bool {
			b.server.Wake("support") // a look of the ended stream may still hold the row
			return len(next.got) > 0
		})
		if claim := next.execute(); claim.GetEpoch() != 1 {
			b.Errorf("got %v", claim)
		}
	})
}

// The registry is read without a lock. The sweep repairs the race.
func TestAnExecutorUnregisteredAfterTheWriteLosesTheRun(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 1)
		b.waitUntilIdle("e1")
		on.around(func(write func() error) error {
			err := write()
			_, gone := b.store.UnregisterSilent(b.Context(), b.millis()+1)
			_, swept := on.Store.UpdateDue(b.Context(), store.OwnerUnregistered{}, session.Need{}, 10, session.RequeueSilent{Now: b.millis()}.Decide)
			return errors.Join(err, gone, swept)
		})
		b.start("a")
		stale := s.execute()
		_, err := b.work.CommitStep(b.Context(), endingStep(refTo(stale), 1, completed))
		b.refuses(err, fault.Stale, "EPOCH_STALE")
		if claim := b.open("e2", 1).execute(); claim.GetEpoch() != 2 {
			b.Errorf("got %v", claim)
		}
	})
}

// closedStream is the stream of an executor that has closed its side.
type closedStream struct{ scheduler.Stream }

func (closedStream) Credits() (int, error) { return 0, io.EOF }

// A replica dies, or hangs, between the write and the sending. No executor knows of the claim.
func TestAnUnsentClaimIsRequeued(t *testing.T) {
	t.Parallel()
	for what, back := range map[string]func(b *bench, other *Server, s *stream){
		"it dies, and the executor opens a stream elsewhere": func(b *bench, other *Server, s *stream) {
			s.cancel()
			b.must(other.scheduler.Serve(b.Context(), scheduler.Executor{ID: "e1", Agents: []session.Agent{{Type: "support"}}}, closedStream{}))
		},
		"it stands still, and the executor is heard elsewhere": func(b *bench, other *Server, _ *stream) {
			beat := &statev1.HeartbeatRequest{ExecutorId: "e1", Held: &statev1.HeldRuns{}}
			_, err := other.work.Heartbeat(b.Context(), beat)
			b.must(err)
			if got := b.status("a"); got != runRunning {
				b.Errorf("got %v, want a fresh claim left alone", got)
			}
			b.advance(b.config.Scheduler.Fresh + time.Second)
			_, err = other.work.Heartbeat(b.Context(), beat)
			b.must(err)
		},
	} {
		stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
			s := b.open("e1", 1)
			b.waitUntilIdle("e1")
			other := New(b.config, on.Store, b.keys, b.now, b.newID, b.log)
			written, goOn := make(chan struct{}), make(chan struct{})
			on.around(func(write func() error) error {
				err := write()
				close(written)
				<-goOn
				return err
			})
			started := make(chan error)
			go func() {
				_, err := b.server.runs.StartRun(b.Context(), startOf("a"))
				started <- err
			}()
			<-written
			if got := b.status("a"); got != runRunning {
				b.Errorf("%s: got %v, want it claimed", what, got)
			}
			back(b, other, s)
			if got := b.status("a"); got != runQueued {
				b.Errorf("%s: got %v, want it queued again", what, got)
			}
			c := session.Claim{ExecutorID: "e1", Now: b.millis()}
			due := store.Queued{ExecutorID: "e1", AgentTypes: []string{"support"}, Now: c.Now}
			claimed, err := on.Store.UpdateDue(b.Context(), due, session.Need{}, 1, c.Decide)
			b.must(err)
			close(goOn) // its sending is too late now
			b.must(<-started)
			s.cancel()
			b.eventually("the stream has ended", func() bool { return len(b.server.scheduler.Connected()) == 0 })
			if got := b.get("a"); len(claimed) != 1 || got.GetCurrentRun().GetStatus() != runRunning || got.GetSession().GetEpoch() != 2 {
				b.Errorf("%s: got %v, want the second claim to stand", what, got)
			}
		})
	}
}

func TestAClaimWithALostCommitAnswerIsReleased(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 1)
		b.waitUntilIdle("e1")
		on.around(func(write func() error) error {
			return errors.Join(write(), store.Unavailable(errors.New("the answer was lost")))
		})
		_, err := b.runs.StartRun(b.Context(), startOf("a"))
		b.refuses(err, fault.Unavailable, "STORE_UNAVAILABLE")
		if claim := s.execute(); claim.GetEpoch() != 2 {
			b.Errorf("got %v, want the run claimed anew", claim)
		}
	})
}

func TestAContinuationIsHandedToAnIdleExecutor(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *stagedStore) {
		s := b.open("e1", 10)
		b.waitUntilIdle("e1")
		s.suspend("s", "c1")
		b.waitUntilIdle("e1")
		looks := on.looks.Load()
		got := b.submit("s", "c1", result(`1`))
		if claim := s.execute(); claim.GetRun().GetRunId() != got.GetRunId() || len(claim.GetCalls()) != 1 || claim.GetEpoch() != 2 {
			b.Errorf("got %v, want the continuation of %v", claim, got)
		}
		if n := on.looks.Load() - looks; n != 0 {
			b.Errorf("got %d looks, want none", n)
		}
	})
}

func TestALargeClaimIsNotHandedOver(t *testing.T) {
	t.Parallel()
	b, on := newStaged(t, func(c *Config) { c.Limits.StateBytes = 2 * maxHandOverBytes })
	s := b.open("e1", 10)
	b.waitUntilIdle("e1")
	looks := on.looks.Load()
	r := startOf("a")
	r.CustomState = fmt.Sprintf(`{"a":"%s"}`, xs(maxHandOverBytes))
	b.send(r)
	if claim := s.execute(); len(claim.GetSession().GetCustomState()) < maxHandOverBytes || claim.GetEpoch() != 1 {
		t.Errorf("got %d bytes", len(claim.GetSession().GetCustomState()))
	}
	if on.looks.Load() == looks {
		t.Error("it was handed over")
	}
}

// Two replicas start runs in the same sessions at once. Each run goes to one executor.
func TestReplicasHandEachRunToOneExecutor(t *testing.T) {
	t.Parallel()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	url := databaseURL(t)
	var replicas []*bench
	var streams []*stream
	for range 2 {
		s, err := postgres.Open(t.Context(), url, 4, commits, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		b := newBenchOn(t, unsignaled(s.Parts()), func(c *Config) { c.Scheduler.Poll = 5 * time.Millisecond })
		b.ids.Store(int64(len(replicas)) * 1_000_000)
		replicas = append(replicas, b)
		streams = append(streams, b.open(fmt.Sprint("e", len(replicas)), 100))
	}
	const sessions = 20
	var starts sync.WaitGroup
	for i := range sessions {
		for _, b := range replicas {
			starts.Go(func() {
				r := startOf(fmt.Sprint("s", i))
				r.RequestKey = "k"
				if _, err := b.runs.StartRun(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
	}
	starts.Wait()
	b := replicas[0]
	for i := range sessions {
		b.eventually("the run is claimed", func() bool { return b.status(fmt.Sprint("s", i)) == runRunning })
	}
	got := map[string]int64{}
	for range sessions {
		var answer *statev1.ClaimRunsResponse
		select {
		case answer = <-streams[0].got:
		case answer = <-streams[1].got:
		case <-time.After(testTimeout):
			t.Fatalf("got %d claims, want %d", len(got), sessions)
		}
		got[answer.GetExecute().GetRun().GetRunId()] = answer.GetExecute().GetEpoch()
	}
	for i := range sessions {
		if run := b.get(fmt.Sprint("s", i)).GetCurrentRun(); got[run.GetRunId()] != 1 || run.GetAttempt() != 1 {
			t.Errorf("run %s was claimed %d times, handed over with epoch %d", run.GetRunId(), run.GetAttempt(), got[run.GetRunId()])
		}
	}
	if len(streams[0].got)+len(streams[1].got) > 0 {
		t.Error("a run was handed over twice")
	}
}

func TestACommandThatBeginsNoRunTakesNoCredit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("e1", 1)
	b.waitUntilIdle("e1")
	handOver := b.server.scheduler.HandOver("support")
	handOver.Reset()
	b.must(handOver.Claim(&session.View{ExecutorRegistered: true}, &session.Change{}))
	if left := b.freeCredits("e1"); left != 1 {
		t.Errorf("%d credits are free, want 1", left)
	}
	b.start("a") // begins a run meanwhile
	b.eventually("the run is claimed", func() bool { return b.status("a") == runRunning })
	handOver.Finish(t.Context(), nil)
	if left, _ := b.server.scheduler.Idle("e1"); left != 0 {
		t.Errorf("%d credits are free, want 0", left)
	}
}

// A look does not delay the hand-over of other runs.
func TestAStartHandsItsRunToAnExecutorDuringALook(t *testing.T) {
	t.Parallel()
	b, on := newStaged(t, noStopPoll, func(c *Config) { c.Scheduler.Poll = time.Hour })
	s := b.open("e1", 32)
	b.waitUntilIdle("e1")
	looks, goesOn := make(chan struct{}), make(chan struct{})
	wait := func() {
		close(looks)
		<-goesOn
	}
	on.beforeLook.Store(&wait)
	b.server.Wake("support")
	<-looks
	b.start("a")
	if claim := s.execute(); claim.GetRun().GetSessionId() != "a" || claim.GetEpoch() != 1 {
		t.Errorf("got %v", claim)
	}
	close(goesOn)
	b.eventually("all credits but one are free", func() bool { return b.freeCredits("e1") == 32-1 })
}
