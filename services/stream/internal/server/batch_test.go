package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// batchRequest says one text a chunk.
func batchRequest(epoch, number, last int64, texts ...string) *streamv1.AppendRequest {
	r := &streamv1.AppendRequest{Stream: ref, Epoch: epoch, Number: number, ExpectedLastSequence: last}
	for i, text := range texts {
		chunk := &eventv1.Chunk{AgentId: "run", Step: 1, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}}
		if i == 0 {
			r.Record = &streamv1.AppendRequest_Chunk{Chunk: chunk}
			continue
		}
		r.More = append(r.More, chunk)
	}
	return r
}

// wantStored sends the request and checks how many of its records the answer says
// are stored, and that its sequence is that of the last record of the log.
func wantStored(t *testing.T, s *server.Server, log bus.Bus, r *streamv1.AppendRequest, want int32) int64 {
	t.Helper()
	answer, err := s.Append(t.Context(), r)
	if err != nil || answer.GetStored() != want {
		t.Fatalf("number %d: got %v, %v; want %d stored", r.GetNumber(), answer, err, want)
	}
	if all := stored(t, log); len(all) == 0 || uint64(answer.GetSequence()) != all[len(all)-1] { //nolint:gosec // positive
		t.Fatalf("number %d: got sequence %d; want that of the last of %v", r.GetNumber(), answer.GetSequence(), all)
	}
	return answer.GetSequence()
}

// wantTexts checks what the log holds, and that each record is linked to the one
// before it.
func wantTexts(t *testing.T, log bus.Bus, want ...string) {
	t.Helper()
	page, err := log.History(t.Context(), bus.Scope{Stream: stream}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var before uint64
	for _, r := range page.Records {
		if r.Prev != before && before > 0 {
			t.Errorf("record %d is linked to %d, want %d", r.Sequence, r.Prev, before)
		}
		before = r.Sequence
		chunk := &eventv1.Chunk{}
		if err := proto.Unmarshal(r.Payload, chunk); err != nil {
			t.Fatal(err)
		}
		got = append(got, chunk.GetTextDelta().GetDelta())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}

// before does something before the n-th store from now on.
func (f *faulty) before(n int, do func()) {
	f.beforeStore = do
	for range n - 1 {
		next := f.beforeStore
		f.beforeStore = func() { f.beforeStore = next }
	}
}

func TestTheChunksOfARequestAreRecordsOfTheirOwn(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	first := wantStored(t, s, log, batchRequest(1, 1, 0, "a"), 1)
	last := wantStored(t, s, log, batchRequest(1, 2, first, "b", "c", "d"), 3)
	wantStored(t, s, log, batchRequest(1, 5, last, "e"), 1)
	wantTexts(t, log, "a", "b", "c", "d", "e")
	if got, want := log.asked(), "last 0, history 4, info 0, renew 0"; got != want { // the histories are this test's
		t.Errorf("got %s, want no look-up for five chunks: %s", got, want)
	}
}

func TestARepetitionGoesOnBehindWhatIsStored(t *testing.T) {
	t.Parallel()
	for count := range 5 {
		log, s := newFaulty(t)
		all := []string{"b", "c", "d", "e"}
		first := mustAppend(t, s, batchRequest(1, 1, 0, "a"))
		last := first
		for i, text := range all[:count] {
			last = mustAppend(t, s, batchRequest(1, int64(i+2), last, text))
		}
		for _, s := range []*server.Server{s, serverOn(t, log), s} {
			wantStored(t, s, log, batchRequest(1, 2, first, all...), 4)
		}
		wantTexts(t, log, append([]string{"a"}, all...)...)
	}
}

func TestARequestThatTheTailIsNotOneOfIsOutOfOrder(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	last := mustAppend(t, s, batchRequest(1, 1, 0, "a", "b", "c", "d"))
	for _, number := range []int64{1, 2, 6} {
		_, err := s.Append(t.Context(), batchRequest(1, number, last, "x", "y"))
		wantReason(t, err, fault.Stale, "APPEND_OUT_OF_ORDER")
	}
	wantTexts(t, log, "a", "b", "c", "d")
}

func TestWhatStopsARequestInTheMiddleIsToldToTheNextOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, log *faulty, other *server.Server)
		kind   fault.Kind
		reason string
		after  []string
	}{
		"another writer": {
			func(t *testing.T, _ *faulty, other *server.Server) {
				mustAppend(t, other, batchRequest(2, 1, 0, "new"))
			},
			fault.Stale, "WRITER_FENCED", []string{"a", "b", "new"},
		},
		"the end of the run": {
			func(t *testing.T, _ *faulty, other *server.Server) {
				r := batchRequest(1, 3, 0, "over")
				r.Record = &streamv1.AppendRequest_Terminal{Terminal: &streamv1.Terminal{RunId: "run", Outcome: &streamv1.Terminal_Fail{}}}
				mustAppend(t, other, r)
			},
			fault.Stale, "APPEND_OUT_OF_ORDER", []string{"a", "b", ""},
		},
		"a lost end": {
			func(t *testing.T, log *faulty, _ *server.Server) {
				all := stored(t, log)
				if err := log.Void(t.Context(), stream, all[len(all)-1:]); err != nil {
					t.Fatal(err)
				}
			},
			fault.Stale, "LOG_RENEWED", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, s := newFaulty(t)
			other := serverOn(t, log)
			log.before(3, func() { c.spoil(t, log, other) })
			answer, err := s.Append(t.Context(), batchRequest(1, 1, 0, "a", "b", "c", "d"))
			if err != nil || answer.GetStored() != 2 {
				t.Fatalf("got %v, %v; want 2 stored", answer, err)
			}
			for range 2 {
				_, err = s.Append(t.Context(), batchRequest(1, 3, answer.GetSequence(), "c", "d"))
				wantReason(t, err, c.kind, c.reason)
			}
			wantTexts(t, log, c.after...)
		})
	}
}

func TestAnUnknownOutcomeInTheMiddleIsLookedUp(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d"}
	for nth := 1; nth <= 3; nth++ {
		log, s := newFaulty(t)
		log.before(nth, func() { log.lose = true }) // it strikes the next one
		wantStored(t, s, log, batchRequest(1, 1, 0, all...), 4)
		wantTexts(t, log, all...)
	}
}

func TestAnOutcomeThatStaysUnknownIsFoundByTheRequestThatBringsTheRest(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d"}
	for name, spoil := range map[string]func(*faulty){
		"it was lost": func(f *faulty) { f.drop = true },
		"it was stored and the log cannot be looked": func(f *faulty) { f.lose, f.blind = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for nth := 1; nth <= 3; nth++ {
				log, s := newFaulty(t)
				log.before(nth, func() { spoil(log) })
				answer, err := s.Append(t.Context(), batchRequest(1, 1, 0, all...))
				if err != nil || answer.GetStored() != int32(nth) { //nolint:gosec // small
					t.Fatalf("the outcome of chunk %d is unknown: got %v, %v; want what stands before it", nth+1, answer, err)
				}
				rest := batchRequest(1, int64(nth)+1, answer.GetSequence(), all[nth:]...)
				wantStored(t, s, log, rest, int32(len(all)-nth)) //nolint:gosec // small
				wantTexts(t, log, all...)
			}
		})
	}
}

func TestARequestOfWhichNothingIsStoredIsRefusedAsOne(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	log.drop = true
	_, err := s.Append(t.Context(), batchRequest(1, 1, 0, "a", "b"))
	wantReason(t, err, fault.Unavailable, "LOG_UNAVAILABLE")
	mustAppend(t, s, batchRequest(2, 1, 0, "new"))
	_, err = s.Append(t.Context(), batchRequest(1, 1, 0, "a", "b"))
	wantReason(t, err, fault.Stale, "WRITER_FENCED")
	wantTexts(t, log, "new")
}

func TestTwoAttemptsOfOneRequestStoreItOnce(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d", "e"}
	for nth := 1; nth <= len(all); nth++ {
		log, s := newFaulty(t)
		other := serverOn(t, log)
		log.before(nth, func() { // the whole of the second attempt comes amid the first
			wantStored(t, other, log, batchRequest(1, 1, 0, all...), 5)
		})
		wantStored(t, s, log, batchRequest(1, 1, 0, all...), 5)
		wantTexts(t, log, all...)
	}
}

func TestAllOfARequestIsCheckedBeforeTheFirstIsStored(t *testing.T) {
	t.Parallel()
	many := func(count, bytes int) *streamv1.AppendRequest {
		texts := make([]string, count)
		for i := range texts {
			texts[i] = strings.Repeat("x", bytes)
		}
		return batchRequest(1, 1, 0, texts...)
	}
	spoilt := func(spoil func(*streamv1.AppendRequest)) *streamv1.AppendRequest {
		r := batchRequest(1, 1, 0, "a", "b", "c")
		spoil(r)
		return r
	}
	const limit = 200 << 10 // of one chunk
	for name, c := range map[string]struct {
		request *streamv1.AppendRequest
		kind    fault.Kind
		reason  string
	}{
		"64 chunks":              {many(64, 1), 0, ""},
		"65 chunks":              {many(65, 1), fault.Invalid, "BATCH_INVALID"},
		"too much together":      {many(4, 64<<10), fault.Invalid, "BATCH_INVALID"},
		"just enough together":   {many(4, 64<<10-64), 0, ""},
		"the last is too large":  {batchRequest(1, 1, 0, "a", "b", strings.Repeat("x", limit)), fault.TooLarge, "CHUNK_TOO_LARGE"},
		"the first is too large": {batchRequest(1, 1, 0, strings.Repeat("x", limit), "b"), fault.TooLarge, "CHUNK_TOO_LARGE"},
		"the last has no run":    {spoilt(func(r *streamv1.AppendRequest) { r.More[1].AgentId = "" }), fault.Invalid, "CHUNK_INVALID"},
		"the last has no step":   {spoilt(func(r *streamv1.AppendRequest) { r.More[1].Step = -1 }), fault.Invalid, "CHUNK_INVALID"},
		"the last is no text":    {batchRequest(1, 1, 0, "a", "b", "\xff"), fault.Invalid, "CHUNK_INVALID"},
		"a chunk is missing":     {spoilt(func(r *streamv1.AppendRequest) { r.More[0] = nil }), fault.Invalid, "CHUNK_INVALID"},
		"there is no first one":  {spoilt(func(r *streamv1.AppendRequest) { r.Record = nil }), fault.Invalid, "CHUNK_INVALID"},
		"a terminal record": {spoilt(func(r *streamv1.AppendRequest) {
			r.Record = &streamv1.AppendRequest_Terminal{Terminal: &streamv1.Terminal{RunId: "run", Outcome: &streamv1.Terminal_Fail{}}}
		}), fault.Invalid, "BATCH_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := memory.New(memory.Options{})
			s, err := server.New(log, hub.New(log, hub.Limits{Records: 8, Bytes: 1 << 20}), server.Options{ChunkBytes: limit})
			if err != nil {
				t.Fatal(err)
			}
			answer, err := s.Append(t.Context(), c.request)
			count := 0
			if c.reason == "" {
				count = 1 + len(c.request.GetMore())
			} else {
				wantReason(t, err, c.kind, c.reason)
			}
			if got := len(stored(t, log)); got != count || int(answer.GetStored()) != count {
				t.Errorf("%d records are stored and %d answered, want %d: %v", got, answer.GetStored(), count, err)
			}
		})
	}
}

func TestAChunkByItselfMayBeLargerThanARequestOfSeveral(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	wantStored(t, s, log, batchRequest(1, 1, 0, strings.Repeat("x", 300<<10)), 1)
}

func TestARequestThatTakesTooLongIsAnsweredWithWhatIsStored(t *testing.T) {
	t.Parallel()
	log := &faulty{Log: memory.New(memory.Options{})}
	var now time.Time
	s, err := server.New(log, hub.New(log, hub.Limits{Records: 8, Bytes: 1 << 20}), server.Options{
		ChunkBytes: 1 << 20, Now: func() time.Time { now = now.Add(400 * time.Millisecond); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	last := wantStored(t, s, log, batchRequest(1, 1, 0, "a", "b", "c", "d", "e"), 3)
	wantStored(t, s, log, batchRequest(1, 4, last, "d", "e"), 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits for the answer
	answer, err := s.Append(ctx, batchRequest(1, 6, 0, "f", "g"))
	if err != nil || answer.GetStored() != 1 {
		t.Errorf("got %v, %v; want one stored for a caller that has gone", answer, err)
	}
	wantTexts(t, log, "a", "b", "c", "d", "e", "f")
}

func TestAReaderIsToldTheChunksOfARequestOneByOne(t *testing.T) {
	t.Parallel()
	_, s := newFaulty(t)
	last := mustAppend(t, s, batchRequest(1, 1, 0, "a", "b", "c"))
	want := []string{fmt.Sprint(last - 1), fmt.Sprint(last), "caught up"}
	if got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: last - 2}); !slices.Equal(got, want) {
		t.Errorf("from amid a request: got %q, want %q", got, want)
	}
}
