package server_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

func TestAReaderGoesFromStoredToLive(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	early := w.read(t, &streamv2.ReadRequest{Stream: w.ref})
	early.expect(t, "caught up")
	w.mustSend(t, w.begin(1, 1, "a"))
	w.mustSend(t, w.continueWith("b", "c"))
	late := w.read(t, &streamv2.ReadRequest{Stream: w.ref})
	late.expect(t, "s 1.1.1 a", "s 1.1.2 b c", "caught up")
	w.mustSend(t, w.commit(1))
	w.mustSend(t, w.begin(2, 1, "d"))
	early.expect(t, "s 1.1.1 a", "s 1.1.2 b c", "s commits 1", "s 2.1.1 d")
	late.expect(t, "s commits 1", "s 2.1.1 d")
}

func TestRecordsThatWereAppendedTogetherAreReadFromAnyOfThem(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	early := w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(1, 1, 2)})
	early.expect(t, "caught up")
	w.mustSend(t, w.begin(1, 1, "a"))
	w.mustSend(t, w.continueAndCommit(1, "b", "c"))
	w.mustSend(t, w.continueAndCommit(2, "d", "e"))
	all := []string{"s 1.1.1 a", "s 1.1.2 b", "s commits 1", "s 2.1.1 c", "s 2.1.2 d", "s commits 2", "s 3.1.1 e"}
	early.expect(t, all[2:]...)
	for i, from := range []int64{
		0, at(1, 1, 1), at(1, 1, 2), position.Committed(1), at(2, 1, 1), at(2, 1, 2), position.Committed(2), at(3, 1, 1),
	} {
		w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: from, StoredOnly: true}).expect(t, append(slices.Clone(all[i:]), "caught up")...)
	}
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(2, 1, 1), Family: true, StoredOnly: true}).expect(t, append(slices.Clone(all[4:]), "caught up")...)
}

func TestAReplacedAttemptIsLeftOutOfWhatWasAppendedWithIt(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	w.mustSend(t, w.begin(1, 1, "a"))
	w.mustSend(t, w.continueAndCommit(1, "b", "void"))
	w.mustSend(t, w.continueWith("void"))
	w.mustSend(t, w.begin(2, 2, "c"))
	w.mustSend(t, w.continueAndCommit(2, "d", "e"))
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, StoredOnly: true}).
		expect(t, "s 1.1.1 a", "s 1.1.2 b", "s commits 1", "s 2.2.1 c", "s 2.2.2 d", "s commits 2", "s 3.1.1 e", "caught up")
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(2, 1, 1), StoredOnly: true}).
		expect(t, "s 2.2.1 c", "s 2.2.2 d", "s commits 2", "s 3.1.1 e", "caught up")
}

func TestAReaderResumesInEveryPlace(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	other := &writer{replica: w.replica, ref: childOf("s", "other"), epoch: 1} // lies between
	var all []string
	var lasts []int64
	for step := int32(1); step <= 40; step++ {
		w.mustSend(t, w.begin(step, 1, "a"))
		w.mustSend(t, w.continueWith("b", "c"))
		other.mustSend(t, other.begin(step, 1, "x"))
		all = append(all, fmt.Sprintf("s %d.1.1 a", step), fmt.Sprintf("s %d.1.2 b c", step), fmt.Sprintf("s commits %d", step))
		lasts = append(lasts, at(step, 1, 1), at(step, 1, 3))
		w.mustSend(t, w.commit(step))
		lasts = append(lasts, w.after)
	}
	for i, from := range lasts {
		w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: from, StoredOnly: true}).expect(t, append(all[i+1:len(all):len(all)], "caught up")...)
	}
	// From the middle of a record the whole record follows.
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(40, 1, 2), StoredOnly: true}).expect(t, "s 40.1.2 b c", "s commits 40", "caught up")
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: position.Start(40), StoredOnly: true}).expect(t, "s 40.1.1 a", "s 40.1.2 b c", "s commits 40", "caught up")
}

func TestStoredAttemptsThatWereReplacedAreLeftOut(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	long := strings.Repeat("x", 10<<10) // several pages
	live := w.read(t, &streamv2.ReadRequest{Stream: w.ref})
	live.expect(t, "caught up")
	w.mustSend(t, w.begin(1, 1, "a"))
	w.mustSend(t, w.begin(1, 2, "b"))
	w.mustSend(t, w.continueWith(long))
	w.mustSend(t, w.continueWith(long))
	w.mustSend(t, w.begin(1, 3, "c"))
	live.expect(t, "s 1.1.1 a", "s 1.2.1 b", "s 1.2.2 "+long, "s 1.2.3 "+long, "s 1.3.1 c")
	w.mustSend(t, w.commit(1))
	w.mustSend(t, w.begin(2, 1, "d"))
	w.mustSend(t, w.continueWith(long))
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, StoredOnly: true}).expect(t, "s 1.3.1 c", "s commits 1", "s 2.1.1 d", "s 2.1.2 "+long, "caught up")
	w.mustSend(t, w.begin(2, 2, "e"))
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(1, 2, 2), StoredOnly: true}).expect(t, "s 1.3.1 c", "s commits 1", "s 2.2.1 e", "caught up")
}

func TestAFamilyIsReadFromItsRoot(t *testing.T) {
	t.Parallel()
	h := onMemory(t)
	root, child := &writer{replica: h, ref: refOf("r"), epoch: 1}, &writer{replica: h, ref: childOf("r", "c"), epoch: 5}
	stranger := &writer{replica: h, ref: refOf("other"), epoch: 1}
	root.mustSend(t, root.begin(1, 1, "a"))
	child.mustSend(t, child.begin(1, 1, "b"))
	stranger.mustSend(t, stranger.begin(1, 1, "x"))
	child.mustSend(t, child.begin(1, 2, "c"))
	root.mustSend(t, root.continueWith("d"))
	r := h.read(t, &streamv2.ReadRequest{Stream: refOf("r"), FromSequence: at(1, 1, 1), Family: true})
	r.expect(t, "c 1.2.1 c", "r 1.1.2 d", "caught up")
	child.mustSend(t, child.continueWith("e"))
	root.mustSend(t, root.continueWith("f"))
	r.expect(t, "c 1.2.2 e", "r 1.1.3 f")
}

func TestAMalformedReadIsRefused(t *testing.T) {
	t.Parallel()
	h := onMemory(t)
	for name, c := range map[string]struct {
		request *streamv2.ReadRequest
		reason  string
	}{
		"no stream":                     {&streamv2.ReadRequest{}, "ID_INVALID"},
		"a family of a child":           {&streamv2.ReadRequest{Stream: childOf("r", "c"), Family: true}, "ID_INVALID"},
		"a negative sequence":           {&streamv2.ReadRequest{Stream: refOf("s"), FromSequence: -1}, "SEQUENCE_INVALID"},
		"a sequence beyond all of them": {&streamv2.ReadRequest{Stream: refOf("s"), FromSequence: 1 << 53}, "SEQUENCE_INVALID"},
	} {
		h.read(t, c.request).expectEnd(t, c.reason)
		_ = name
	}
}

func TestAReaderThatFallsBehindGetsEverythingFromTheLog(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	r := w.read(t, &streamv2.ReadRequest{Stream: w.ref})
	r.expect(t, "caught up")
	w.mustSend(t, w.begin(1, 1, "a"))
	want := []string{"s 1.1.1 a"}
	long := strings.Repeat("x", 8<<10)
	for i := range 200 { // far more than the feed and the connection buffer
		w.mustSend(t, w.continueWith(long))
		want = append(want, fmt.Sprintf("s 1.1.%d %s", i+2, long))
	}
	r.expect(t, want...)
}

// client is a reader's connection on the server side.
type client struct {
	grpc.ServerStream

	ctx  context.Context //nolint:containedctx // a server stream has its own
	send func(*streamv2.ReadResponse) error
}

func (c client) Context() context.Context            { return c.ctx }
func (c client) Send(r *streamv2.ReadResponse) error { return c.send(r) }

// copying is a memory log that returns copies, like a remote one.
type copying struct{ *memory.Log }

func (l copying) Page(ctx context.Context, s log.Scope, after uint64, limit int) (log.Page, error) {
	page, err := l.Log.Page(ctx, s, after, limit)
	for i, m := range page.Messages {
		another := *m
		another.Body = bytes.Clone(m.Body)
		page.Messages[i] = &another
	}
	return page, err
}

func TestAReaderThatDoesNotReadCostsLittle(t *testing.T) { //nolint:paralleltest // it measures the heap
	l := copying{memory.New(memory.Options{})}
	s, err := server.New(l, grant.Keys{}, recordBytes, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend := func(r *streamv2.AppendRequest) {
		if _, err := s.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	w := &writer{ref: refOf("s"), epoch: 1}
	mustAppend(w.begin(1, 1, "a"))
	text := strings.Repeat("x", 4<<10)
	for n := range 1000 {
		w.after = at(1, 1, int32(n+1))
		mustAppend(w.continueWith(text))
	}
	ctx, cancel := context.WithCancel(t.Context())
	const readers = 200
	before := heap()
	var group, blocked sync.WaitGroup
	blocked.Add(readers)
	for range readers {
		group.Go(func() {
			_ = s.Read(&streamv2.ReadRequest{Stream: w.ref}, client{ctx: ctx, send: func(*streamv2.ReadResponse) error {
				blocked.Done()
				<-ctx.Done()
				return ctx.Err()
			}})
		})
	}
	blocked.Wait()
	for n := range 1000 {
		w.after = at(1, 1, int32(n+1001))
		mustAppend(w.continueWith(text))
	}
	logged := int64(1000 * 5 << 10)
	if each := (heap() - before - logged) / readers; each > 32<<10 {
		t.Errorf("a reader that does not read costs %d bytes", each)
	}
	cancel()
	group.Wait()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAReaderThatNeverCatchesUpIsEnded(t *testing.T) {
	t.Parallel()
	s, err := server.New(memory.New(memory.Options{}), grant.Keys{}, recordBytes, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{ref: refOf("s"), epoch: 1}
	mustAppend := func(r *streamv2.AppendRequest) {
		if _, err := s.Append(t.Context(), r); err != nil {
			t.Error(err)
		}
		w.after = lastOf(r)
	}
	mustAppend(w.begin(1, 1, "a"))
	text := strings.Repeat("x", 20<<10)
	frames := 0
	err = s.Read(&streamv2.ReadRequest{Stream: w.ref}, client{ctx: t.Context(), send: func(*streamv2.ReadResponse) error {
		frames++
		mustAppend(w.continueWith(text)) // two per message read
		mustAppend(w.continueWith(text))
		return nil
	}})
	if fault.ReasonOf(err) != "READER_TOO_SLOW" || frames > 2000 {
		t.Errorf("got %v after %d frames, want READER_TOO_SLOW", err, frames)
	}
}

func TestTheServiceEndsItsReadersWhenItEnds(t *testing.T) {
	t.Parallel()
	l := memory.New(memory.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = l.Run(ctx) })
	h := open(t, l)
	r := h.read(t, &streamv2.ReadRequest{Stream: refOf("s")})
	r.expect(t, "caught up")
	cancel()
	group.Wait()
	r.expectEnd(t, "LOG_UNAVAILABLE")
	h.read(t, &streamv2.ReadRequest{Stream: refOf("s")}).expectEnd(t, "LOG_UNAVAILABLE")
}

func TestManyReadersSeeEachRecordOnceInOrder(t *testing.T) {
	t.Parallel()
	w := &writer{replica: onMemory(t), ref: refOf("s"), epoch: 1}
	const records, readers = 150, 12
	want := []string{}
	for i := range records {
		want = append(want, fmt.Sprint("r", i))
	}
	var group sync.WaitGroup
	for i := range readers {
		group.Go(func() {
			if got := w.readInPieces(t, i*5+1, records); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("reader %d: got %q", i, got)
			}
		})
	}
	w.mustSend(t, w.begin(1, 1, want[0]))
	for _, delta := range want[1:] {
		w.mustSend(t, w.continueWith(delta))
	}
	group.Wait()
}

// readInPieces reads count texts with a new Read after every hold records.
func (w *writer) readInPieces(t *testing.T, hold, count int) (texts []string) {
	var from int64
	for len(texts) < count {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream, err := w.Read(ctx, &streamv2.ReadRequest{Stream: refOf("s"), FromSequence: from})
		for held := 0; err == nil && held < hold && len(texts) < count; {
			var f *streamv2.ReadResponse
			if f, err = stream.Recv(); err == nil && f.GetRecords() != nil {
				from = lastOf(requestOf(f))
				texts = append(texts, f.GetRecords().GetRecords()[0].GetChunks()[0].GetTextDelta().GetDelta())
				held++
			}
		}
		cancel()
		if err != nil && fault.ReasonOf(err) != "READER_TOO_SLOW" {
			t.Errorf("read: %v", err)
			return texts
		}
	}
	return texts
}
