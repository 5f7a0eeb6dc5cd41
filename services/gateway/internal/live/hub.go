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

// The default limits of a ring.
const (
	defaultRecords = 512
	defaultBytes   = 4 << 20
)

// The backoff between two calls for a topic.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// Hub reads live logs. It may be used by many goroutines.
type Hub struct {
	Client streamv2.StreamServiceClient
	Log    *slog.Logger
	// Records and Bytes limit how far a reader may lag; 0 for defaults.
	Records, Bytes int

	mu     sync.Mutex
	topics map[key]*topic
}

type key struct{ tenant, root, session string }

// topic is one log, read once for all its readers.
type topic struct {
	hub     *Hub
	key     key
	ring    *fanout.Ring[*Record]
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the topic makes no more calls
	readers int           // guarded by the hub

	mu       sync.Mutex
	position int64 // the next call reads behind this sequence
	live     bool  // the ring delivers live records

	answerMu   sync.Mutex // guards answeredAt and answer; held during the request
	answeredAt time.Time
	answer     any
}

// Reader is one reader of a log, for one goroutine. Leave ends it.
type Reader struct {
	*fanout.Reader[*Record]
	topic *topic
	// Position is the topic's position at Join. ReadStored reads the records between the reader's
	// own position and Position.
	Position int64
	// Live: the topic had caught up before Join.
	Live bool
}

// Join adds a reader to the log. The first reader starts the topic at its own position. The topic
// of a root includes the sessions below it.
func (h *Hub) Join(ctx context.Context, ref *streamv2.StreamRef, after int64) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := key{ref.GetTenant(), ref.GetRootSessionId(), ref.GetSessionId()}
	t, found := h.topics[k]
	if !found {
		t = h.add(k, after)
	}
	t.readers++
	t.mu.Lock() // no record may come between the two
	defer t.mu.Unlock()
	reader := &Reader{Reader: t.ring.Join(), topic: t, Position: t.position, Live: t.live}
	if !found { // in the trace of the first reader, but not in its lifetime
		callCtx := trace.ContextWithSpanContext(context.Background(), trace.SpanContextFromContext(ctx))
		callCtx, t.cancel = context.WithCancel(callCtx)
		go t.run(callCtx, ref) //nolint:contextcheck // see above
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

// Leave removes the reader. The last one ends the topic's call and waits for its end.
func (r *Reader) Leave() {
	r.Reader.Leave()
	h, t := r.topic.hub, r.topic
	h.mu.Lock()
	t.readers--
	isLast := t.readers == 0
	if isLast {
		delete(h.topics, t.key)
	}
	h.mu.Unlock()
	if isLast {
		t.cancel()
		<-t.ended
	}
}

// ShareAnswer returns the result of a request that all readers of a log share. It repeats the
// request if the last result is older than age. Meanwhile the other readers wait. Every caller must
// pass an equivalent request.
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

func (t *topic) run(ctx context.Context, ref *streamv2.StreamRef) {
	defer close(t.ended)
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		received, err := t.read(ctx, ref)
		if ctx.Err() != nil {
			return
		}
		t.hub.Log.DebugContext(ctx, "live log dropped", "session", t.key.session, "at", t.position, "error", err)
		t.publish(&Record{Down: true})
		if received {
			wait = firstWait
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// read makes one call. received: it returned something.
func (t *topic) read(ctx context.Context, ref *streamv2.StreamRef) (received bool, err error) {
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
			return received, err
		}
		received = true
		t.publish(recordsOf(ref.GetSessionId(), got)...)
	}
}

// receive returns the next frame. The stream service writes frames as encoded bytes. Within one
// process no layer has decoded them.
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
	if changed := got.GetChanged(); changed != nil {
		if changed.GetSessionId() == session {
			return []*Record{{Changed: true}}
		}
		return nil
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
		records[i].Epoch = in.GetEpoch()
	}
	return records
}

// publish gives records to all readers. The position changes with the ring.
func (t *topic) publish(records ...*Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range records {
		switch {
		case r.CaughtUp:
			t.live = true
		case r.Down:
			t.live = false
		case r.Session == "" && !r.Changed:
			t.position = max(t.position, r.Last)
		}
		t.ring.Put(r)
	}
}

// notifyTimeout bounds a notification. A lost one only delays other gateways.
const notifyTimeout = 2 * time.Second

// Notify tells the readers of all gateways that the session has changed outside of a run. It does not
// wait for them.
func (h *Hub) Notify(ctx context.Context, ref *streamv2.StreamRef) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if _, err := h.Client.Notify(ctx, &streamv2.NotifyRequest{Stream: ref}); err != nil {
		h.Log.DebugContext(ctx, "readers are not notified", "session", ref.GetSessionId(), "error", err)
	}
}

// ReadStored calls each with every stored record behind the position. It returns the error of each,
// ctx's error, or Unavailable if the log cannot be read.
func (h *Hub) ReadStored(ctx context.Context, ref *streamv2.StreamRef, after int64, family bool, each func(*Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends an incomplete call
	call, err := h.Client.Read(ctx, &streamv2.ReadRequest{Stream: ref, FromSequence: after, Family: family, StoredOnly: true})
	if err != nil {
		return err
	}
	for {
		got, err := receive(call)
		switch {
		case errors.Is(err, io.EOF):
			return fault.New(fault.Unavailable, "STREAM_DROPPED", "the stream service closed the read before its end")
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

// Record is one delivery of a topic. Readers share it and must not change it.
type Record struct {
	// Session is a session below the followed one; "" for the followed session.
	Session string
	// First and Last are the sequences of the first and the last frame.
	First, Last int64
	Frames      []*frame.Frame
	Epoch       int64              // of the writer; 0 if unknown
	Attempt     *streamv2.Attempt  // in the first record of an attempt
	Boundary    *streamv2.Boundary // in the last record of an attempt

	// CaughtUp and Down come alone. CaughtUp: the following records are live. Down: nothing is live
	// before the next CaughtUp.
	CaughtUp, Down bool
	// Changed comes alone: the session may have changed outside of a run.
	Changed bool

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
