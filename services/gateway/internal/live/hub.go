package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fanout"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
)

// The limits of a ring where none are given.
const (
	defaultRecords = 512
	defaultBytes   = 4 << 20
)

// The waits between two calls for a topic.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// Hub reads live logs. It may be used by many goroutines.
type Hub struct {
	Client streamv2.StreamServiceClient
	Log    *slog.Logger
	// Records and Bytes say how far a reader may lag behind; 0 is a default.
	Records, Bytes int

	mu     sync.Mutex
	topics map[key]*topic
}

// key names a topic.
type key struct{ tenant, root, session string }

// topic is one log, read once for all its readers.
type topic struct {
	hub     *Hub
	key     key
	ring    *fanout.Ring[*Record]
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the call has ended for good
	readers int           // guarded by the hub

	mu       sync.Mutex
	position int64 // the sequence behind which the call reads next
	live     bool  // the ring tells what happens now

	answerMu   sync.Mutex // guards the next two; held while somebody asks
	answeredAt time.Time
	answer     any
}

// Reader is one reader of a log. One goroutine uses it, and calls Leave at the end.
type Reader struct {
	*fanout.Reader[*Record]
	topic *topic
	// At is the sequence behind which the ring told when the reader joined: what was
	// stored between its own position and At has to be read by Stored.
	Position int64
	// Up says that the topic had caught up already when the reader joined.
	Live bool
}

// Join joins the readers of the log. The first one has it read from its own position on,
// of a root with the sessions below it.
func (h *Hub) Join(ctx context.Context, ref *streamv2.StreamRef, after int64) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := key{ref.GetTenant(), ref.GetRootSessionId(), ref.GetSessionId()}
	t, found := h.topics[k]
	if !found {
		t = h.add(k, after)
	}
	t.readers++
	t.mu.Lock() // the ring gets nothing between the two
	defer t.mu.Unlock()
	reader := &Reader{Reader: t.ring.Join(), topic: t, Position: t.position, Live: t.live}
	if !found { // in the trace of the first reader, with whom it does not end
		living := trace.ContextWithSpanContext(context.Background(), trace.SpanContextFromContext(ctx))
		living, t.cancel = context.WithCancel(living)
		go t.run(living, ref)
	}
	return reader
}

func (h *Hub) add(k key, after int64) *topic {
	limits := fanout.Limits{Values: h.Records, Bytes: h.Bytes}
	if limits.Values <= 0 {
		limits.Values = defaultRecords
	}
	if limits.Bytes <= 0 {
		limits.Bytes = defaultBytes
	}
	t := &topic{hub: h, key: k, ring: fanout.New(limits, (*Record).bytes), ended: make(chan struct{}), position: after}
	if h.topics == nil {
		h.topics = map[key]*topic{}
	}
	h.topics[k] = t
	return t
}

// Leave takes the reader out. The last one ends the topic's call and waits for that.
func (r *Reader) Leave() {
	r.Reader.Leave()
	h, t := r.topic.hub, r.topic
	h.mu.Lock()
	t.readers--
	over := t.readers == 0
	if over {
		delete(h.topics, t.key)
	}
	h.mu.Unlock()
	if over {
		t.cancel()
		<-t.ended
	}
}

// ShareAnswer gives the readers of a log the answer to one question that all of them have. It is
// asked when the last answer is older than age; meanwhile the others wait. Every caller
// has to ask the same.
func (r *Reader) ShareAnswer(now time.Time, age time.Duration, ask func() (any, error)) (any, error) {
	t := r.topic
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	if !t.answeredAt.IsZero() && now.Sub(t.answeredAt) < age {
		return t.answer, nil
	}
	answer, err := ask()
	if err != nil {
		return nil, err
	}
	t.answeredAt, t.answer = now, answer
	return answer, nil
}

// run reads until the last reader has left.
func (t *topic) run(ctx context.Context, ref *streamv2.StreamRef) {
	defer close(t.ended)
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		heard, err := t.read(ctx, ref)
		if ctx.Err() != nil {
			return
		}
		t.hub.Log.DebugContext(ctx, "live log dropped", "session", t.key.session, "at", t.position, "error", err)
		t.publish(&Record{Down: true})
		if heard {
			wait = firstWait
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// read makes one call. heard says that something came.
func (t *topic) read(ctx context.Context, ref *streamv2.StreamRef) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	family := ref.GetRootSessionId() == ref.GetSessionId()
	call, err := t.hub.Client.Read(ctx, &streamv2.ReadRequest{Stream: ref, FromSequence: t.position, Family: family})
	if err != nil {
		return false, err
	}
	for {
		got, err := receive(call)
		if err != nil {
			return heard, err
		}
		heard = true
		t.publish(recordsOf(ref.GetSessionId(), got)...)
	}
}

// receive gives the next frame. The stream service writes frames by hand, in bytes. Within one
// process nothing has decoded them on the way.
func receive(call streamv2.StreamService_ReadClient) (*streamv2.ReadResponse, error) {
	got, err := call.Recv()
	if err != nil || got.GetFrame() != nil {
		return got, err
	}
	decoded := &streamv2.ReadResponse{}
	if err := proto.Unmarshal(got.ProtoReflect().GetUnknown(), decoded); err != nil {
		return nil, fmt.Errorf("decode a frame of the live log: %w", err)
	}
	return decoded, nil
}

func recordsOf(session string, got *streamv2.ReadResponse) []*Record {
	if got.GetCaughtUp() != nil {
		return []*Record{{CaughtUp: true}}
	}
	in := got.GetRecords()
	if in.GetSessionId() != session {
		session = in.GetSessionId()
	} else {
		session = ""
	}
	records := make([]*Record, len(in.GetRecords()))
	for i, r := range in.GetRecords() {
		records[i] = newRecord(session, r)
	}
	return records
}

// publish tells all readers. at changes with the ring.
func (t *topic) publish(records ...*Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range records {
		switch {
		case r.CaughtUp:
			t.live = true
		case r.Down:
			t.live = false
		case r.Session == "":
			t.position = max(t.position, r.Last)
		}
		t.ring.Put(r)
	}
}

// ReadStored gives each record that is stored behind the position. It returns the error of
// each, ctx's error, and Unavailable when the log cannot be read.
func (h *Hub) ReadStored(ctx context.Context, ref *streamv2.StreamRef, after int64, family bool, each func(*Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a call that is left before its end
	call, err := h.Client.Read(ctx, &streamv2.ReadRequest{Stream: ref, FromSequence: after, Family: family, StoredOnly: true})
	if err != nil {
		return err
	}
	for {
		got, err := receive(call)
		switch {
		case errors.Is(err, io.EOF):
			return fault.New(fault.Unavailable, "STREAM_DROPPED", "the live log ended before its end")
		case err != nil:
			return err
		case got.GetCaughtUp() != nil:
			return nil
		}
		for _, r := range recordsOf(ref.GetSessionId(), got) {
			if err := each(r); err != nil {
				return err
			}
		}
	}
}

// Record is what a topic tells at once. Readers share it: nobody may change it.
type Record struct {
	// Session is the session below the one that is read; "" for that itself.
	Session string
	// First and Last are the sequences of the first and the last frame.
	First, Last int64
	Frames      []*frame.Frame
	Attempt     *streamv2.Attempt  // set in the first record of an attempt
	Boundary    *streamv2.Boundary // set in a record that ends an attempt

	// CaughtUp and Down are set in records that have nothing else: what comes now is new;
	// nothing comes before the next CaughtUp.
	CaughtUp, Down bool

	size int
}

func (r *Record) bytes() int { return r.size }

func newRecord(session string, in *streamv2.Record) *Record {
	out := &Record{Session: session, First: in.GetSequence(), Last: in.GetSequence(), Attempt: in.GetAttempt(), Boundary: in.GetBoundary()}
	if out.Boundary != nil {
		out.Frames = boundaryFrames(session, in.GetSequence(), out.Boundary)
	} else {
		out.Last += int64(max(len(in.GetChunks())-1, 0))
		for i, c := range in.GetChunks() {
			out.Frames = append(out.Frames, frame.Chunk(session, in.GetSequence()+int64(i), c))
		}
	}
	for _, f := range out.Frames {
		out.size += f.Size()
	}
	return out
}

func boundaryFrames(session string, sequence int64, b *streamv2.Boundary) []*frame.Frame {
	var frames []*frame.Frame
	if c := b.GetStepCommitted(); c != nil {
		frames = append(frames, frame.Chunk(session, position.Committed(position.Of(sequence).Step), c))
	}
	if c := b.GetRunEnded(); c != nil {
		frames = append(frames, frame.Chunk(session, sequence-1, c))
	}
	if end := b.GetEnd(); end != nil {
		frames = append(frames, frame.Terminal(session, sequence, end))
	}
	return frames
}
