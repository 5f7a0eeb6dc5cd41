package stream_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
)

// listed says the records of a page in words.
func listed(page *streamv1.ListResponse) []string {
	var said []string
	for _, r := range page.GetRecords() {
		switch body := r.GetRecord().(type) {
		case *streamv1.Record_Chunk:
			said = append(said, body.Chunk.GetTextDelta().GetDelta())
		case *streamv1.Record_Terminal:
			said = append(said, "end "+body.Terminal.GetRunId())
		case *streamv1.Record_Rewound:
			said = append(said, "rewound")
		}
	}
	return said
}

func (h *house) list(t *testing.T, r *streamv1.ListRequest) *streamv1.ListResponse {
	t.Helper()
	page, err := h.List(t.Context(), r)
	if err != nil {
		t.Fatalf("list %v: %v", r, err)
	}
	return page
}

// listAll reads all pages, and checks that each begins where the one before ends.
func (h *house) listAll(t *testing.T, r *streamv1.ListRequest) []string {
	t.Helper()
	all := proto.CloneOf(r)
	var said []string
	for range 10_000 {
		page := h.list(t, all)
		if page.GetFloor() > 0 {
			said = append(said, "truncated")
		}
		said = append(said, listed(page)...)
		for _, record := range page.GetRecords() {
			if s := record.GetSequence(); s <= all.GetFromSequence() || s > page.GetNextSequence() || s > page.GetLatestSequence() {
				t.Fatalf("record %d does not belong into the page from %d to %d, of %d", s, all.GetFromSequence(), page.GetNextSequence(), page.GetLatestSequence())
			}
		}
		if !page.GetHasMore() {
			return said
		}
		all.FromSequence = page.GetNextSequence()
	}
	t.Fatal("the list has no end")
	return nil
}

func TestPagesOfEverySizeGiveTheWholeStream(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("pages"), "one", 1)
		child := h.writer(&streamv1.StreamRef{Tenant: "acme", RootSessionId: "pages", SessionId: "child"}, "below", 1)
		var want, family []string
		for i := range 12 {
			w.say(t, int32(i/3), fmt.Sprint(i))
			child.say(t, 1, fmt.Sprint("c", i))
			want, family = append(want, fmt.Sprint(i)), append(family, fmt.Sprint(i), fmt.Sprint("c", i))
		}
		w.end(t, ended("one"))
		want, family = append(want, "end one"), append(family, "end one")
		two := h.writer(w.ref, "two", 2)
		two.say(t, 4, "x")
		want, family = append(want, "x"), append(family, "x")
		for _, limit := range []int32{0, 1, 2, 3, 5, 13, 14, 15, 1000} {
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: limit}), want...)
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: limit, Family: true}), family...)
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: limit, RunId: "one"}), want[:13]...)
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: limit, RunId: "two"}), "x")
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: limit, FromStep: 2}), want[6:]...)
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: limit, RunId: "nobody"}))
		}
		page := h.list(t, &streamv1.ListRequest{Stream: w.ref, Family: true, Limit: 3})
		if page.GetLatestSequence() != two.last || !page.GetHasMore() || page.GetRecords()[1].GetSessionId() != "child" {
			t.Errorf("got %v, want three records of the family, up to %d in all", page, two.last)
		}
		page = h.list(t, &streamv1.ListRequest{Stream: w.ref, FromSequence: two.last})
		if len(page.GetRecords()) != 0 || page.GetNextSequence() != two.last || page.GetLatestSequence() != two.last || page.GetFloor() != 0 {
			t.Errorf("got %v, want an empty page at %d", page, two.last)
		}
	})
}

func TestAPageEndsAtItsBytes(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("heavy"), "run", 1)
		large := strings.Repeat("x", 400<<10)
		var want []string
		for range 25 {
			w.say(t, 1, large)
			want = append(want, large)
		}
		page := h.list(t, &streamv1.ListRequest{Stream: w.ref, Limit: 1000})
		if size := proto.Size(page); size > 5<<20 || len(page.GetRecords()) != 10 || !page.GetHasMore() || page.GetLatestSequence() != w.last {
			t.Errorf("got %d records of %d bytes, more: %v; want the ten that fit into 4 MiB", len(page.GetRecords()), size, page.GetHasMore())
		}
		if got := h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Limit: 1000}); len(got) != len(want) {
			t.Errorf("got %d records in all, want %d", len(got), len(want))
		}
	})
}

func TestAChunkThatIsLargerThanAPageIsAPage(t *testing.T) {
	t.Parallel()
	onEachBusWith(t, func(c *stream.Config) { c.ChunkBytes = 4 << 20 }, func(t *testing.T, h *house) {
		w := h.writer(refOf("giant"), "run", 1)
		giant := strings.Repeat("x", 4<<20-100)
		for range 3 {
			w.say(t, 1, giant, "a")
		}
		equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref}), giant, "a", giant, "a", giant, "a")
		equal(t, h.stored(t, w.ref), giant, "a", giant, "a", giant, "a", "caught up")
	})
}

func TestAnUnknownStreamIsNotListed(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		h.writer(refOf("known"), "run", 1).say(t, 1, "a")
		for _, family := range []bool{false, true} {
			for _, cursor := range []int64{0, 5, 9_000_000_000_000_000} {
				_, err := h.List(t.Context(), &streamv1.ListRequest{Stream: refOf("unknown"), FromSequence: cursor, Family: family})
				refused(t, err, fault.NotFound, "STREAM_NOT_FOUND")
			}
		}
	})
}

func TestAListSaysWhatRetentionHasTaken(t *testing.T) {
	t.Parallel()
	onEachBusWith(t, func(c *stream.Config) { c.SessionChunks = 5 }, func(t *testing.T, h *house) {
		w := h.writer(refOf("few"), "run", 1)
		var cuts []int64
		for i := range 12 {
			w.say(t, 1, fmt.Sprint(i))
			cuts = append(cuts, w.last)
		}
		for _, family := range []bool{false, true} {
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Family: family}), "truncated", "7", "8", "9", "10", "11")
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Family: family, FromSequence: cuts[3]}), "truncated", "7", "8", "9", "10", "11")
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Family: family, FromSequence: cuts[6]}), "7", "8", "9", "10", "11")
			equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, Family: family, FromSequence: cuts[8]}), "9", "10", "11")
		}
		page := h.list(t, &streamv1.ListRequest{Stream: w.ref, FromSequence: cuts[3]})
		equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, FromSequence: page.GetFloor()}), "7", "8", "9", "10", "11")

		// What goes between two pages is told by the next one.
		page = h.list(t, &streamv1.ListRequest{Stream: w.ref, FromSequence: cuts[6], Limit: 1})
		equal(t, listed(page), "7")
		for i := range 4 {
			w.say(t, 1, fmt.Sprint("new", i))
		}
		equal(t, h.listAll(t, &streamv1.ListRequest{Stream: w.ref, FromSequence: page.GetNextSequence()}), "truncated", "11", "new0", "new1", "new2", "new3")
	})
}

func TestAReaderIsToldWhatASessionWithTooManyChunksHasLost(t *testing.T) {
	t.Parallel()
	onEachBusWith(t, func(c *stream.Config) { c.SessionChunks = 5 }, func(t *testing.T, h *house) {
		w := h.writer(refOf("many"), "run", 1)
		r := h.read(t, &streamv1.ReadRequest{Stream: w.ref})
		equal(t, []string{r.next(t)}, "caught up")
		var cuts []int64
		for i := range 12 {
			w.say(t, 1, fmt.Sprint(i))
			equal(t, []string{r.next(t)}, fmt.Sprint(i))
			cuts = append(cuts, w.last)
		}
		equal(t, h.stored(t, w.ref), "truncated")
		for i, cut := range cuts {
			request := &streamv1.ReadRequest{Stream: w.ref, FromSequence: cut, HistoryOnly: true}
			stream := h.read(t, request)
			if i >= 6 {
				equal(t, stream.rest(t), append(numbers(i+1, 12), "caught up")...)
				continue
			}
			frame, err := stream.stream.Recv()
			if err != nil || frame.GetTruncated() == nil {
				t.Fatalf("after %d: got %v, %v; want truncated", i, frame, err)
			}
			request.FromSequence = frame.GetTruncated().GetFloor()
			equal(t, h.read(t, request).rest(t), append(numbers(7, 12), "caught up")...)
		}
	})
}

func numbers(from, to int) []string {
	var words []string
	for i := from; i < to; i++ {
		words = append(words, fmt.Sprint(i))
	}
	return words
}

func TestAMalformedListIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, onMemory())
	h.writer(refOf("s"), "run", 1).say(t, 1, "a")
	child := &streamv1.StreamRef{Tenant: "acme", RootSessionId: "s", SessionId: "c"}
	for name, c := range map[string]struct {
		request *streamv1.ListRequest
		reason  string
	}{
		"no stream":            {&streamv1.ListRequest{}, "ID_INVALID"},
		"a family of a child":  {&streamv1.ListRequest{Stream: child, Family: true}, "ID_INVALID"},
		"a bad run":            {&streamv1.ListRequest{Stream: refOf("s"), RunId: "a\nb"}, "ID_INVALID"},
		"a negative cursor":    {&streamv1.ListRequest{Stream: refOf("s"), FromSequence: -1}, "CURSOR_INVALID"},
		"negative recorded":    {&streamv1.ListRequest{Stream: refOf("s"), RecordedSequence: -1}, "CURSOR_INVALID"},
		"a negative limit":     {&streamv1.ListRequest{Stream: refOf("s"), Limit: -1}, "PAGE_INVALID"},
		"a limit that is high": {&streamv1.ListRequest{Stream: refOf("s"), Limit: 1001}, "PAGE_INVALID"},
		"a negative step":      {&streamv1.ListRequest{Stream: refOf("s"), FromStep: -1}, "PAGE_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := h.List(t.Context(), c.request)
			refused(t, err, fault.Invalid, c.reason)
		})
	}
	h.list(t, &streamv1.ListRequest{Stream: refOf("s"), Limit: 1000})
}

func TestAMalformedReadIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, onMemory())
	for name, c := range map[string]struct {
		request *streamv1.ReadRequest
		reason  string
	}{
		"no stream":             {&streamv1.ReadRequest{}, "ID_INVALID"},
		"a run among every run": {&streamv1.ReadRequest{Stream: refOf("s"), EveryRun: true, RunId: "run"}, "ID_INVALID"},
		"a bad run":             {&streamv1.ReadRequest{Stream: refOf("s"), RunId: "a\nb"}, "ID_INVALID"},
		"a negative cursor":     {&streamv1.ReadRequest{Stream: refOf("s"), FromSequence: -1}, "CURSOR_INVALID"},
		"a negative recorded":   {&streamv1.ReadRequest{Stream: refOf("s"), RecordedSequence: -1}, "CURSOR_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := h.read(t, c.request).drain()
			refused(t, err, fault.Invalid, c.reason)
		})
	}
}
