package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// reader gathers the frames of one Read.
type reader struct {
	streamv1.StreamService_ReadServer
	t      *testing.T
	frames []string
}

func (r *reader) Context() context.Context { return r.t.Context() }

func (r *reader) Send(frame *streamv1.ReadResponse) error {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		r.frames = append(r.frames, fmt.Sprint(f.Chunk.GetSequence()))
	case *streamv1.ReadResponse_Rewound:
		r.frames = append(r.frames, fmt.Sprint("rewound ", f.Rewound.GetAt()))
	case *streamv1.ReadResponse_Truncated:
		r.frames = append(r.frames, "truncated")
	case *streamv1.ReadResponse_CaughtUp:
		r.frames = append(r.frames, "caught up")
	case *streamv1.ReadResponse_End, *streamv1.ReadResponse_Fail:
		r.frames = append(r.frames, "end")
	}
	return nil
}

// history reads what is stored.
func history(t *testing.T, s *server.Server, r *streamv1.ReadRequest) []string {
	t.Helper()
	r.HistoryOnly = true
	frames := &reader{t: t}
	if err := s.Read(r, frames); err != nil {
		t.Fatal(err)
	}
	return frames.frames
}

func expecting(r *streamv1.AppendRequest, last int64) *streamv1.AppendRequest {
	r.ExpectedLastSequence = last
	return r
}

func wantReason(t *testing.T, err error, kind fault.Kind, reason string) {
	t.Helper()
	if !errors.Is(err, kind) || fault.ReasonOf(err) != reason {
		t.Fatalf("got %v, want %v (%s)", err, kind, reason)
	}
}

// lostTail writes four chunks, of which the log loses the last two.
func lostTail(t *testing.T) (log *faulty, s *server.Server, kept, lost int64) {
	t.Helper()
	log, s = newFaulty(t)
	mustAppend(t, s, chunkRequest(1, 1, 1))
	kept = mustAppend(t, s, chunkRequest(1, 2, 1))
	mustAppend(t, s, chunkRequest(1, 3, 2))
	lost = mustAppend(t, s, chunkRequest(1, 4, 2))
	if err := log.Void(t.Context(), stream, []uint64{uint64(lost - 1), uint64(lost)}); err != nil {
		t.Fatal(err)
	}
	return log, serverOn(t, log), kept, lost // a process that remembers nothing
}

func TestAWriterWhoseRecordTheLogHasLostIsToldAndTellsAnew(t *testing.T) {
	t.Parallel()
	log, s, _, lost := lostTail(t)
	for range 2 {
		_, err := s.Append(t.Context(), expecting(chunkRequest(1, 5, 2), lost))
		wantReason(t, err, fault.Stale, "LOG_RENEWED")
	}
	if got := stored(t, log); len(got) != 0 {
		t.Fatalf("got records %v, want an empty log", got)
	}
	if log.renewals != 1 {
		t.Errorf("the log was renewed %d times, want once", log.renewals)
	}
	request := &streamv1.RewindRequest{Stream: ref, Epoch: 1, Number: 5, ExpectedLastSequence: lost, RunId: "run", Step: 1, Reason: "executor_lost"}
	log.lose = true // and with the answer to the marker
	answer, err := s.Rewind(t.Context(), request)
	if err != nil || answer.GetAt() != 0 || answer.GetVoided() != 0 || answer.GetSequence() <= lost {
		t.Fatalf("got %v, %v; want a marker above %d that says that nothing stands", answer, err, lost)
	}
	again, err := s.Rewind(t.Context(), request)
	if err != nil || again.GetSequence() != answer.GetSequence() || again.GetAt() != 0 {
		t.Errorf("got %v, %v; want the first answer, %v", again, err, answer)
	}
	next := mustAppend(t, s, expecting(chunkRequest(1, 6, 2), answer.GetSequence()))
	for _, cursor := range []int64{0, lost - 3, lost, lost + 1} {
		if got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor}); !slices.Equal(got, []string{"truncated"}) {
			t.Errorf("from %d: got %q, want truncated", cursor, got)
		}
	}
	if got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: answer.GetSequence()}); !slices.Equal(got, []string{fmt.Sprint(next), "caught up"}) {
		t.Errorf("got %q, want the chunk that was told anew", got)
	}
}

func TestEveryMarkerIsTakenByALogThatHasLostItsEnd(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]func(*server.Server, int64) (int64, error){
		"rewind": func(s *server.Server, last int64) (int64, error) {
			a, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, FromSequence: last, RunId: "run"})
			return a.GetSequence(), err
		},
		"reset": func(s *server.Server, last int64) (int64, error) {
			a, err := s.Reset(t.Context(), &streamv1.ResetRequest{Stream: ref, Epoch: 2, Number: 1, ExpectedLastSequence: last, RunId: "run"})
			return a.GetSequence(), err
		},
		"resume": func(s *server.Server, last int64) (int64, error) {
			a, err := s.Resume(t.Context(), &streamv1.ResumeRequest{Stream: ref, Epoch: 2, Number: 1, ExpectedLastSequence: last, RunId: "run"})
			return a.GetSequence(), err
		},
	} {
		log, s, _, lost := lostTail(t)
		sequence, err := mark(s, lost)
		if err != nil || sequence <= lost {
			t.Errorf("%s: got %d, %v; want a marker above %d", name, sequence, err, lost)
		}
		if got := stored(t, log); !slices.Equal(got, []uint64{uint64(sequence)}) { //nolint:gosec // positive
			t.Errorf("%s: got records %v, want the marker alone", name, got)
		}
	}
}

func TestAReaderWithARecordedSequenceUncoversALostEnd(t *testing.T) {
	t.Parallel()
	for _, family := range []bool{false, true} {
		log, s, kept, lost := lostTail(t)
		if got := history(t, s, &streamv1.ReadRequest{Stream: ref, RecordedSequence: kept, Family: family}); len(got) != 3 || log.renewals != 0 {
			t.Errorf("got %q and %d renewals, want the two that are kept and no doubt", got, log.renewals)
		}
		if got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: 9_000_000_000_000_000, Family: family}); !slices.Equal(got, []string{"truncated"}) || log.renewals != 0 {
			t.Errorf("got %q and %d renewals, want truncated: a client is no witness", got, log.renewals)
		}
		for range 2 { // the second one finds it done
			got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: kept, RecordedSequence: lost, Family: family})
			if !slices.Equal(got, []string{"truncated"}) || log.renewals != 1 || len(stored(t, log)) != 0 {
				t.Errorf("got %q and %d renewals, want truncated and one", got, log.renewals)
			}
		}
		list, err := s.List(t.Context(), &streamv1.ListRequest{Stream: ref, RecordedSequence: lost, Family: family})
		if err != nil || list.GetFloor() <= lost || len(list.GetRecords()) != 0 || list.GetNextSequence() != list.GetFloor() || list.GetHasMore() {
			t.Errorf("got %v, %v; want an empty page behind a floor above %d", list, err, lost)
		}
	}
}

func TestAListWithARecordedSequenceUncoversALostEnd(t *testing.T) {
	t.Parallel()
	log, s, kept, lost := lostTail(t)
	page, err := s.List(t.Context(), &streamv1.ListRequest{Stream: ref, RecordedSequence: lost, Limit: 1})
	if err != nil || !page.GetHasMore() || log.renewals != 0 {
		t.Errorf("got %v, %v and %d renewals; want a first page and no doubt yet", page, err, log.renewals)
	}
	page, err = s.List(t.Context(), &streamv1.ListRequest{Stream: ref, RecordedSequence: lost, FromSequence: kept})
	if err != nil || page.GetFloor() <= lost || len(page.GetRecords()) != 0 || log.renewals != 1 {
		t.Errorf("got %v, %v and %d renewals; want an empty page behind a floor above %d, and one", page, err, log.renewals, lost)
	}
}

func TestAnAnswerThatIsOldRefusesNobody(t *testing.T) {
	t.Parallel()
	for looks := range 4 { // the first is that of the append, the next ones come after a doubt
		log, s := newFaulty(t)
		mustAppend(t, s, chunkRequest(1, 1, 1))
		old, err := log.Last(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		last := mustAppend(t, s, chunkRequest(1, 2, 1))
		log.stale, log.staleLooks, log.staleTop = old, looks, old.Sequence
		s = serverOn(t, log)
		got, err := s.Append(t.Context(), expecting(chunkRequest(1, 3, 1), last))
		if looks == 3 { // it lags for too long, and the writer tries again
			wantReason(t, err, fault.Unavailable, "LOG_UNAVAILABLE")
			got, err = s.Append(t.Context(), expecting(chunkRequest(1, 3, 1), last))
		}
		if err != nil || got.GetSequence() != last+1 {
			t.Errorf("%d old answers: got %v, %v; want the append stored", looks, got, err)
		}
		if got := len(stored(t, log)); got != 3 {
			t.Errorf("%d old answers: got %d records, want 3", looks, got)
		}
	}
}

func TestAWrongExpectedSequenceCostsNothingElse(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	last := mustAppend(t, s, chunkRequest(1, 1, 1))
	const never = 9_000_000_000_000_000
	if got := mustAppend(t, s, expecting(chunkRequest(1, 2, 1), never)); got != last+1 {
		t.Errorf("got %d, want %d", got, last+1)
	}
	_, err := s.Append(t.Context(), expecting(chunkRequest(1, 9, 1), never))
	wantReason(t, err, fault.Stale, "APPEND_OUT_OF_ORDER")
	if got := len(stored(t, log)); got != 2 {
		t.Errorf("got %d records, want 2", got)
	}
	fresh := chunkRequest(1, 1, 1)
	fresh.Stream = &streamv1.StreamRef{Tenant: "t", RootSessionId: "fresh", SessionId: "fresh"}
	mustAppend(t, s, expecting(fresh, never))
	frames := history(t, s, &streamv1.ReadRequest{Stream: fresh.GetStream()})
	if len(frames) != 2 {
		t.Errorf("got %q, want a chunk without a predecessor", frames)
	}
}

func TestTheUsualCaseAsksTheLogOnce(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	var last int64
	for number := range int64(5) {
		last = mustAppend(t, s, expecting(chunkRequest(1, number+1, 1), last))
	}
	if got, want := log.asked(), "last 0, history 0, info 0, renew 0"; got != want {
		t.Errorf("five appends: got %s, want %s", got, want)
	}
	for name, r := range map[string]*streamv1.ReadRequest{
		"from the beginning":      {Stream: ref},
		"recorded":                {Stream: ref, RecordedSequence: last},
		"from a cursor":           {Stream: ref, FromSequence: last - 2, RecordedSequence: last - 1},
		"from the end":            {Stream: ref, FromSequence: last},
		"from the recorded end":   {Stream: ref, FromSequence: last, RecordedSequence: last},
		"a family":                {Stream: ref, FromSequence: last - 2, RecordedSequence: last, Family: true},
		"a family, from the end":  {Stream: ref, FromSequence: last, RecordedSequence: last, Family: true, EveryRun: true},
		"one run from the middle": {Stream: ref, FromSequence: last - 1, RunId: "run"},
	} {
		history(t, s, r)
		if got, want := log.asked(), "last 0, history 1, info 0, renew 0"; got != want {
			t.Errorf("read %s: got %s, want %s", name, got, want)
		}
	}
	for name, r := range map[string]*streamv1.ListRequest{
		"from the beginning": {Stream: ref}, "recorded": {Stream: ref, RecordedSequence: last},
		"from the end": {Stream: ref, FromSequence: last}, "a family": {Stream: ref, FromSequence: last - 2, Family: true},
	} {
		if _, err := s.List(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got, want := log.asked(), "last 0, history 1, info 0, renew 0"; got != want {
			t.Errorf("list %s: got %s, want %s", name, got, want)
		}
	}
}

func TestACursorOfTheFamilyIsGoodForItsSessions(t *testing.T) {
	t.Parallel()
	_, s := newFaulty(t)
	first := mustAppend(t, s, chunkRequest(1, 1, 1))
	child := chunkRequest(1, 1, 1)
	child.Stream = &streamv1.StreamRef{Tenant: "t", RootSessionId: "s", SessionId: "child"}
	below := mustAppend(t, s, child)
	last := mustAppend(t, s, chunkRequest(1, 2, 1))
	stranger := chunkRequest(1, 1, 1)
	stranger.Stream = &streamv1.StreamRef{Tenant: "t", RootSessionId: "other", SessionId: "other"}
	foreign := mustAppend(t, s, stranger)
	mustAppend(t, s, chunkRequest(1, 3, 1))
	for cursor, want := range map[int64][]string{
		first:   {fmt.Sprint(last), fmt.Sprint(last + 2), "caught up"},
		below:   {fmt.Sprint(last), fmt.Sprint(last + 2), "caught up"},
		foreign: {"truncated"},
	} {
		if got := history(t, s, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor}); !slices.Equal(got, want) {
			t.Errorf("from %d: got %q, want %q", cursor, got, want)
		}
	}
}

func TestTheLastRecordOfAFamilyIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	_, s := newFaulty(t)
	write := func(root, session string, count int) (last int64) {
		for number := range int64(count) {
			r := chunkRequest(1, number+1, 1)
			r.Stream = &streamv1.StreamRef{Tenant: "t", RootSessionId: root, SessionId: session}
			last = mustAppend(t, s, r)
		}
		return last
	}
	write("s", "s", 700)
	want := write("s", "child", 300)
	write("other", "other", 2000)
	for _, limit := range []int32{1, 1000} {
		page, err := s.List(t.Context(), &streamv1.ListRequest{Stream: ref, Family: true, Limit: limit})
		if err != nil || page.GetLatestSequence() != want {
			t.Errorf("limit %d: got %d, %v; want %d", limit, page.GetLatestSequence(), err, want)
		}
	}
}

var _ bus.Bus = (*faulty)(nil)
