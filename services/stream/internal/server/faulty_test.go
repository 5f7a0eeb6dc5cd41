package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// faulty is a log in memory that does what the test says at its next append,
// void or last.
type faulty struct {
	*memory.Log

	mu           sync.Mutex
	lose         bool // store the next record, and lose the answer
	drop         bool // lose the next record, and say so
	dieOnVoid    bool // and at the next purge
	keepVoid     bool // remove nothing
	blind        bool // do not answer Last
	stale        *chunklog.Record
	staleLooks   int    // how often Last answers stale
	staleTop     uint64 // Info answers that this is the top; 0: the truth
	looks        int    // calls of Last
	histories    int
	infos        int
	renewals     int
	beforeStore  func()
	betweenReads func() // before the second History
}

var errBroken = errors.New("broken by the test")

func (f *faulty) Append(ctx context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (uint64, error) {
	f.mu.Lock()
	lose, drop, before := f.lose, f.drop, f.beforeStore
	f.lose, f.drop, f.beforeStore = false, false, nil
	f.mu.Unlock()
	if before != nil {
		before()
	}
	if drop {
		return 0, bus.Unavailable("append", errors.Join(bus.ErrUnknown, errBroken))
	}
	sequence, err := f.Log.Append(ctx, s, expected, r)
	if lose && err == nil {
		return 0, bus.Unavailable("append", errors.Join(bus.ErrUnknown, errBroken))
	}
	return sequence, err
}

// removal reports whether to remove anything, or fails.
func (f *faulty) removal() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	die := f.dieOnVoid
	f.dieOnVoid = false
	if die {
		return false, bus.Unavailable("remove", errBroken)
	}
	return !f.keepVoid, nil
}

func (f *faulty) Void(ctx context.Context, s bus.Stream, sequences []uint64) error {
	if remove, err := f.removal(); !remove {
		return err
	}
	return f.Log.Void(ctx, s, sequences)
}

func (f *faulty) Purge(ctx context.Context, s bus.Stream, before uint64) error {
	if remove, err := f.removal(); !remove {
		return err
	}
	return f.Log.Purge(ctx, s, before)
}

func (f *faulty) Last(ctx context.Context, s bus.Stream) (*chunklog.Record, error) {
	f.mu.Lock()
	f.looks++
	blind, stale := f.blind, f.staleLooks > 0
	f.blind = false
	f.staleLooks--
	f.mu.Unlock()
	if blind {
		return nil, bus.Unavailable("last", errBroken)
	}
	if stale {
		return f.stale, nil
	}
	return f.Log.Last(ctx, s)
}

func (f *faulty) History(ctx context.Context, s bus.Scope, after uint64) (bus.Page, error) {
	f.count(&f.histories)
	f.mu.Lock()
	between := f.betweenReads
	if f.histories == 2 {
		f.betweenReads = nil
	}
	second := f.histories == 2
	f.mu.Unlock()
	if second && between != nil {
		between()
	}
	return f.Log.History(ctx, s, after)
}

func (f *faulty) Info(ctx context.Context, s bus.Stream) (bus.Info, error) {
	f.count(&f.infos)
	info, err := f.Log.Info(ctx, s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.staleTop > 0 {
		info.Top = f.staleTop
	}
	return info, err
}

func (f *faulty) Renew(ctx context.Context, s bus.Stream, sequence uint64) (bool, error) {
	f.count(&f.renewals)
	return f.Log.Renew(ctx, s, sequence)
}

func (f *faulty) count(calls *int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*calls++
}

// asked says how often the log was asked since the last time.
func (f *faulty) asked() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf("last %d, history %d, info %d, renew %d", f.looks, f.histories, f.infos, f.renewals)
	f.looks, f.histories, f.infos, f.renewals = 0, 0, 0, 0
	return text
}

func newFaulty(t *testing.T) (*faulty, *server.Server) {
	t.Helper()
	log := &faulty{Log: memory.New(memory.Options{})}
	return log, serverOn(t, log)
}

// serverOn returns a server on the log, one replica of many.
func serverOn(t *testing.T, log bus.Bus) *server.Server {
	t.Helper()
	s, err := server.New(log, hub.New(log, hub.Limits{Records: 8, Bytes: 1 << 20}), server.Options{ChunkBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ref = &streamv1.StreamRef{Tenant: "t", RootSessionId: "s", SessionId: "s"}

var stream = bus.Stream{Tenant: "t", Root: "s", Session: "s"}

func chunkRequest(epoch, number int64, step int32) *streamv1.AppendRequest {
	return &streamv1.AppendRequest{Stream: ref, Epoch: epoch, Number: number, Record: &streamv1.AppendRequest_Chunk{
		Chunk: &eventv1.Chunk{AgentId: "run", Step: step, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "x"}}},
	}}
}

func mustAppend(t *testing.T, s *server.Server, r *streamv1.AppendRequest) int64 {
	t.Helper()
	answer, err := s.Append(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetSequence()
}

// stored returns the sequences that are stored.
func stored(t *testing.T, log bus.Bus) []uint64 {
	t.Helper()
	page, err := log.History(t.Context(), bus.Scope{Stream: stream}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sequences []uint64
	for _, r := range page.Records {
		sequences = append(sequences, r.Sequence)
	}
	return sequences
}

func TestAnAppendWhoseAnswerWasLostGetsItsSequence(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	first := mustAppend(t, s, chunkRequest(1, 1, 1))
	log.lose = true
	if got := mustAppend(t, s, chunkRequest(1, 2, 1)); got != first+1 {
		t.Errorf("got sequence %d, want %d", got, first+1)
	}
	mustAppend(t, s, chunkRequest(1, 3, 1))
	if got := len(stored(t, log)); got != 3 {
		t.Errorf("got %d records, want 3", got)
	}
}

func TestAnAppendOfUnknownOutcomeMayBeRepeated(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*faulty){
		"it was lost": func(f *faulty) { f.drop = true },
		"it was stored and the log cannot be looked": func(f *faulty) { f.lose, f.blind = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, s := newFaulty(t)
			mustAppend(t, s, chunkRequest(1, 1, 1))
			spoil(log)
			_, err := s.Append(t.Context(), chunkRequest(1, 2, 1))
			if fault.ReasonOf(err) != "LOG_UNAVAILABLE" || !errors.Is(err, fault.Unavailable) {
				t.Fatalf("got %v, want LOG_UNAVAILABLE", err)
			}
			again := mustAppend(t, s, chunkRequest(1, 2, 1))
			if got := stored(t, log); len(got) != 2 || got[1] != uint64(again) {
				t.Errorf("got records %v, want 2 and the last to be %d", got, again)
			}
		})
	}
}

func TestARememberedTailSavesTheLookUpAndAWrongOneCostsOne(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	other := serverOn(t, log) // another replica
	for number := range int64(10) {
		mustAppend(t, s, chunkRequest(1, number+1, 1))
	}
	if log.looks != 0 {
		t.Errorf("ten appends looked %d times, want none", log.looks)
	}
	mustAppend(t, other, chunkRequest(1, 11, 1))
	log.looks = 0
	mustAppend(t, s, chunkRequest(1, 12, 1))
	if log.looks != 1 {
		t.Errorf("an append behind another replica's looked %d times, want 1", log.looks)
	}
	log.looks = 0
	mustAppend(t, other, chunkRequest(2, 1, 1))
	_, err := s.Append(t.Context(), chunkRequest(1, 13, 1))
	if fault.ReasonOf(err) != "WRITER_FENCED" {
		t.Errorf("got %v, want WRITER_FENCED", err)
	}
}

func TestAStreamThatIsTakenForNewAndIsNotCostsOneLookUp(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	mustAppend(t, s, chunkRequest(2, 1, 1))
	_, err := serverOn(t, log).Append(t.Context(), chunkRequest(1, 1, 1))
	if fault.ReasonOf(err) != "WRITER_FENCED" || log.looks != 1 {
		t.Errorf("an old writer got %v after %d looks, want WRITER_FENCED after 1", err, log.looks)
	}
	again := mustAppend(t, serverOn(t, log), chunkRequest(2, 1, 1))
	behind := mustAppend(t, serverOn(t, log), chunkRequest(3, 1, 1))
	if got, want := stored(t, log), []uint64{uint64(again), uint64(behind)}; !slices.Equal(got, want) || log.looks != 3 {
		t.Errorf("got records %v after %d looks, want %v after 3", got, log.looks, want)
	}
}

func TestARewindThatDiedBeforeItRemovedAnythingIsFinishedByItsRepetition(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	first := mustAppend(t, s, chunkRequest(1, 1, 1))
	mustAppend(t, s, chunkRequest(1, 2, 2))
	mustAppend(t, s, chunkRequest(1, 3, 2))
	request := &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run", Step: 1, Reason: "executor_lost"}
	log.dieOnVoid = true
	if _, err := s.Rewind(t.Context(), request); fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
		t.Fatalf("got %v, want LOG_UNAVAILABLE", err)
	}
	if got := len(stored(t, log)); got != 4 {
		t.Fatalf("got %d records, want the three and the marker", got)
	}
	if _, err := s.Append(t.Context(), chunkRequest(1, 4, 2)); fault.ReasonOf(err) != "WRITER_FENCED" {
		t.Errorf("got %v, want the old writer fenced by the marker", err)
	}
	answer, err := s.Rewind(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetAt() != first || answer.GetVoided() != 2 || len(answer.GetKept()) != 1 || answer.GetSequence() != first+3 {
		t.Errorf("got %v, want the first marker, 2 voided after %d and 1 kept", answer, first)
	}
	if got := stored(t, log); len(got) != 2 {
		t.Errorf("got records %v, want the first and the marker", got)
	}
}

func TestARewindThatDiedIsFinishedByTheNextOwners(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	first := mustAppend(t, s, chunkRequest(1, 1, 1))
	mustAppend(t, s, chunkRequest(1, 2, 2))
	log.dieOnVoid = true
	_, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run", Step: 1})
	if err == nil {
		t.Fatal("the rewind did not die")
	}
	answer, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 3, Number: 1, RunId: "run", Step: 1})
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetAt() != first || answer.GetVoided() != 1 {
		t.Errorf("got %v, want 1 voided after %d", answer, first)
	}
	if got := len(stored(t, log)); got != 3 {
		t.Errorf("got %d records, want the first and two markers", got)
	}
}

func TestAnAppendThatComesBetweenIsVoidedToo(t *testing.T) {
	t.Parallel()
	log, s := newFaulty(t)
	first := mustAppend(t, s, chunkRequest(1, 1, 1))
	other := serverOn(t, log)
	log.beforeStore = func() { mustAppend(t, other, chunkRequest(1, 2, 2)) }
	answer, err := s.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 2, Number: 1, RunId: "run", Step: 1})
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetAt() != first || answer.GetVoided() != 1 {
		t.Errorf("got %v, want the chunk that came between voided, after %d", answer, first)
	}
}
