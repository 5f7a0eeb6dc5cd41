package jetstream

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func TestEveryIdIsOneTokenOfItsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.StringN(1, 256, 256), rapid.StringMatching(`[a=.2e]{1,12}`)).Draw(t, "id")
		tok := token(id)
		if tok == "" || strings.ContainsAny(tok, ". *>\t\r\n") {
			t.Fatalf("%q: got token %q, which is not one", id, tok)
		}
		if back, err := fromToken(tok); err != nil || back != id {
			t.Fatalf("%q: got %q, %v back from token %q", id, back, err, tok)
		}
	})
}

func TestAnAcknowledgementSaysTheSameHoweverItIsRead(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		plain, sequence uint64
		refused         bool
	}{
		`{"stream":"A_CHUNKS_01","seq":17}`:                    {plain: 17, sequence: 17},
		`{"stream":"A_CHUNKS_01", "seq":18446744073709551615}`: {plain: 1<<64 - 1, sequence: 1<<64 - 1},
		`{"stream":"A_CHUNKS_01","domain":"hub","seq":17}`:     {sequence: 17},
		`{"stream":"A_CHUNKS_01","seq":17,"duplicate":true}`:   {sequence: 17},
		`{"seq":17,"stream":"A_CHUNKS_01"}`:                    {sequence: 17},
		`{"stream":"A_CHUNKS_01","seq":18446744073709551616}`:  {refused: true},
		`{"stream":"A_CHUNKS_01","seq":}`:                      {refused: true},
		`{"stream":"A_CHUNKS_01`:                               {refused: true},
		``:                                                     {refused: true},
		`{"error":{"code":400,"err_code":10071,"description":"wrong last"},"stream":"A_CHUNKS_01","seq":0}`: {refused: true},
		`{"stream":"A_CHUNKS_01","seq":0,"error":{"code":400,"err_code":10071}}`:                            {refused: true},
	} {
		if got := plainSequence([]byte(answer)); got != want.plain {
			t.Errorf("%s: got %d at first sight, want %d", answer, got, want.plain)
		}
		got, err := acknowledged(&nats.Msg{Data: []byte(answer)})
		if got != want.sequence || (err != nil) != want.refused {
			t.Errorf("%s: got %d, %v, want %d and refused %v", answer, got, err, want.sequence, want.refused)
		}
	}
}

func TestAnOrdinaryIdIsReadableInItsSubject(t *testing.T) {
	t.Parallel()
	s := bus.Stream{Tenant: "acme", Root: "chat-17", Session: "chat-17.child"}
	const want = "holdfast.chunks.03.acme.chat-17.chat-17=2echild"
	if got := (names{"holdfast"}).subject(3, s); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestABrokenTokenIsAnError(t *testing.T) {
	t.Parallel()
	for _, tok := range []string{"=", "a=2", "=zz"} {
		if id, err := fromToken(tok); err == nil {
			t.Errorf("%q: got %q, want an error", tok, id)
		}
	}
}

// ear counts what a follower is told.
type ear struct {
	records []uint64
	gaps    int
}

func (e *ear) Deliver(r *chunklog.Record) { e.records = append(e.records, r.Sequence) }
func (e *ear) Gap()                       { e.gaps++ }

// heard makes the message by which the server tells a record again.
func heard(session string, sequence uint64) *nats.Msg {
	h := encode(&chunklog.Record{Epoch: 1, Number: 1, Kind: chunklog.Chunk}, 0)
	h[headerSequence] = []string{strconv.FormatUint(sequence, 10)}
	return &nats.Msg{Subject: "live.00.t.r." + session, Header: h}
}

func newTail(last uint64) (*tail, *ear) {
	e := &ear{}
	t := &tail{live: "live.00.", follows: map[string][]*follow{"t.r.": {{e}}}}
	t.begin(last)
	return t, e
}

func TestAJumpOfThePartitionsSequenceIsAGapForEverybody(t *testing.T) {
	t.Parallel()
	tail, e := newTail(10)
	tail.hear(heard("a", 11))
	tail.hear(heard("b", 12))
	tail.hear(heard("b", 12)) // heard twice
	if e.gaps != 0 || len(e.records) != 2 {
		t.Fatalf("got %v and %d gaps, want 11, 12 and no gap", e.records, e.gaps)
	}
	// 13 was of session a, which may stay silent: only the partition shows it.
	tail.hear(heard("b", 14))
	if e.gaps != 1 {
		t.Errorf("got %d gaps, want 1", e.gaps)
	}
}

func TestALostLastRecordIsNoticedByComparing(t *testing.T) {
	t.Parallel()
	tail, e := newTail(10)
	tail.check(10)
	tail.check(11)
	if e.gaps != 0 {
		t.Fatal("the first look says gap: the record may be on its way")
	}
	tail.check(11)
	if e.gaps != 1 {
		t.Errorf("got %d gaps after two looks, want 1", e.gaps)
	}
	tail.check(12)
	tail.hear(heard("a", 12))
	tail.check(12)
	if e.gaps != 1 || len(e.records) != 1 {
		t.Errorf("got %v and %d gaps, want the record that was on its way and no further gap", e.records, e.gaps)
	}
	tail.setLost(true) // the connection was lost: one look is enough
	tail.check(13)
	if e.gaps != 2 {
		t.Errorf("got %d gaps after a lost connection, want 2", e.gaps)
	}
}

func TestABatchWithAMissingMessageIsNotAPage(t *testing.T) {
	t.Parallel()
	part := func(sequence, former uint64) *nats.Msg {
		m := heard("a", sequence)
		m.Header[headerLastSequence] = []string{strconv.FormatUint(former, 10)}
		m.Header[headerSubject] = []string{"chunks.00.t.r.a"}
		return m
	}
	end := func(last uint64) *nats.Msg {
		return &nats.Msg{Header: nats.Header{headerCode: {"204"}, headerLastSequence: {strconv.FormatUint(last, 10)}, headerPending: {"0"}}}
	}
	for name, c := range map[string]struct {
		messages []*nats.Msg
		fails    bool
	}{
		"whole":           {[]*nats.Msg{part(4, 0), part(9, 4), end(9)}, false},
		"the first lost":  {[]*nats.Msg{part(9, 4), end(9)}, true},
		"a middle lost":   {[]*nats.Msg{part(4, 0), part(12, 9), end(12)}, true},
		"the last lost":   {[]*nats.Msg{part(4, 0), end(9)}, true},
		"nothing arrived": {[]*nats.Msg{end(9)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c2 collector
			var err error
			for done := false; !done && err == nil; c.messages = c.messages[1:] {
				done, err = c2.take(c.messages[0])
			}
			if (err != nil) != c.fails {
				t.Errorf("got %v, want failure %v", err, c.fails)
			}
		})
	}
}

func TestALeaderGivesWhatACopyThatLagsDoesNotHave(t *testing.T) {
	t.Parallel()
	const count = 2*leaderRecords + 5
	pl := &play{copies: []map[string]uint64{{}}, leads: count}
	b, p := pl.start(t)
	b.options.Replicas, b.partitions = 3, []*partition{p}
	var got []uint64
	for more := true; more; {
		var after uint64
		if len(got) > 0 {
			after = got[len(got)-1]
		}
		page, err := b.History(t.Context(), bus.Scope{Stream: doubted}, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			got = append(got, r.Sequence)
		}
		more = page.More
	}
	if len(got) != count || got[0] != 1 || got[count-1] != count || !slices.IsSorted(got) {
		t.Errorf("got %v, want 1 to %d", got, count)
	}
}

func TestHistoryOfCopiesIsComparedWithTheLeader(t *testing.T) {
	t.Parallel()
	server, err := StartServer(ServerOptions{
		Directory: t.TempDir(), Wait: 2 * time.Minute, SyncInterval: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	b, err := Open(t.Context(), server.Endpoint(), Options{
		Namespace: "holdfast", Partitions: 1, Replicas: 1, MaxAge: time.Hour, PartitionBytes: 1 << 20,
		RecordBytes: 1 << 10, Check: time.Second, Boot: 2 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.options.Replicas = 3 // as History would see it in a cluster
	s := bus.Stream{Tenant: "t", Root: "r", Session: "r"}
	for _, want := range []int{0, 1, 2} {
		page, err := b.History(t.Context(), bus.Scope{Stream: s, Family: true}, 0)
		if err != nil || len(page.Records) != want {
			t.Fatalf("got %d records, %v; want %d", len(page.Records), err, want)
		}
		last, err := b.Last(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		var expected uint64
		if last != nil {
			expected = last.Sequence
		}
		if _, err := b.Append(t.Context(), s, expected, &chunklog.Record{Kind: chunklog.Chunk, Prev: expected}); err != nil {
			t.Fatal(err)
		}
	}
}
