package feed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// patience is how long a test waits for what must come.
const patience = Patience

type world struct {
	*World
	feed *feed.Feed
	run  *Run
}

// open makes a world with a run of the session s, and a feed.
func open(t *testing.T) *world {
	t.Helper()
	w := New(t)
	conn, err := rpc.Dial(w.Network, StreamAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &feed.Feed{
		Client: streamv1.NewStreamServiceClient(conn), Policy: retry.Policy{Limit: patience, Now: time.Now},
		Beat: time.Minute, Log: slog.New(slog.DiscardHandler),
	}
	if _, err := w.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "t", SessionId: "s", AgentType: "demo"}); err != nil {
		t.Fatal(err)
	}
	return &world{w, f, w.Started(t, "t", "s", nil)}
}

// request is for the run from the cursor on.
func (w *world) request(cursor int64) *streamv1.ReadRequest {
	return &streamv1.ReadRequest{
		Stream:       &streamv1.StreamRef{Tenant: "t", RootSessionId: "s", SessionId: "s"},
		FromSequence: cursor, RunId: w.run.GetRunId(), Family: true,
	}
}

// reader is a sink that does what frames say.
type reader struct {
	mu     sync.Mutex
	has    map[int64]string // the sessions of the chunks, by sequence
	cursor int64
	wrong  []string
	marks  int
	ended  bool
	cut    bool
	each   func() // at each frame
}

func newReader() *reader { return &reader{has: map[int64]string{}, each: func() {}} }

func (r *reader) Flush() error { return nil }
func (r *reader) Beat() error  { return nil }

// hold has each called at every frame from now on.
func (r *reader) hold(each func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.each = each
}

func (r *reader) Frame(f *feed.Frame) error {
	r.mu.Lock()
	each := r.each
	r.mu.Unlock()
	each()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := feed.Cursor(f.ReadResponse, r.cursor)
	if f.GetCaughtUp() == nil && f.GetTruncated() == nil && at <= r.cursor {
		r.wrong = append(r.wrong, fmt.Sprintf("%d after %d", at, r.cursor))
	}
	r.cursor = at
	switch kind := f.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		r.has[at] = f.Session
	case *streamv1.ReadResponse_Rewound:
		maps.DeleteFunc(r.has, func(sequence int64, session string) bool {
			return sequence > kind.Rewound.GetAt() && session == f.Session
		})
	case *streamv1.ReadResponse_CaughtUp:
		r.marks++
	case *streamv1.ReadResponse_Truncated:
		r.cut = true
	case *streamv1.ReadResponse_End, *streamv1.ReadResponse_Fail:
		r.ended = true
	}
	return nil
}

func (r *reader) at() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("still waiting: %s", what)
}

// follow lets the reader follow, and tells how that ended.
func (w *world) follow(ctx context.Context, r *reader, cursor int64) <-chan error {
	r.cursor = cursor
	ended := make(chan error, 1) // room for its one result
	go func() { ended <- w.feed.Follow(ctx, w.request(cursor), r) }()
	return ended
}

func wantNil(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("still follows")
	}
}

// What a sub-agent's session has lost to retention is nothing to who reads the root
// alone, whether it comes first, later, or for the history.
func TestARecordThatASubAgentHasLostIsNothingToOthers(t *testing.T) {
	t.Parallel()
	w := open(t)
	child := w.run.Child("c")
	w.run.Say(1, Started())
	child.Say(1, Started())
	w.run.Say(1, Text("one"))
	w.Stream.Forget("t", "c")
	family := newReader()
	familyEnd := w.follow(t.Context(), family, 0)
	wantNil(t, familyEnd)
	if !family.cut {
		t.Errorf("who reads the family has %v, and was not told that records are gone", family.has)
	}
	alone := func(r *reader, history bool) <-chan error {
		request := w.request(0)
		request.Family, request.HistoryOnly = false, history
		ended := make(chan error, 1) // room for its one result
		go func() { ended <- w.feed.Follow(t.Context(), request, r) }()
		return ended
	}
	first, later, stored := newReader(), newReader(), newReader()
	firstEnd := alone(first, false)
	waitFor(t, "the first one has what there is", func() bool { first.mu.Lock(); defer first.mu.Unlock(); return len(first.has) == 2 })
	laterEnd := alone(later, false)
	waitFor(t, "the later one, too", func() bool { later.mu.Lock(); defer later.mu.Unlock(); return len(later.has) == 2 })
	child.Say(1, Text("x"))
	w.run.Say(1, Text("two"))
	w.run.Complete()
	wantNil(t, firstEnd)
	wantNil(t, laterEnd)
	wantNil(t, alone(stored, true))
	for name, r := range map[string]*reader{"the first": first, "a later one": later, "the history": stored} {
		if len(r.has) != 3 || r.cut || !r.ended || len(r.wrong) > 0 {
			t.Errorf("%s got %v, cut %v, ended %v, wrong %v; want three chunks and the end", name, r.has, r.cut, r.ended, r.wrong)
		}
	}
}

// stands gives what stands of the log after the cursor, by asking for it.
func (w *world) stands(t *testing.T, cursor int64) map[int64]string {
	t.Helper()
	r, request := newReader(), w.request(cursor)
	request.HistoryOnly = true
	if err := w.feed.Follow(t.Context(), request, r); err != nil {
		t.Fatal(err)
	}
	return r.has
}

// Rewinds come while some readers are ahead of the topic and others behind it, calls
// are dropped all the time, and readers come and come again.
func TestEveryReaderHoldsWhatStandsWhateverHappens(t *testing.T) {
	t.Parallel()
	const readers, steps = 12, 150
	w := open(t)
	w.feed.Chunks = 16 // so that readers fall behind as well
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	child := w.run.Child("c")
	at := w.run.Say(1, Started())
	base := map[*Run]int64{w.run: at, child: child.Say(1, Started())}
	var all []*reader
	var group sync.WaitGroup
	errs := make(chan error, readers)
	for i := range readers {
		r := newReader()
		all = append(all, r)
		pace := random.IntN(3)
		r.each = func() {
			for range pace * 50 {
				runtime.Gosched()
			}
		}
		group.Go(func() { errs <- w.persist(t.Context(), r, i) })
	}
	for range steps {
		run := w.run
		if random.IntN(3) == 0 {
			run = child
		}
		switch random.IntN(10) {
		case 0:
			w.Stream.Drop()
		case 8:
			w.Stream.CutOff(CutLive) // the topic falls behind what is stored
		case 9:
			w.Stream.CutOff(CutNothing)
		case 1:
			run.Rewind(base[run])
		case 2:
			base[run] = run.Say(1, Text("stands"))
		default:
			run.Say(1, Text("x"))
		}
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) // paces the writer; nothing is expected of it
		}
	}
	w.Stream.CutOff(CutNothing)
	w.run.Complete()
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	want := w.stands(t, 0)
	for i, r := range all {
		if len(r.wrong) > 0 {
			t.Errorf("reader %d got %v", i, r.wrong)
		}
		if !r.ended {
			t.Errorf("reader %d was not told the end", i)
		}
		if last := w.Stream.Last(); r.cursor > last {
			t.Errorf("reader %d is at %d, after %d", i, r.cursor, last)
		}
		// A rewind of the family after the end of the run is nobody's affair.
		if !maps.Equal(r.has, want) {
			t.Errorf("reader %d has %v, want %v", i, slices.Sorted(maps.Keys(r.has)), slices.Sorted(maps.Keys(want)))
		}
	}
	waitFor(t, "no call is left", func() bool { return w.Stream.Calls() == 0 })
}

// persist follows again whenever the reader was cut, and leaves now and then of its own
// accord.
func (w *world) persist(ctx context.Context, r *reader, seed int) error {
	random := rand.New(rand.NewPCG(uint64(seed), 2))
	for !r.ended {
		leaving, leave := context.WithTimeout(ctx, time.Duration(1+random.IntN(40))*time.Millisecond)
		if random.IntN(3) == 0 {
			leave()
			leaving, leave = context.WithCancel(ctx)
		}
		err := w.feed.Follow(leaving, w.request(r.cursor), r)
		leave()
		switch {
		case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, fault.Exhausted):
		default:
			return err
		}
	}
	return nil
}

func TestManyReadersAreOneCall(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.run.Say(1, Started(), Text("1"), Text("2"))
	var all []*reader
	var ended []<-chan error
	for i := range 300 {
		r := newReader()
		all = append(all, r)
		ended = append(ended, w.follow(t.Context(), r, int64(i%3)))
	}
	for _, r := range all {
		waitFor(t, "all have caught up", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.marks == 1 })
	}
	// The calls for what is stored end on their own side a moment after their last word.
	waitFor(t, "one call is open", func() bool { return w.Stream.Calls() == 1 })
	if live, _ := w.Stream.Reads(); live != 1 {
		t.Errorf("got %d live calls, want one", live)
	}
	_, stored := w.Stream.Reads()
	w.run.Say(1, Text("3"))
	w.run.Complete()
	for i, r := range all {
		wantNil(t, ended[i])
		if want := 4 - i%3; len(r.has) != want || !r.ended || r.marks != 1 || len(r.wrong) > 0 {
			t.Fatalf("reader %d: got %v, ended %v, %d marks, %v", i, r.has, r.ended, r.marks, r.wrong)
		}
	}
	// One that was between its history and the live ring looks once more for what came in
	// that moment: the chunk and the end cost less than a call each.
	if live, now := w.Stream.Reads(); live != 1 || now-stored > len(all) {
		t.Errorf("%d readers have made %d more calls", len(all), live-1+now-stored)
	}
}

func TestAReaderThatStandsWhereTheTopicStandsReadsNoHistory(t *testing.T) {
	t.Parallel()
	w := open(t)
	at := w.run.Say(1, Started(), Text("1"))
	first, second := newReader(), newReader()
	one := w.follow(t.Context(), first, 0)
	waitFor(t, "the first is there", func() bool { return first.at() == at })
	waitFor(t, "the first has caught up", func() bool { first.mu.Lock(); defer first.mu.Unlock(); return first.marks == 1 })
	two := w.follow(t.Context(), second, at)
	waitFor(t, "the second has caught up", func() bool { second.mu.Lock(); defer second.mu.Unlock(); return second.marks == 1 })
	w.run.Complete()
	wantNil(t, one)
	wantNil(t, two)
	if _, stored := w.Stream.Reads(); stored != 0 {
		t.Errorf("got %d history calls, want none", stored)
	}
}

func TestAReaderAheadOfTheTopicIsToldWhatWasVoidBeforeTheTopicCameToIt(t *testing.T) {
	t.Parallel()
	w := open(t)
	at := w.run.Say(1, Started())
	first, ahead := newReader(), newReader()
	firstEnd := w.follow(t.Context(), first, 0)
	waitFor(t, "the first is live", func() bool { first.mu.Lock(); defer first.mu.Unlock(); return first.marks == 1 })
	w.Stream.CutOff(CutLive)
	void := w.run.Say(1, Text("void"))
	aheadEnd := w.follow(t.Context(), ahead, 0)
	waitFor(t, "the other one is ahead", func() bool { return ahead.at() == void })
	w.run.Rewind(at)
	w.Stream.CutOff(CutNothing)
	good := w.run.Say(1, Text("good"))
	w.run.Complete()
	wantNil(t, firstEnd)
	wantNil(t, aheadEnd)
	for _, r := range []*reader{first, ahead} {
		if want := map[int64]string{at: "", good: ""}; !maps.Equal(r.has, want) || len(r.wrong) > 0 {
			t.Errorf("got %v, want %v; %v", r.has, want, r.wrong)
		}
	}
}

func TestASlowReaderIsCutAndNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.feed.Chunks = 8
	w.run.Say(1, Started())
	slow, quick := newReader(), newReader()
	blocked, release := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() {
		close(blocked)
		<-release
	})
	slowEnd, quickEnd := w.follow(t.Context(), slow, 0), w.follow(t.Context(), quick, 0)
	for _, r := range []*reader{slow, quick} {
		waitFor(t, "both have caught up", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.marks == 1 })
	}
	// A reader is live once it has waited for what comes: two chunks, one after the
	// other, and it has.
	for range 2 {
		last := w.run.Say(1, Text("x"))
		waitFor(t, "both follow", func() bool { return quick.at() == last && slow.at() == last })
	}
	slow.hold(hold)
	w.run.Say(1, Text("x"))
	<-blocked
	for range 50 {
		last := w.run.Say(1, Text("x"))
		waitFor(t, "the quick one keeps up", func() bool { return quick.at() == last })
	}
	close(release)
	select {
	case err := <-slowEnd:
		if fault.ReasonOf(err) != "READER_TOO_SLOW" || !errors.Is(err, fault.Exhausted) {
			t.Errorf("got %v, want READER_TOO_SLOW", err)
		}
	case <-time.After(patience):
		t.Fatal("the slow reader still follows")
	}
	slow.hold(func() {})
	slowEnd = w.follow(t.Context(), slow, slow.cursor)
	w.run.Complete()
	wantNil(t, slowEnd)
	wantNil(t, quickEnd)
	for _, r := range []*reader{slow, quick} {
		if len(r.has) != 54 || len(r.wrong) > 0 {
			t.Errorf("got %d chunks, want 54; %v", len(r.has), r.wrong)
		}
	}
}

func TestATopicEndsWithItsLastReader(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.run.Say(1, Started())
	one, leaveOne := context.WithCancel(t.Context())
	two, leaveTwo := context.WithCancel(t.Context())
	first, second := newReader(), newReader()
	oneEnd, twoEnd := w.follow(one, first, 0), w.follow(two, second, 0)
	waitFor(t, "both are there", func() bool { return first.at() == 1 && second.at() == 1 })
	leaveOne()
	if err := <-oneEnd; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	last := w.run.Say(1, Text("x"))
	waitFor(t, "the second goes on", func() bool { return second.at() == last })
	leaveTwo()
	<-twoEnd
	waitFor(t, "the call ends", func() bool { return w.Stream.Calls() == 0 })
}

func TestRecordsThatAreGoneUnderATopicAreToldAndItGoesOn(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.run.Say(1, Started())
	there := newReader()
	thereEnd := w.follow(t.Context(), there, 0)
	waitFor(t, "it is there", func() bool { return there.at() == 1 })
	w.Stream.Away(true)
	w.run.Say(1, Text("lost"))
	w.Stream.Forget("t", "s")
	w.Stream.Away(false)
	wantNil(t, thereEnd)
	if !there.cut || there.ended {
		t.Error("the reader was not told that records are gone")
	}
	floor := w.Stream.Last()
	late := newReader()
	lateEnd := w.follow(t.Context(), late, floor)
	w.run.Say(1, Text("x"))
	w.run.Complete()
	wantNil(t, lateEnd)
	if len(late.has) != 1 || !late.ended || late.cut {
		t.Errorf("got %v, cut %v", late.has, late.cut)
	}
}

func TestACursorThatLeadsNowhereIsOneReadersAffair(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.run.Say(1, Started(), Text("old"))
	w.Stream.Forget("t", "s")
	floor := w.run.Say(1, Text("kept")) - 1
	w.Stream.CutOff(CutLive) // the first one's call does not answer yet
	lost, good := newReader(), newReader()
	lostEnd := w.follow(t.Context(), lost, 1)
	waitFor(t, "the topic begins", func() bool { live, _ := w.Stream.Reads(); return live == 1 })
	goodEnd := w.follow(t.Context(), good, floor)
	waitFor(t, "the good one has read what is stored", func() bool { return good.at() == floor+1 })
	w.Stream.CutOff(CutNothing)
	wantNil(t, lostEnd)
	if !lost.cut {
		t.Error("the reader below the floor was not told")
	}
	w.run.Say(1, Text("x"))
	w.run.Complete()
	wantNil(t, goodEnd)
	if good.cut || !good.ended || len(good.has) != 2 {
		t.Errorf("the good one got %v, cut %v, ended %v", good.has, good.cut, good.ended)
	}
}

func TestALongHistoryGoesAtThePaceOfTheFirstReader(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.feed.Chunks = 4
	w.run.Say(1, Started())
	for range 300 {
		w.run.Say(1, Text(strings.Repeat("x", 100)))
	}
	r := newReader()
	r.each = runtime.Gosched
	ended := w.follow(t.Context(), r, 0)
	w.run.Complete()
	wantNil(t, ended)
	live, stored := w.Stream.Reads()
	if len(r.has) != 301 || live != 1 || stored != 0 {
		t.Errorf("got %d chunks by %d and %d calls, want 301 by one", len(r.has), live, stored)
	}
}
