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
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// staged is a store that counts what claims cost, and around whose next write a test
// does what it likes.
type staged struct {
	store.Store
	looks atomic.Int64 // for queued runs
	next  atomic.Pointer[func(write func() error) error]
	again atomic.Bool            // every write is tried twice, as after a conflict
	first atomic.Pointer[func()] // is called once, before a look for queued runs
}

func (s *staged) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	if _, queued := due.(store.Queued); queued {
		s.looks.Add(1)
		if first := s.first.Swap(nil); first != nil {
			(*first)()
		}
	}
	return s.Store.UpdateDue(ctx, due, need, limit, decide)
}

func (s *staged) Update(ctx context.Context, targets []session.Target, bytes int, decide store.Decide) error {
	tried := decide
	if s.again.Load() {
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

func (s *staged) around(f func(write func() error) error) { s.next.Store(&f) }

// newStaged makes a bench on a database in memory.
func newStaged(t *testing.T, changes ...func(*Config)) (*bench, *staged) {
	on := &staged{Store: sqlitetest.Open(t)}
	return newBenchOn(t, on, changes...), on
}

// stagedOnEveryStore is onEveryStore with a bench that never polls.
func stagedOnEveryStore(t *testing.T, test func(b *bench, on *staged)) {
	t.Helper()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(rarely, func(c *Config) { c.Poll = time.Hour })
		on := &staged{Store: b.store}
		b.store, b.server.store = on, on
		test(b, on)
	})
}

// rests waits until the executors' loops wait and have seen everything.
func (b *bench) rests(executorIDs ...string) {
	b.Helper()
	b.eventually("the loops rest", func() bool {
		b.server.hub.mu.Lock()
		defer b.server.hub.mu.Unlock()
		var resting []string
		for _, w := range b.server.hub.waiters {
			if w.of != nil && w.told+w.missing == 0 && w.of.handed.sentAll() {
				resting = append(resting, w.of.executorID)
			}
		}
		return !slices.ContainsFunc(executorIDs, func(id string) bool { return !slices.Contains(resting, id) })
	})
}

// left is how many places the executor, which rests, has free.
func (b *bench) left(executorID string) int {
	b.Helper()
	b.rests(executorID)
	b.server.hub.mu.Lock()
	defer b.server.hub.mu.Unlock()
	for _, w := range b.server.hub.waiters {
		if w.of != nil && w.of.executorID == executorID {
			n, _ := w.of.credits.get()
			return n
		}
	}
	return -1
}

func (b *bench) status(sessionID string) statev1.RunStatus {
	b.Helper()
	return b.get(sessionID).GetCurrentRun().GetStatus()
}

const runRunning = statev1.RunStatus_RUN_STATUS_RUNNING

func TestAStartHandsItsRunToAnExecutorThatWaits(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 10)
		b.rests("e1")
		before := on.looks.Load()
		for i := range 3 {
			b.rests("e1")
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
			b.commit(ending(refTo(claim), 1, completed))
		}
		if looks := on.looks.Load() - before; looks != 0 {
			b.Errorf("got %d looks for queued runs, want none", looks)
		}
	})
}

// A claim has to say the same whichever way it has come.
func TestAClaimThatIsHandedOverIsAsOneThatWasLookedFor(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		b.server.config.Limits.TailMessages = 4
		s := b.open("e1", 100)
		replica := b.replica()
		handed := s.talks("handed", b.server)
		if on.looks.Load() != 1 {
			b.Errorf("got %d looks, want the one at the beginning", on.looks.Load())
		}
		found := s.talks("queued", replica)
		for i := range handed {
			if got, want := likeness(b, handed[i]), likeness(b, found[i]); got != want {
				b.Fatalf("claim %d\n got %s\nwant %s", i, got, want)
			}
		}
	})
}

// talks has a conversation of several runs through a replica, and returns the claims.
func (s *stream) talks(sessionID string, through *Server) (claims []*statev1.Claim) {
	claimed := func() *statev1.RunRef {
		if through != s.server {
			s.server.hub.signal("support")
		}
		claim := s.execute()
		claims = append(claims, claim)
		s.rests("e1")
		s.pass(time.Millisecond) // calls that are as old as each other come by their ids
		return refTo(claim)
	}
	for turn := range int32(3) {
		r := startOf(sessionID)
		r.CustomState, r.Tags, r.Metadata, r.RequestKey = `{"n": [1,2], "a":{}}`, []string{"x"}, map[string]string{"k": "v"}, fmt.Sprint(turn)
		r.Messages = append(r.Messages, userMessage(fmt.Sprint("and ", turn)))
		if turn > 0 {
			r.AbandonCalls = true
			resumes(r).StateOps = []*statev1.StateOp{
				{Key: "b", Op: &statev1.StateOp_Replace{Replace: `2`}}, {Key: "n", Op: &statev1.StateOp_Replace{Replace: `{"z":1,"y":"<&>"}`}},
			}
		}
		s.rests("e1")
		_, err := through.StartRun(s.Context(), r)
		s.must(err)
		ref := claimed()
		s.commit(asking(ref, 3*turn+1, fmt.Sprint("a", turn), fmt.Sprint("b", turn)))
		for _, call := range []string{"a", "b"} {
			_, err := through.SubmitCall(s.Context(), submitOf(sessionID, fmt.Sprint(call, turn), result(`{"n":2}`)))
			s.must(err)
		}
		ref = claimed()
		commit := asking(ref, 3*turn+2, fmt.Sprint("c", turn), fmt.Sprint("d", turn))
		commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: fmt.Sprint("a", turn), Revision: 1}}
		s.commit(commit)
		_, err = through.SubmitCalls(s.Context(), &statev1.SubmitCallsRequest{Tenant: "acme", SessionId: sessionID, Answers: []*statev1.SubmittedAnswer{
			{ToolCallId: fmt.Sprint("c", turn), Answer: result(`1`)}, {ToolCallId: fmt.Sprint("d", turn), Answer: result(`2`)},
		}})
		s.must(err)
		ref = claimed()
		s.commit(asking(ref, 3*turn+3, fmt.Sprint("e", turn)))
	}
	return claims
}

var otherwise = regexp.MustCompile(`id[0-9]+|[0-9]{13}|cpv1-[^"]*`)

// likeness is the claim without what no two runs have in common.
func likeness(b *bench, c *statev1.Claim) string {
	b.Helper()
	text, err := protojson.Marshal(c)
	b.must(err)
	var compact bytes.Buffer
	b.must(json.Compact(&compact, otherwise.ReplaceAll(text, []byte("it"))))
	return strings.NewReplacer("handed", "s", "queued", "s").Replace(compact.String())
}

func TestOnlyWhoWaitsWithAPlaceFreeIsHandedARun(t *testing.T) {
	t.Parallel()
	b, _ := newStaged(t)
	full := b.open("full", 0)
	other, err := b.work.ClaimRuns(t.Context())
	b.must(err)
	b.must(other.Send(&statev1.ClaimRunsRequest{ExecutorId: "other", Agents: []*statev1.Agent{{AgentType: "sales"}}, Credits: 10}))
	b.rests("other")
	ended := b.open("ended", 10)
	b.must(ended.CloseSend())
	if err := <-ended.end; !errors.Is(err, io.EOF) {
		t.Fatalf("got %v", err)
	}
	b.start("a")
	if got := b.status("a"); got != runQueued {
		t.Errorf("got %v, want the run queued: nobody can take it", got)
	}
	b.must(full.Send(&statev1.ClaimRunsRequest{Credits: 1}))
	if claim := full.execute(); claim.GetSession().GetSessionId() != "a" || claim.GetEpoch() != 1 {
		t.Errorf("got %v", claim)
	}
}

func TestACommandThatBeginsNothingGivesThePlaceBack(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 2)
		r := startOf("a")
		r.RequestKey = "k"
		b.rests("e1")
		first := b.send(r)
		s.execute()
		b.rests("e1")
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
			if n := b.left("e1"); n != 1 {
				b.Fatalf("after %s: got %d places, want 1", what, n)
			}
		}
		if len(s.got) > 0 {
			b.Errorf("got %v", <-s.got)
		}
	})
}

func TestAWriteThatIsTriedAgainTakesOnePlace(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 2)
		b.rests("e1")
		on.again.Store(true)
		b.start("a")
		if claim := s.execute(); claim.GetEpoch() != 1 {
			b.Errorf("got %v", claim)
		}
		if n := b.left("e1"); n != 1 {
			b.Errorf("got %d places, want 1", n)
		}
	})
}

// Each place is for one run, whoever fills it.
func TestAnExecutorIsNeverHandedMoreThanItHasPlaces(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, _ *staged) {
		const runs, places = 64, 10
		executors := []*stream{b.open("e1", places), b.open("e2", places)}
		b.rests("e1", "e2")
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

func TestAStreamThatEndsBehindTheWriteGivesTheRunBack(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		first := b.open("e1", 1)
		b.rests("e1")
		on.around(func(write func() error) error {
			err := write()
			first.cancel()
			b.eventually("the stream is over", func() bool { return len(b.server.stops.connected()) == 0 })
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
	d := &deaf{hello: make(chan *statev1.ClaimRunsRequest, 1)}
	c := &claimer{server: b.server, stream: d, executorID: "e1", agents: []string{"support"}, credits: newCredits(5)}
	b.must(b.store.Announce(t.Context(), "e1", []session.Agent{{Type: "support"}}, b.server.millis()))
	ended := make(chan error)
	go func() { ended <- c.work(t.Context()) }()
	b.rests("e1")
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

func TestARunIsNotHandedToAnExecutorThatWasForgotten(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 1)
		b.rests("e1")
		on.around(func(write func() error) error {
			_, err := b.store.Forget(b.Context(), b.server.millis()+1)
			return errors.Join(err, write())
		})
		b.start("a")
		if got := b.status("a"); got != runQueued {
			b.Errorf("got %v, want it queued", got)
		}
		s.cancel()
		b.eventually("the stream is over", func() bool { return len(b.server.stops.connected()) == 0 }) // which looks for work, too
		next := b.open("e1", 1)
		b.eventually("the run is claimed", func() bool {
			b.server.signal("support") // the database may hold a look of the stream that is over a moment longer
			return len(next.got) > 0
		})
		if claim := next.execute(); claim.GetEpoch() != 1 {
			b.Errorf("got %v", claim)
		}
	})
}

// The registry is read without a lock: the sweep finds what slips through.
func TestAnExecutorThatIsForgottenBehindTheWriteLosesTheRun(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 1)
		b.rests("e1")
		on.around(func(write func() error) error {
			err := write()
			_, gone := b.store.Forget(b.Context(), b.server.millis()+1)
			_, swept := on.Store.UpdateDue(b.Context(), store.Silent{}, session.Need{}, 10, session.RequeueSilent{Now: b.server.millis()}.Decide)
			return errors.Join(err, gone, swept)
		})
		b.start("a")
		stale := s.execute()
		_, err := b.work.CommitStep(b.Context(), ending(refTo(stale), 1, completed))
		b.refuses(err, fault.Stale, "EPOCH_STALE")
		if claim := b.open("e2", 1).execute(); claim.GetEpoch() != 2 {
			b.Errorf("got %v", claim)
		}
	})
}

// A replica that dies, or stands still, between the write and the sending has written
// a claim that nobody knows of.
func TestAClaimThatItsReplicaHasNotSentComesBack(t *testing.T) {
	t.Parallel()
	for what, back := range map[string]func(b *bench, other *Server, s *stream){
		"it dies, and the executor opens a stream elsewhere": func(b *bench, other *Server, s *stream) {
			s.cancel()
			b.must(other.announce(b.Context(), &statev1.ClaimRunsRequest{ExecutorId: "e1"}, []session.Agent{{Type: "support"}}, other.millis()))
		},
		"it stands still, and the executor is heard elsewhere": func(b *bench, other *Server, _ *stream) {
			beat := &statev1.HeartbeatRequest{ExecutorId: "e1", Held: &statev1.HeldRuns{}}
			_, err := other.Heartbeat(b.Context(), beat)
			b.must(err)
			if got := b.status("a"); got != runRunning {
				b.Errorf("got %v, want a fresh claim left alone", got)
			}
			b.pass(b.config.Fresh + time.Second)
			_, err = other.Heartbeat(b.Context(), beat)
			b.must(err)
		},
	} {
		stagedOnEveryStore(t, func(b *bench, on *staged) {
			s := b.open("e1", 1)
			b.rests("e1")
			other := b.replica()
			other.store = on.Store
			written, goOn := make(chan struct{}), make(chan struct{})
			on.around(func(write func() error) error {
				err := write()
				close(written)
				<-goOn
				return err
			})
			started := make(chan error)
			go func() {
				_, err := b.server.StartRun(b.Context(), startOf("a"))
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
			c := session.Claim{ExecutorID: "e1", Now: b.server.millis()}
			due := store.Queued{ExecutorID: "e1", AgentTypes: []string{"support"}, Now: c.Now}
			claimed, err := on.Store.UpdateDue(b.Context(), due, session.Need{}, 1, c.Decide)
			b.must(err)
			close(goOn) // what it does then is too late
			b.must(<-started)
			s.cancel()
			b.eventually("the stream is over", func() bool { return len(b.server.stops.connected()) == 0 })
			if got := b.get("a"); len(claimed) != 1 || got.GetCurrentRun().GetStatus() != runRunning || got.GetSession().GetEpoch() != 2 {
				b.Errorf("%s: got %v, want the second claim to stand", what, got)
			}
		})
	}
}

func TestAClaimWhoseWritingWasNotAnsweredIsGivenBack(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 1)
		b.rests("e1")
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

func TestAContinuationIsHandedToAnExecutorThatWaits(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, on *staged) {
		s := b.open("e1", 10)
		b.rests("e1")
		s.suspend("s", "c1")
		b.rests("e1")
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
	b, on := newStaged(t, func(c *Config) { c.Limits.StateBytes = 2 * mostHandedOver })
	s := b.open("e1", 10)
	b.rests("e1")
	looks := on.looks.Load()
	r := startOf("a")
	r.CustomState = fmt.Sprintf(`{"a":"%s"}`, xs(mostHandedOver))
	b.send(r)
	if claim := s.execute(); len(claim.GetSession().GetCustomState()) < mostHandedOver || claim.GetEpoch() != 1 {
		t.Errorf("got %d bytes", len(claim.GetSession().GetCustomState()))
	}
	if on.looks.Load() == looks {
		t.Error("it was handed over")
	}
}

// Two replicas start runs in the same sessions at once: whoever begins one, one
// executor is handed it.
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
		b := newBenchOn(t, s, func(c *Config) { c.Poll = 5 * time.Millisecond })
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
		case <-time.After(patience):
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

func TestACommandThatBeginsNoRunTakesNoPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("e1", 1)
	b.rests("e1")
	place := b.server.slotFor("support")
	place.try()
	b.must(place.claim(&session.View{ExecutorLives: true}, &session.Change{}))
	if left, _ := place.of.credits.get(); left != 1 {
		t.Errorf("%d places are left, want the one", left)
	}
	b.start("a") // begins one meanwhile
	b.eventually("the run is claimed", func() bool { return b.status("a") == runRunning })
	place.end(t.Context(), nil)
	if left, _ := place.of.credits.get(); left != 0 {
		t.Errorf("%d places are left, want none", left)
	}
}

func TestAPlaceThatAnotherCommandHasTakenIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	h := newHub(time.Now)
	c := &claimer{executorID: "e1", credits: newCredits(1)}
	h.seen(h.join([]string{"a"}), c, 0)
	first, second := h.placed("a"), h.placed("a")
	if first != c || second != c {
		t.Fatalf("got %v and %v, want the one with a place to spare", first, second)
	}
	if !h.reserve(first) || h.reserve(second) {
		t.Error("want that the first takes the place and the second does not")
	}
}

func TestPlacesAreTakenInTurnFromWhoHasThemToSpare(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := newHub(func() time.Time { return now })
	of := func(id string, credits int32) *claimer { return &claimer{executorID: id, credits: newCredits(credits)} }
	join := func(c *claimer, agents ...string) *waiter {
		w := h.join(agents)
		h.seen(w, c, 0)
		return w
	}
	first := of("first", 2)
	w := join(first, "a", "b")
	join(of("second", 1), "a")
	join(of("none", 0), "a")
	deaf := of("deaf", 1)
	deaf.handed.more = make(chan struct{}, 1)
	join(deaf, "a")
	for range mostUnsent {
		deaf.handed.put(store.Decided{}, now)
	}
	h.join([]string{"a"}) // has not looked for work
	took := func(agent string) string {
		if c := h.placed(agent); c != nil && h.reserve(c) {
			return c.executorID
		}
		return ""
	}
	for i, want := range []string{"first", "second", "first", ""} {
		if got := took("a"); got != want {
			t.Errorf("%d: got a place of %q, want %q", i, got, want)
		}
	}
	deaf.handed.sent(1, now)
	now = now.Add(handWithin + 1)
	if got := took("a"); got != "" {
		t.Errorf("got a place of %q, whose stream takes nothing", got)
	}
	deaf.handed.sent(1, now)
	if got := took("a"); got != "deaf" {
		t.Errorf("got a place of %q, want of the one that reads again", got)
	}
	first.credits.back(1)
	h.signal("b") // its one place is for that run
	if got := took("b"); got != "" {
		t.Errorf("got a place of %q, which was told of work", got)
	}
	first.credits.back(1)
	if got := took("b"); got != "first" {
		t.Errorf("got %q, want the place beside the one for the run that it was told of", got)
	}
	if told := h.take(w, 1); told != 1 {
		t.Errorf("told of %d runs, want 1", told)
	}
	h.seen(w, first, 1)
	if got := took("b"); got != "" {
		t.Errorf("got a place of %q, which is to look again for a run that it has missed", got)
	}
	h.behind(w)
	first.credits.back(10)
	if got := took("b"); got != "" {
		t.Errorf("got a place of %q, which has work behind", got)
	}
	h.seen(w, first, 0)
	if got := took("b"); got != "first" {
		t.Errorf("got a place of %q", got)
	}
	h.signal("b")
	h.signal("b")
	h.take(w, 1) // more than it looks for
	if got := took("b"); got != "" {
		t.Errorf("got a place of %q, which has work behind", got)
	}
}

// A loop that looks for work does not keep what begins meanwhile from going out.
func TestAStartHandsItsRunToAnExecutorThatLooksForOthers(t *testing.T) {
	t.Parallel()
	b, on := newStaged(t, rarely, func(c *Config) { c.Poll = time.Hour })
	s := b.open("e1", 2*claimBatch)
	b.rests("e1")
	looks, goesOn := make(chan struct{}), make(chan struct{})
	wait := func() {
		close(looks)
		<-goesOn
	}
	on.first.Store(&wait)
	b.server.hub.signal("support")
	<-looks
	b.start("a")
	if claim := s.execute(); claim.GetRun().GetSessionId() != "a" || claim.GetEpoch() != 1 {
		t.Errorf("got %v", claim)
	}
	close(goesOn)
	b.eventually("all places but one are free", func() bool { return b.left("e1") == 2*claimBatch-1 })
}

func (h *handed) sentAll() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsent == 0
}
