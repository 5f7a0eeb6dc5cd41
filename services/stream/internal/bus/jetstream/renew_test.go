package jetstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

var doubted = bus.Stream{Tenant: "t", Root: "r", Session: "r"}

const doubtedSubject = "holdfast.chunks.00.t.r.r"

// play is a NATS server where a test says what the copies of a partition
// answer, one after the other; the last answer is repeated.
type play struct {
	mu     sync.Mutex
	states []string            // of those who take themselves for the leader
	copies []map[string]uint64 // last sequences, by subject
	leads  uint64              // the leader has records 1 to this
	purges int                 // of the whole partition

	inFlight  bool // every record is refused
	stepDowns int
}

func next[T any](answers *[]T) T {
	first := (*answers)[0]
	if len(*answers) > 1 {
		*answers = (*answers)[1:]
	}
	return first
}

// stands makes an answer about a partition with the records of the stream.
func stands(leader string, first, last, began uint64, records int) string {
	return fmt.Sprintf(`{"config":{"first_seq":10,"metadata":{%q:"%d"}},"cluster":{"leader":%q},"state":{"first_seq":%d,"last_seq":%d,"subjects":{%q:%d}}}`,
		beganKey, began, leader, first, last, doubtedSubject, records)
}

func (pl *play) answer(nc *nats.Conn, m *nats.Msg) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	switch {
	case m.Subject == "holdfast.chunks.00.=":
		_ = m.Respond([]byte(`{"seq":100}`))
	case pl.inFlight && strings.HasPrefix(m.Subject, "holdfast.chunks."):
		_ = m.Respond([]byte(`{"error":{"err_code":10164}}`))
	case strings.HasPrefix(m.Subject, "$JS.API.STREAM.LEADER.STEPDOWN."):
		pl.stepDowns++
		_ = m.Respond([]byte(`{"success":true}`))
	case strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO."):
		_ = m.Respond([]byte(next(&pl.states)))
	case strings.HasPrefix(m.Subject, "$JS.API.STREAM.MSG.GET."):
		_ = m.Respond(pl.lead(m.Data))
	case strings.HasPrefix(m.Subject, "$JS.API.STREAM.PURGE."):
		if !strings.Contains(string(m.Data), "filter") {
			pl.purges++
		}
		_ = m.Respond([]byte(`{"success":true}`))
	case strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET."):
		for subject, sequence := range next(&pl.copies) {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{
				headerSubject: {subject}, headerSequence: {fmt.Sprint(sequence)},
			}})
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{headerCode: {"204"}}})
	}
}

// lead answers for the leader, who is asked for one record.
func (pl *play) lead(request []byte) []byte {
	var body struct {
		Sequence uint64 `json:"seq"`
		Last     string `json:"last_by_subj"`
	}
	err := json.Unmarshal(request, &body)
	if body.Last != "" {
		body.Sequence = pl.leads
	}
	if err != nil || body.Sequence == 0 || body.Sequence > pl.leads {
		return []byte(`{"error":{"err_code":10037}}`)
	}
	header := base64.StdEncoding.EncodeToString([]byte("NATS/1.0\r\n" + headerKind + ": chunk\r\n\r\n"))
	return fmt.Appendf(nil, `{"message":{"subject":%q,"seq":%d,"hdrs":%q}}`, doubtedSubject, body.Sequence, header)
}

// connector returns what connects to a server without JetStream.
func connector(t *testing.T) (connect func() *nats.Conn) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	return func() *nats.Conn {
		nc, err := nats.Connect("", nats.InProcessServer(ns))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
}

// start returns a bus that the play answers.
func (pl *play) start(t *testing.T) (*Bus, *partition) {
	t.Helper()
	connect := connector(t)
	stage := connect()
	for _, subject := range []string{"$JS.API.>", "holdfast.chunks.>"} {
		if _, err := stage.Subscribe(subject, func(m *nats.Msg) { pl.answer(stage, m) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := stage.Flush(); err != nil {
		t.Fatal(err)
	}
	b := &Bus{nc: connect(), names: names{"holdfast"}, link: newLink(), log: slog.New(slog.DiscardHandler), options: Options{Now: time.Now}}
	var err error
	if b.inbox, err = openInbox(b.nc); err != nil {
		t.Fatal(err)
	}
	return b, &partition{doubts: make(chan struct{}, 1), tail: &tail{}}
}

// TestADoubtIsSettledByCopiesThatHaveTheProbe plays copies that lag, and servers
// that were deposed. Record 90 is in doubt, and the probe is 100.
func TestADoubtIsSettledByCopiesThatHaveTheProbe(t *testing.T) {
	t.Parallel()
	const probe = "holdfast.chunks.00.="
	type answers = []map[string]uint64
	whole := answers{{doubtedSubject: 90, probe: 100}}
	for name, c := range map[string]struct {
		states []string
		copies answers
		want   verdict
	}{
		"nothing is there":                          {[]string{stands("a", 10, 100, 0, 0)}, nil, founded},
		"less is there":                             {[]string{stands("a", 10, 100, 0, 3)}, answers{{doubtedSubject: 85, probe: 100}}, founded},
		"less is there, beside a later probe":       {[]string{stands("a", 10, 120, 0, 3)}, answers{{doubtedSubject: 85, probe: 120}}, founded},
		"the record is there":                       {[]string{stands("a", 10, 100, 0, 3)}, whole, unfounded},
		"a later one is there":                      {[]string{stands("a", 10, 100, 0, 3)}, answers{{doubtedSubject: 99, probe: 100}}, unfounded},
		"a deposed leader has less":                 {[]string{stands("a", 10, 80, 0, 0), stands("b", 10, 100, 0, 3)}, whole, unfounded},
		"a copy lags":                               {[]string{stands("a", 10, 100, 0, 3)}, answers{{doubtedSubject: 85}, {doubtedSubject: 85, probe: 70}, whole[0]}, unfounded},
		"a copy has nothing yet":                    {[]string{stands("a", 10, 100, 0, 3)}, answers{{}, whole[0]}, unfounded},
		"retention has taken it":                    {[]string{stands("a", 95, 100, 0, 0)}, nil, unfounded},
		"retention takes it meanwhile":              {[]string{stands("a", 10, 100, 0, 0), stands("a", 95, 100, 0, 0)}, nil, unfounded},
		"retention takes it meanwhile from a copy":  {[]string{stands("a", 10, 100, 0, 3), stands("a", 95, 100, 0, 0)}, answers{{probe: 100}}, unfounded},
		"another leader answers in between":         {[]string{stands("a", 10, 100, 0, 0), stands("b", 10, 100, 0, 0), stands("b", 10, 100, 0, 3)}, whole, unfounded},
		"somebody has begun the partition anew":     {[]string{stands("a", 95, 100, 95, 0)}, nil, begunAnew},
		"somebody begins it anew between the looks": {[]string{stands("a", 10, 100, 0, 0), stands("a", 95, 100, 95, 0)}, nil, begunAnew},
		"somebody's renewal was cut short":          {[]string{stands("a", 10, 100, 95, 3), stands("a", 95, 100, 95, 0)}, nil, begunAnew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl := &play{states: c.states, copies: c.copies}
			b, p := pl.start(t)
			got, err := b.judge(t.Context(), p, doubt{subject: doubtedSubject, sequence: 90})
			if err != nil || got != c.want {
				t.Errorf("got verdict %d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestAFeedThatHeardMoreThanTheLogHasIsBelievedOnlyIfASequenceIsGivenTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doubt doubt
		want  verdict
	}{
		"the probe is above what was heard":                 {doubt{sequence: 99}, unfounded},
		"the probe has the sequence of what was heard":      {doubt{sequence: 100}, founded},
		"the probe is below what was heard":                 {doubt{sequence: 150}, founded},
		"another record has the sequence of what was heard": {doubt{sequence: 50, replaced: true}, founded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl := &play{states: []string{stands("a", 10, 60, 0, 0), stands("a", 10, 100, 0, 0)}}
			b, p := pl.start(t)
			if got, err := b.judge(t.Context(), p, c.doubt); err != nil || got != c.want {
				t.Errorf("got verdict %d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestADoubtThatNobodyCanSettleIsNotFounded(t *testing.T) {
	t.Parallel()
	pl := &play{states: []string{stands("a", 10, 80, 0, 0)}} // always behind
	b, p := pl.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	renewed, err := b.settle(ctx, p, doubt{subject: doubtedSubject, sequence: 90})
	if renewed || err == nil {
		t.Errorf("got %v, %v; want an error", renewed, err)
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.purges != 0 {
		t.Error("the partition was begun anew")
	}
}

// whole opens a log of one partition in a server of its own, whose Run does not
// run.
func whole(t *testing.T) (*Server, *Bus) {
	t.Helper()
	s, err := StartServer(ServerOptions{
		Directory: t.TempDir(), Wait: 2 * time.Minute, SyncInterval: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, reopen(t, s)
}

func reopen(t *testing.T, s *Server) *Bus {
	t.Helper()
	b, err := Open(t.Context(), s.Endpoint(), Options{
		Namespace: "holdfast", Partitions: 1, Replicas: 1, MaxAge: time.Hour, PartitionBytes: 1 << 20,
		RecordBytes: 1 << 10, Check: 20 * time.Millisecond, Boot: 2 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// put appends until the log takes it, as a client does: it looks whether a record is
// there of which that is not known.
func put(t *testing.T, b *Bus, expected uint64) uint64 {
	t.Helper()
	unknown := false
	for deadline := time.Now().Add(2 * time.Minute); ; {
		sequence, err := b.Append(t.Context(), doubted, expected, &chunklog.Record{Kind: chunklog.Chunk, Prev: expected})
		if err == nil {
			return sequence
		}
		if unknown = unknown || errors.Is(err, bus.ErrUnknown); unknown {
			if last, _ := b.Last(t.Context(), doubted); last != nil && last.Prev == expected { // one that cannot be looked for now is appended again
				return last.Sequence
			}
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestARenewalThatWasCutShortIsCompletedByWhoeverSeesIt(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, _ *Server, b *Bus) {
		live := &ear{}
		defer b.Follow(bus.Scope{Stream: doubted}, live)()
		b.compare(t.Context(), b.partitions[0])
		if live.gaps == 0 {
			t.Error("who follows was not told of a gap")
		}
	}
	for name, see := range map[string]func(*testing.T, *Server, *Bus){
		"Info":                       func(*testing.T, *Server, *Bus) {}, // below
		"Open":                       func(t *testing.T, s *Server, _ *Bus) { reopen(t, s) },
		"Run where somebody follows": run,
		"Run where nobody does": func(t *testing.T, _ *Server, b *Bus) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			group.Go(func() { _ = b.Run(ctx) })
			for {
				state, err := b.look(ctx, 0, "")
				if err != nil {
					t.Fatal(err)
				}
				if !state.halfRenewed() {
					return
				}
			}
		},
		"the next doubt": func(t *testing.T, _ *Server, b *Bus) {
			if renewed, err := b.Renew(t.Context(), doubted, 1); renewed || err != nil {
				t.Errorf("got %v, %v; want an unfounded doubt", renewed, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := whole(t)
			first := put(t, b, 0)
			began := put(t, b, first) + 1000
			if err := b.noteBegan(t.Context(), b.partitions[0], began); err != nil {
				t.Fatal(err)
			}
			see(t, s, b)
			state, err := b.look(t.Context(), 0, "")
			if err != nil || name != "Info" && state.First != began {
				t.Errorf("got first %d, %v; want %d", state.First, err, began)
			}
			info, err := b.Info(t.Context(), doubted)
			if want := (bus.Info{Floor: began - 1, Top: began - 1, Began: began}); err != nil || info != want {
				t.Errorf("got %+v, %v; want %+v", info, err, want)
			}
			if next := put(t, b, 0); next != began {
				t.Errorf("got sequence %d, want %d", next, began)
			}
		})
	}
}

func TestARenewalIsFarAboveTheLogWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	last := put(t, b, 0)
	b.options.Now = func() time.Time { return time.Unix(0, 0) }
	if renewed, err := b.Renew(t.Context(), doubted, last+10); !renewed || err != nil {
		t.Fatalf("got %v, %v; want a log begun anew", renewed, err)
	}
	if next := put(t, b, 0); next < last+10+lostReach {
		t.Errorf("got sequence %d, want it far above %d: other sessions may know later ones", next, last+10)
	}
}

func TestARenewalGoesOnFromWhatAnotherHasLeft(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	p := b.partitions[0]
	last := put(t, b, 0)
	if err := b.noteBegan(t.Context(), p, last+1000); err != nil {
		t.Fatal(err)
	}
	state, err := b.beginAnew(t.Context(), p, last+10)
	if err != nil || state.began != last+1000 || state.First != state.began {
		t.Errorf("got %+v, %v; want what the other began", state, err)
	}
	if err := b.noteBegan(t.Context(), p, last+500); err != nil {
		t.Fatal(err)
	}
	if state, err = b.look(t.Context(), 0, ""); err != nil || state.began != last+1000 {
		t.Errorf("got began %d, %v; a later renewal to a lower sequence took it back", state.began, err)
	}
}

// told hands on the sequences that a follower is told, 0 for a gap.
type told chan uint64

func (c told) Deliver(r *chunklog.Record) { c <- r.Sequence }
func (c told) Gap()                       { c <- 0 }

// await wants the next thing that is told.
func (c told) await(t *testing.T, want uint64) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Fatalf("was told of %d, want %d", got, want)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("was told nothing, want %d", want)
	}
}

func TestProbesDoNotFillTheLogNorReachReaders(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	p := b.partitions[0]
	live := make(told, 16)
	defer b.Follow(bus.Scope{Stream: doubted, Family: true}, live)()
	first := put(t, b, 0)
	live.await(t, first)
	var probe uint64
	begin := time.Now()
	for range 4 {
		if err := p.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		if probe, err = b.probe(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.leave()
	}
	if took := time.Since(begin); took < 3*probePause {
		t.Errorf("four probes took %v, want a pause of %v between them", took, probePause)
	}
	second := put(t, b, first)
	if second != probe+1 {
		t.Errorf("got sequence %d after probe %d", second, probe)
	}
	page, err := b.History(t.Context(), bus.Scope{Stream: doubted, Family: true}, 0)
	if err != nil || len(page.Records) != 2 {
		t.Errorf("got %d records, %v; want 2 and no probe", len(page.Records), err)
	}
	state, err := b.look(t.Context(), 0, "holdfast.chunks.00.>")
	if want := map[string]int64{doubtedSubject: 2, "holdfast.chunks.00.=": 1}; err != nil || !maps.Equal(state.Subjects, want) {
		t.Errorf("got %v, %v; want %v", state.Subjects, err, want)
	}
	live.await(t, second) // and no gap before it: probes are heard as well
}

func TestADoubtThatTheLeaderAnswersWritesNothing(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	last := put(t, b, 0)
	for range 100 {
		if renewed, err := b.Renew(t.Context(), doubted, last); renewed || err != nil {
			t.Fatalf("got %v, %v; want an unfounded doubt", renewed, err)
		}
	}
	if next := put(t, b, last); next != last+1 {
		t.Errorf("got sequence %d after %d: something was written between", next, last)
	}
}

func TestASequenceThatWasGivenTwiceIsSeenAfterAnOutage(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	p := b.partitions[0]
	live := make(told, 16)
	defer b.Follow(bus.Scope{Stream: doubted}, live)()
	last := put(t, b, 0)
	live.await(t, last)
	hear := func(change func(*mark)) uint64 {
		p.tail.mu.Lock()
		if want := (mark{last, "t.r.r", storedAt(t, b, last)}); p.tail.heard != want {
			t.Errorf("remembers %v of what was heard, want %v", p.tail.heard, want)
		}
		change(&p.tail.heard)
		p.tail.lost = true
		p.tail.mu.Unlock()
		b.compare(t.Context(), p)
		state, err := b.look(t.Context(), 0, "")
		if err != nil {
			t.Fatal(err)
		}
		return state.began
	}
	if began := hear(func(*mark) {}); began > last {
		t.Fatal("the very record that was heard is there, and the partition was begun anew")
	}
	if began := hear(func(m *mark) { m.stored = "2026-01-01T00:00:00Z" }); began <= last {
		t.Error("the record was stored at another time than the one that was heard, and nobody noticed")
	}
	live.await(t, 0)
	last = put(t, b, 0)
	live.await(t, last)
	if began := hear(func(m *mark) { m.key = "t.r.other" }); began <= last {
		t.Error("the record is of another stream than the one that was heard, and nobody noticed")
	}
}

// storedAt returns when a record was stored, as those who follow hear it.
func storedAt(t *testing.T, b *Bus, sequence uint64) string {
	t.Helper()
	m, err := b.nc.Request("$JS.API.DIRECT.GET."+b.names.stream(0), fmt.Appendf(nil, `{"seq":%d}`, sequence), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return m.Header[headerTime][0]
}

func TestALogFromBeforeThereWereShardsIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	s, b := whole(t)
	last := put(t, b, 0)
	stream, err := b.js.Stream(t.Context(), b.names.stream(0))
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Metadata = map[string]string{partitionsKey: "1"}
	if _, err := b.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, s)
	if next := put(t, again, last); next != last+1 {
		t.Errorf("got sequence %d after %d", next, last)
	}
	answer, err := b.nc.Request("$JS.API.STREAM.INFO."+b.names.stream(0), nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Config struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
	}
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		t.Fatal(err)
	}
	if body.Config.Metadata[shardsKey] != "1" || body.Config.Metadata[shardKey] != "0" {
		t.Errorf("got metadata %v, want shard 0 of 1", body.Config.Metadata)
	}
}
