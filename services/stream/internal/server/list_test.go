package server_test

import (
	"fmt"
	"slices"
	"testing"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// listAll reads all pages and says what they hold.
func listAll(t *testing.T, s *server.Server, r *streamv1.ListRequest) []string {
	t.Helper()
	var said []string
	for range 2000 {
		page, err := s.List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page.GetRecords() {
			switch body := record.GetRecord().(type) {
			case *streamv1.Record_Rewound:
				said = append(said, fmt.Sprint("rewound ", body.Rewound.GetAt()))
			case *streamv1.Record_Terminal:
				said = append(said, "end")
			default:
				said = append(said, fmt.Sprint(record.GetSequence()))
			}
		}
		if r.FromSequence = page.GetNextSequence(); !page.GetHasMore() {
			return said
		}
	}
	t.Fatal("the list has no end")
	return nil
}

// TestAListLeavesVoidChunksOutOrSaysThatTheyAre meets void chunks that nobody has
// removed yet.
func TestAListLeavesVoidChunksOutOrSaysThatTheyAre(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	log.keepVoid = true
	a := mustAppend(t, s, chunkRequest(1, 1, 1))
	for number := range int64(3) {
		mustAppend(t, s, chunkRequest(1, number+2, 2))
	}
	if _, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run", Step: 1}); err != nil {
		t.Fatal(err)
	}
	b := fmt.Sprint(mustAppend(t, s, chunkRequest(2, 2, 2)))
	stands, rewound := fmt.Sprint(a), fmt.Sprint("rewound ", a)
	x, y, z := fmt.Sprint(a+1), fmt.Sprint(a+2), fmt.Sprint(a+3)
	for _, c := range []struct {
		request *streamv1.ListRequest
		want    []string
	}{
		{&streamv1.ListRequest{}, []string{stands, b}},
		{&streamv1.ListRequest{Family: true, Limit: 5}, []string{stands, b}},
		{&streamv1.ListRequest{FromSequence: a}, []string{b}},
		{&streamv1.ListRequest{FromSequence: a + 1}, []string{rewound, b}},
		{&streamv1.ListRequest{Limit: 1}, []string{stands, x, y, z, rewound, b}},
		{&streamv1.ListRequest{Limit: 3}, []string{stands, x, y, rewound, b}},
		{&streamv1.ListRequest{Limit: 3, RunId: "run", FromStep: 2}, []string{b}},
	} {
		c.request.Stream = ref
		if got := listAll(t, s, c.request); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.request, got, c.want)
		}
	}
	if _, err := s.Reset(t.Context(), &streamv1.ResetRequest{Stream: ref, Epoch: 2, Number: 3, RunId: "run"}); err != nil {
		t.Fatal(err)
	}
	c := fmt.Sprint(mustAppend(t, s, chunkRequest(2, 4, 2)))
	if got := listAll(t, s, &streamv1.ListRequest{Stream: ref}); !slices.Equal(got, []string{c}) {
		t.Errorf("after a reset: got %q, want %q", got, c)
	}
	if got := listAll(t, s, &streamv1.ListRequest{Stream: ref, FromSequence: a}); !slices.Equal(got, []string{"rewound 0", c}) {
		t.Errorf("after a reset, from %d: got %q, want rewound and %q", a, got, c)
	}
}

func TestAHugeStretchOfVoidChunksIsPassedOver(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	log.keepVoid = true
	a := mustAppend(t, s, chunkRequest(1, 1, 1))
	for number := range int64(900) {
		mustAppend(t, s, chunkRequest(1, number+2, 2))
	}
	answer, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run", Step: 1})
	if err != nil || answer.GetVoided() != 900 {
		t.Fatalf("got %v, %v; want 900 voided", answer, err)
	}
	b := mustAppend(t, s, chunkRequest(2, 2, 2))
	want := []string{fmt.Sprint(a), fmt.Sprint(b)}
	if got := listAll(t, s, &streamv1.ListRequest{Stream: ref, Limit: 1000}); !slices.Equal(got, want) {
		t.Errorf("in one page: got %d records, want %q", len(got), want)
	}
	want = []string{fmt.Sprint("rewound ", a), fmt.Sprint(b)}
	if got := listAll(t, s, &streamv1.ListRequest{Stream: ref, Limit: 100}); len(got) != 902 || !slices.Equal(got[900:], want) {
		t.Errorf("in many pages: got %d records, the last %q, want 902 and %q", len(got), got[len(got)-2:], want)
	}
	if got := history(t, s, &streamv1.ReadRequest{Stream: ref}); len(got) != 904 || got[901] != want[0] {
		t.Errorf("read: got %d frames, want 904 with the rewound before the last two", len(got))
	}
}

func TestARewindBetweenTwoPagesIsTold(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		log, s := newFaulty(t)
		log.keepVoid = keep
		a := mustAppend(t, s, chunkRequest(1, 1, 1))
		for number := range int64(5) {
			mustAppend(t, s, chunkRequest(1, number+2, 2))
		}
		page, err := s.List(t.Context(), &streamv1.ListRequest{Stream: ref, Limit: 3})
		if err != nil || len(page.GetRecords()) != 3 {
			t.Fatalf("got %v, %v; want three records", page, err)
		}
		if _, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run", Step: 1}); err != nil {
			t.Fatal(err)
		}
		b := mustAppend(t, s, chunkRequest(2, 2, 2))
		got := listAll(t, s, &streamv1.ListRequest{Stream: ref, FromSequence: page.GetNextSequence()})
		if want := []string{fmt.Sprint("rewound ", a), fmt.Sprint(b)}; !slices.Equal(got, want) {
			t.Errorf("void records kept %v: got %q, want %q", keep, got, want)
		}
	}
}

func TestAResetThatDiedBeforeItRemovedAnythingIsFinishedByItsRepetition(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	mustAppend(t, s, chunkRequest(1, 1, 1))
	mustAppend(t, s, chunkRequest(1, 2, 2))
	request := &streamv1.ResetRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run"}
	log.dieOnVoid = true
	if _, err := s.Reset(t.Context(), request); err == nil {
		t.Fatal("the reset did not die")
	}
	if got := stored(t, log); len(got) != 3 {
		t.Fatalf("got %d records, want the two and the marker", len(got))
	}
	log.lose = true // no record is stored by the repetition, so this is for the next one
	answer, err := s.Reset(t.Context(), request)
	if got := stored(t, log); err != nil || len(got) != 1 || int64(got[0]) != answer.GetSequence() { //nolint:gosec // small
		t.Errorf("got %v, %v and records %v; want the marker alone", answer, err, got)
	}
	resume, err := s.Resume(t.Context(), &streamv1.ResumeRequest{Stream: ref, Epoch: 2, Number: 2, RunId: "run"})
	if err != nil || resume.GetSequence() != answer.GetSequence()+1 || log.lose {
		t.Errorf("got %v, %v; want the sequence of a resume whose answer was lost", resume, err)
	}
}

// TestWhatRetentionTakesWhileItIsReadIsTold has a session lose most of its records
// between two reads of the log that make one answer.
func TestWhatRetentionTakesWhileItIsReadIsTold(t *testing.T) {
	t.Parallel()
	for _, family := range []bool{false, true} {
		for _, answer := range []string{"list", "read"} {
			log := &faulty{Log: memory.New(memory.Options{SessionRecords: 300})}
			s := serverOn(t, log)
			var number int64
			write := func(count int) {
				for range count {
					number++
					mustAppend(t, s, chunkRequest(1, number, 1))
				}
			}
			write(300)
			log.asked()
			log.betweenReads = func() { write(290) }
			if answer == "read" {
				got := history(t, s, &streamv1.ReadRequest{Stream: ref, Family: family})
				if len(got) != 257 || got[256] != "truncated" {
					t.Errorf("read (family %v): got %d frames, the last %q; want 256 chunks, then truncated", family, len(got), got[len(got)-1])
				}
				continue
			}
			page, err := s.List(t.Context(), &streamv1.ListRequest{Stream: ref, Family: family, Limit: 1000})
			if err != nil || len(page.GetRecords()) != 256 || !page.GetHasMore() || page.GetFloor() != 0 {
				t.Fatalf("list (family %v): got %d records, more %v, floor %d, %v; want 256 and more", family, len(page.GetRecords()), page.GetHasMore(), page.GetFloor(), err)
			}
			page, err = s.List(t.Context(), &streamv1.ListRequest{Stream: ref, Family: family, Limit: 1000, FromSequence: page.GetNextSequence()})
			if err != nil || len(page.GetRecords()) != 300 || page.GetHasMore() || page.GetFloor() != page.GetRecords()[0].GetSequence()-1 {
				t.Errorf("list (family %v): got %d records, more %v, floor %d, %v; want the 300 behind the floor", family, len(page.GetRecords()), page.GetHasMore(), page.GetFloor(), err)
			}
		}
	}
}

// TestAVoidedCursorIsKnownInABusyFamily has what tells of a cursor stand behind
// more records of a child than fit a page of the log.
func TestAVoidedCursorIsKnownInABusyFamily(t *testing.T) {
	t.Parallel()
	_, s := newFaulty(t)
	a := mustAppend(t, s, chunkRequest(1, 1, 1))
	cursor := mustAppend(t, s, chunkRequest(1, 2, 2))
	child := &streamv1.StreamRef{Tenant: "t", RootSessionId: "s", SessionId: "child"}
	for number := range int64(600) {
		r := chunkRequest(1, number+1, 1)
		r.Stream = child
		mustAppend(t, s, r)
	}
	answer, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, FromSequence: a, RunId: "run", Step: 1})
	if err != nil || answer.GetVoided() != 1 {
		t.Fatalf("got %v, %v; want one voided", answer, err)
	}
	want := fmt.Sprint("rewound ", a)
	got := history(t, s, &streamv1.ReadRequest{Stream: ref, Family: true, FromSequence: cursor})
	if len(got) != 602 || got[600] != want {
		t.Errorf("read: got %d frames, the last %q; want 600 chunks, then %q", len(got), got[len(got)-1], want)
	}
	listed := listAll(t, s, &streamv1.ListRequest{Stream: ref, Family: true, FromSequence: cursor})
	if len(listed) != 601 || listed[600] != want {
		t.Errorf("list: got %d records, the last %q; want 600 chunks, then %q", len(listed), listed[len(listed)-1], want)
	}
	got = history(t, s, &streamv1.ReadRequest{Stream: child, FromSequence: cursor})
	if len(got) != 601 {
		t.Errorf("read a child: got %d frames, the last %q; want 600 chunks", len(got), got[len(got)-1])
	}
}

func TestARewindVoidsWhatRetentionHasTakenOfTheAttempt(t *testing.T) {
	t.Parallel()
	log := &faulty{Log: memory.New(memory.Options{SessionRecords: 5})}
	s := serverOn(t, log)
	mustAppend(t, s, chunkRequest(1, 1, 1))
	base := mustAppend(t, s, chunkRequest(1, 2, 1))
	last := base
	for number := range int64(10) {
		last = mustAppend(t, s, chunkRequest(1, number+3, 2))
	}
	request := &streamv1.RewindRequest{
		Stream: ref, Epoch: 1, Number: 13, ExpectedLastSequence: last, FromSequence: base, RunId: "run", Step: 1,
	}
	for range 2 {
		answer, err := s.Rewind(t.Context(), request)
		if err != nil || answer.GetAt() != base {
			t.Errorf("got %v, %v; want a marker at %d", answer, err, base)
		}
	}
	for _, cursor := range []int64{base + 1, base + 4, last} {
		got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor})
		if want := []string{fmt.Sprint("rewound ", base), "caught up"}; !slices.Equal(got, want) {
			t.Errorf("from %d: got %q, want %q", cursor, got, want)
		}
	}
}
