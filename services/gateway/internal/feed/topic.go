package feed

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fanout"
	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// key names a topic: one stream.
type key struct{ tenant, root, session string }

func keyOf(s *streamv1.StreamRef) key {
	return key{s.GetTenant(), s.GetRootSessionId(), s.GetSessionId()}
}

// entry is a frame in a topic's ring. from is, for truncated, the cursor of the
// call that it answers.
type entry struct {
	*Frame
	from int64
}

func size(e entry) int { return e.size }

// topic is one session's stream, read once for all its readers.
type topic struct {
	feed    *Feed
	key     key
	ring    *fanout.Ring[entry]
	cancel  context.CancelFunc
	members int // guarded by the feed

	ended chan struct{} // closed when the pump has ended
	err   error         // why; set before

	// phase counts how often the call has caught up and was lost again: it is odd
	// while the ring tells what happens now. It changes under mu.
	phase atomic.Int64

	mu       sync.Mutex
	at       int64 // the cursor: what the ring tells next is above it
	last     int64 // the last record that the ring has told; 0 for none
	own      int64 // the last one of the session itself
	recorded int64 // the highest that a reader has brought
}

// place is where the ring stands for a reader that has taken all of it.
type place struct {
	at   int64 // the cursor
	last int64 // the last record; 0 for none
	own  int64 // the last one of the session that is read, without those below it
	now  bool  // the ring tells what happens now
}

// join finds the topic of the request, or starts one at the request's cursor. It
// tells where the ring stood when the reader joined.
func (f *Feed) join(ctx context.Context, r *streamv1.ReadRequest) (*topic, *fanout.Reader[entry], place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := keyOf(r.GetStream())
	t := f.topics[k]
	first := t == nil
	if first {
		t = f.add(k, r.GetFromSequence())
	}
	t.members++
	reader := t.ring.Join()
	t.record(r.GetRecordedSequence())
	stands := t.place(reader)
	if first {
		go t.run(t.begin(ctx, r))
	}
	return t, reader, stands
}

func (f *Feed) add(k key, cursor int64) *topic {
	t := &topic{feed: f, key: k, ring: fanout.New(f.limits(), size), ended: make(chan struct{}), at: cursor}
	if f.topics == nil {
		f.topics = map[key]*topic{}
	}
	f.topics[k] = t
	return t
}

// begin gives the context and the request of the topic's pump. The call is in the
// trace of the first reader, and does not end with it.
func (t *topic) begin(ctx context.Context, r *streamv1.ReadRequest) (context.Context, *streamv1.ReadRequest) {
	living := trace.ContextWithSpanContext(context.Background(), trace.SpanContextFromContext(ctx))
	living, t.cancel = context.WithCancel(living)
	return living, everything(r, r.GetFromSequence())
}

// everything asks for all that a topic tells, for who stands at the cursor.
func everything(r *streamv1.ReadRequest, cursor int64) *streamv1.ReadRequest {
	return &streamv1.ReadRequest{
		Stream: proto.CloneOf(r.GetStream()), FromSequence: cursor, Family: root(r), EveryRun: true,
		RecordedSequence: r.GetRecordedSequence(),
	}
}

// root reports whether the request is for a root, which is read with its family.
func root(r *streamv1.ReadRequest) bool {
	return r.GetStream().GetRootSessionId() == r.GetStream().GetSessionId()
}

// leave takes a reader out. The last one ends the topic and waits for its pump.
func (t *topic) leave(reader *fanout.Reader[entry]) {
	reader.Leave()
	t.feed.mu.Lock()
	t.members--
	over := t.members == 0
	if over {
		t.forget()
	}
	t.feed.mu.Unlock()
	if over {
		t.cancel()
		<-t.ended
	}
}

// forget lets the next reader start another topic. It is called with the feed's mu
// held.
func (t *topic) forget() {
	if t.feed.topics[t.key] == t {
		delete(t.feed.topics, t.key)
	}
}

// place moves the reader to the ring's end.
func (t *topic) place(reader *fanout.Reader[entry]) place {
	t.mu.Lock()
	defer t.mu.Unlock()
	reader.Skip()
	return place{t.at, t.last, t.own, live(t.phase.Load())}
}

func (t *topic) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

func (t *topic) record(sequence int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recorded = max(t.recorded, sequence)
}

// run pumps until the last reader has left, or the stream service was away for too
// long.
func (t *topic) run(ctx context.Context, r *streamv1.ReadRequest) {
	t.err = t.pump(ctx, r)
	t.feed.mu.Lock()
	t.forget()
	t.feed.mu.Unlock()
	close(t.ended)
}

// pump reads on from the floor when records are gone: who was there is told, and who
// comes has other cursors.
func (t *topic) pump(ctx context.Context, r *streamv1.ReadRequest) error {
	p := &pump{feed: t.feed, request: r, pause: retry.Pause{Policy: t.feed.Policy}, put: t.put}
	p.call = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if live(t.phase.Load()) {
			t.phase.Add(1)
		}
		r.RecordedSequence = t.recorded
	}
	for former := int64(-1); ; {
		frame, err := p.run(ctx)
		if err != nil {
			return err
		}
		floor := frame.GetTruncated().GetFloor()
		t.mu.Lock()
		t.ring.Put(entry{frame, r.GetFromSequence()})
		t.at, t.last, t.own = floor, 0, 0
		t.mu.Unlock()
		r.FromSequence = floor
		if floor == former { // it does not help to read from there
			again := fault.New(fault.Unavailable, "STREAM_DROPPED", "what follows the floor %d is gone as well", floor)
			if err := p.pause.Wait(ctx, again); err != nil {
				return err
			}
		}
		former = floor
	}
}

func live(phase int64) bool { return phase%2 == 1 }

// put is the pump's.
func (t *topic) put(ctx context.Context, f *Frame) error {
	if f.GetTruncated() != nil {
		return nil // the loop around the pump puts it, with the cursor
	}
	e := entry{Frame: f}
	for !live(t.phase.Load()) {
		room := t.ring.Room(e)
		if room == nil {
			break
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.GetCaughtUp() != nil && !live(t.phase.Load()) {
		t.phase.Add(1)
	}
	t.ring.Put(e)
	t.at = Cursor(f.ReadResponse, t.at)
	if sequence := record(f.ReadResponse); sequence > 0 {
		t.last = sequence
		if f.Session == "" {
			t.own = sequence
		}
	}
	return nil
}
