package jetstream

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// replies delivers the server's answers to the waiting appends. All answers arrive through one subscription. An
// append allocates no context, inbox or timer of its own.
type replies struct {
	inbox string // prefix before an append's number

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*waiter
	idle    []*waiter
}

// waiter waits for one answer at a time.
type waiter struct {
	answer chan *nats.Msg // buffered for one answer
	limit  *time.Timer
}

// maxIdle is the number of waiters retained for reuse.
const maxIdle = 1 << 10

// expect returns a waiter for an answer, and the answer's subject.
func (r *replies) expect() (number uint64, subject string, w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 {
		w = r.idle[n-1]
		r.idle = r.idle[:n-1]
		w.limit.Reset(requestTimeout)
	} else {
		w = &waiter{answer: make(chan *nats.Msg, 1), limit: time.NewTimer(requestTimeout)}
	}
	r.last++
	r.waiting[r.last] = w
	return r.last, r.inbox + strconv.FormatUint(r.last, 36), w
}

// release ends the wait, with or without an answer.
func (r *replies) release(number uint64, w *waiter) {
	w.limit.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, number) // take sends nothing afterwards
	select {
	case <-w.answer:
	default:
	}
	if len(r.idle) < maxIdle {
		r.idle = append(r.idle, w)
	}
}

func (r *replies) deliver(m *nats.Msg) {
	number, err := strconv.ParseUint(m.Subject[len(r.inbox):], 36, 64)
	if err != nil {
		return // not an answer to an append
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waiting[number]; w != nil {
		delete(r.waiting, number)
		w.answer <- m // never blocks: an append has one answer
	}
}

// publish publishes the message and waits for its answer. It fails when ctx ends, the connection is lost, or
// requestTimeout passes.
func (l *Log) publish(ctx context.Context, message *nats.Msg) (*nats.Msg, error) {
	up := l.connectionContext()
	number, subject, w := l.replies.expect()
	defer l.replies.release(number, w)
	message.Reply = subject
	if err := l.nc.PublishMsg(message); err != nil {
		return nil, err
	}
	select {
	case m := <-w.answer:
		if len(m.Data) == 0 && m.Header.Get(headerCode) == "503" {
			return nil, nats.ErrNoResponders
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-up.Done():
		return nil, nats.ErrDisconnected
	case <-w.limit.C:
		return nil, nats.ErrTimeout
	}
}

// The server's acknowledgement of a message: {"stream":"<name>","seq":<number>}.
var (
	ackStream   = []byte(`{"stream":"`)
	ackSequence = []byte(`","seq":`)
)

// readAcknowledgement returns the sequence of a stored message. It decodes any other form, including refusals,
// as JSON: see readAnswer.
func readAcknowledgement(data []byte) (uint64, error) {
	if rest, ok := bytes.CutPrefix(data, ackStream); ok && len(rest) > 0 && rest[len(rest)-1] == '}' {
		if name, number, ok := bytes.Cut(rest[:len(rest)-1], ackSequence); ok && bytes.IndexByte(name, '"') < 0 {
			if sequence, err := strconv.ParseUint(string(number), 10, 64); err == nil {
				return sequence, nil
			}
		}
	}
	answer, err := readAnswer(data)
	return answer.Sequence, err
}
