package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// mood is what a log does with a record.
type mood int

const (
	good      mood = iota
	losing         // stores it, and the answer is lost
	dropping       // does not store it, and nobody knows
	blinding       // stores it, the answer is lost, and it cannot be looked at
	away           // says that it was not stored
	overtaken      // another attempt of the same request runs before it
	taken          // a newer writer comes before it
)

// moody is a log in memory that has a mood for each of the next records.
type moody struct {
	*memory.Log
	moods     []mood
	blind     bool
	overtaken func()
	taken     func()
}

func (m *moody) Append(ctx context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (uint64, error) {
	now := good
	if len(m.moods) > 0 {
		now, m.moods = m.moods[0], m.moods[1:]
	}
	unknown := bus.Unavailable("append", errors.Join(bus.ErrUnknown, errBroken))
	switch now {
	case dropping:
		return 0, unknown
	case away:
		return 0, bus.Unavailable("append", errBroken)
	case overtaken:
		m.overtaken()
	case taken:
		m.taken()
	case good, losing, blinding:
	}
	sequence, err := m.Log.Append(ctx, s, expected, r)
	if err == nil && (now == losing || now == blinding) {
		m.blind = now == blinding
		return 0, unknown
	}
	return sequence, err
}

func (m *moody) Last(ctx context.Context, s bus.Stream) (*chunklog.Record, error) {
	if m.blind {
		m.blind = false
		return nil, bus.Unavailable("last", errBroken)
	}
	return m.Log.Last(ctx, s)
}

// teller is a writer that tells "<epoch>-1", "<epoch>-2" and so on, and follows the
// rules: a number means one chunk for ever.
type teller struct {
	epoch, number, last int64
	told                int64 // the chunks that it has made up
	fenced              bool
}

// text is what the chunk with the number says: numbers go by one.
func (w *teller) text(number int64) string { return fmt.Sprintf("%d-%d", w.epoch, number) }

// request brings everything from the next number on that was told.
func (w *teller) request() *streamv1.AppendRequest {
	var texts []string
	for number := w.number + 1; number <= w.told; number++ {
		texts = append(texts, w.text(number))
	}
	return batchRequest(w.epoch, w.number+1, w.last, texts...)
}

// play is two replicas on one log, and writers that take it from each other.
type play struct {
	log     *moody
	servers []*server.Server
	tellers []*teller                 // by epoch, from 1
	sent    []*streamv1.AppendRequest // every request, for those that come late
	acked   map[string]int64          // what the writers know
}

func (p *play) writer() *teller { return p.tellers[len(p.tellers)-1] }

func (p *play) takeOver() {
	p.tellers = append(p.tellers, &teller{epoch: int64(len(p.tellers) + 1)})
}

// send has the writer send what it has to tell, and take the answer.
func (p *play) send(t *rapid.T, s *server.Server, w *teller) {
	r := w.request()
	p.sent = append(p.sent, r)
	p.log.overtaken = func() { _, _ = p.other(s).Append(t.Context(), r) }
	p.log.taken = func() {
		if w == p.writer() {
			p.takeOver()
			next := p.writer()
			next.told = 2
			_, _ = p.other(s).Append(t.Context(), next.request()) // its outcome is unknown to it
		}
	}
	answer, err := s.Append(t.Context(), r)
	count := int64(1 + len(r.GetMore()))
	switch {
	case fault.KindOf(err) == fault.Unavailable && err != nil:
	case fault.ReasonOf(err) == "WRITER_FENCED":
		if w == p.writer() {
			t.Fatalf("the newest writer, %d, is fenced", w.epoch)
		}
		w.fenced = true
	case err != nil:
		t.Fatalf("the request of a good writer, %v, is refused: %v", r, err)
	case answer.GetStored() < 1 || int64(answer.GetStored()) > count:
		t.Fatalf("of %d chunks %d are stored", count, answer.GetStored())
	default:
		w.number, w.last = w.number+int64(answer.GetStored()), answer.GetSequence()
		p.acked[w.text(w.number)] = w.last
	}
}

func (p *play) other(s *server.Server) *server.Server {
	return p.servers[1-slices.Index(p.servers, s)]
}

// check sees to it that the log holds of each writer, one behind the other, the
// first of what it told, each chunk once, and all that it knows to be stored.
func (p *play) check(t *rapid.T) {
	page, err := p.log.History(t.Context(), bus.Scope{Stream: stream}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var before *chunklog.Record
	found := map[string]int64{}
	for _, r := range page.Records {
		chunk := &eventv1.Chunk{}
		if err := proto.Unmarshal(r.Payload, chunk); err != nil {
			t.Fatal(err)
		}
		got := chunk.GetTextDelta().GetDelta()
		want := p.tellers[r.Epoch-1].text(1)
		if before != nil && before.Epoch == r.Epoch {
			want = p.tellers[r.Epoch-1].text(before.Number + 1)
		}
		if before != nil && (r.Prev != before.Sequence || r.Epoch < before.Epoch || r.Sequence <= before.Sequence) {
			t.Fatalf("%+v stands behind %+v", r, before)
		}
		if got != want || r.Number > p.tellers[r.Epoch-1].told {
			t.Fatalf("record %d of writer %d says %q, want %q", r.Number, r.Epoch, got, want)
		}
		found[got] = wireOf(r)
		before = r
	}
	for text, sequence := range p.acked {
		if found[text] != sequence {
			t.Fatalf("%q was acknowledged as %d, and stands as %d", text, sequence, found[text])
		}
	}
}

func wireOf(r *chunklog.Record) int64 { return int64(r.Sequence) } //nolint:gosec // below 2^53

// TestWhateverHappensEveryChunkOfARequestIsStoredOnceAndInOrder lets writers send
// requests of several chunks to two replicas of the service, whose log loses
// records and answers in the middle of them, repeat them, send more with the rest,
// and take the stream from each other; and old requests come late.
func TestWhateverHappensEveryChunkOfARequestIsStoredOnceAndInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := &moody{Log: memory.New(memory.Options{})}
		p := &play{log: log, acked: map[string]int64{}}
		for range 2 {
			s, err := server.New(log, hub.New(log, hub.Limits{Records: 8, Bytes: 1 << 20}), server.Options{ChunkBytes: 1 << 10})
			if err != nil {
				t.Fatal(err)
			}
			p.servers = append(p.servers, s)
		}
		p.takeOver()
		replica := rapid.SampledFrom(p.servers)
		upTo := func(most int) *rapid.Generator[[]mood] {
			return rapid.SliceOfN(rapid.SampledFrom([]mood{good, good, good, losing, dropping, blinding, away, overtaken, taken}), 0, most)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				w := rapid.SampledFrom(p.tellers).Draw(t, "writer")
				if w.fenced {
					t.Skip("it has stopped")
				}
				waiting := w.told - w.number
				w.told += rapid.Int64Range(min(1, max(0, 1-waiting)), max(1, 8-waiting)).Draw(t, "more")
				log.moods = upTo(8).Draw(t, "moods")
				p.send(t, replica.Draw(t, "replica"), w)
				log.moods, log.blind = nil, false
			},
			"take over": func(*rapid.T) { p.takeOver() },
			"a request comes late": func(t *rapid.T) {
				if len(p.sent) == 0 {
					t.Skip("nothing was sent")
				}
				r := rapid.SampledFrom(p.sent).Draw(t, "request")
				_, _ = replica.Draw(t, "replica").Append(t.Context(), proto.CloneOf(r))
			},
			"": p.check,
		})
	})
}
