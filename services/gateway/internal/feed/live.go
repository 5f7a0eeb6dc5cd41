package feed

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fanout"
	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// liveBatch is how much is taken from the ring at once: a burst, small enough to
// lie in an idle reader's memory.
const liveBatch = 16

var errTooSlow = fault.New(fault.Exhausted, "READER_TOO_SLOW",
	"the reader does not keep up with what happens; connect again with the last sequence")

// follow joins the topic and stays to the end of the view. again says that the
// topic has ended while the reader was busy with the history, and that another one
// is needed.
func (v *view) follow(ctx context.Context) (again bool, err error) {
	v.request.FromSequence = v.cursor
	t, reader, stands := v.feed.join(ctx, v.request)
	defer t.leave(reader)
	m := &member{view: v, topic: t, reader: reader}
	if err := m.attach(ctx, stands); err != nil {
		return false, err
	}
	err = m.live(ctx)
	return err == nil && !v.ended, err
}

// member is a view in a topic.
type member struct {
	*view
	topic  *topic
	reader *fanout.Reader[entry]
	// kept is the topic's phase in which the reader last had taken everything.
	kept int64
	// stored says that it has read what is stored since it last waited.
	stored bool
	// batch lies here and not on the stack of a reader that waits, which it would
	// double: stacks grow by powers of two.
	batch [liveBatch]entry
}

// attach brings the reader to where the ring stands: it reads what is stored, unless
// the ring stands where the reader does.
func (m *member) attach(ctx context.Context, ring place) error {
	pause := retry.Pause{Policy: m.feed.Policy}
	m.kept = 0
	for ; ; ring = m.topic.place(m.reader) {
		m.base, m.ahead = max(ring.at, m.cursor), 0
		if ring.at == m.cursor {
			return m.beside(ring.now)
		}
		if ring.at < m.cursor {
			m.ahead = unknown
		}
		r := everything(m.request, m.cursor)
		r.HistoryOnly = true
		last := ring.last
		if !m.request.GetFamily() { // what a session below has lost is nothing to this reader
			r.Family, last = false, ring.own
		}
		err := m.history(ctx, r)
		m.stored = err == nil
		if err != nil || m.ended || m.cursor >= last {
			return err
		}
		if err := m.sink.Beat(); err != nil {
			return err
		}
		behind := fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "what is stored ends at %d, before what was told up to %d", m.cursor, last)
		if err := pause.Wait(ctx, behind); err != nil {
			return err
		}
	}
}

// beside is the place of a reader that has what the topic has. caught_up was told
// before it came, or comes in the ring.
func (m *member) beside(now bool) error {
	if !now || m.caughtUp {
		return nil
	}
	caughtUp := &streamv1.ReadResponse_CaughtUp{CaughtUp: &streamv1.CaughtUpFrame{Sequence: m.cursor}}
	b := batch{view: m.view}
	if err := b.give(NewFrame("", &streamv1.ReadResponse{Frame: caughtUp})); err != nil {
		return err
	}
	return b.flush()
}

// live gives what comes in the ring until the view has ended. It returns nil before
// that when the topic has ended under a reader that was not waiting for it.
func (m *member) live(ctx context.Context) error {
	idle := time.NewTimer(m.feed.Beat)
	defer idle.Stop()
	for !m.ended {
		phase, over := m.topic.phase.Load(), m.topic.over()
		n, wake, err := m.reader.Take(m.batch[:])
		switch {
		case err != nil && live(m.kept) && m.kept == m.topic.phase.Load():
			return errTooSlow
		case err != nil:
			if err := m.attach(ctx, m.topic.place(m.reader)); err != nil {
				return err
			}
		case n > 0:
			given, err := m.take(ctx, m.batch[:n])
			if err != nil {
				return err
			}
			clear(m.batch[:n]) // an idle reader keeps no frame alive
			if given {
				idle.Reset(m.feed.Beat)
			}
		case over && m.stored: // while it did, and the stream service is there
			return nil
		case over:
			return m.topic.err
		default:
			m.kept, m.stored = phase, false
			if err := m.wait(ctx, wake, idle); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *member) wait(ctx context.Context, wake <-chan struct{}, idle *time.Timer) error {
	select {
	case <-wake:
	case <-m.topic.ended:
	case <-ctx.Done():
		return ctx.Err()
	case <-idle.C:
		idle.Reset(m.feed.Beat)
		return m.sink.Beat()
	}
	return nil
}

// take gives entries of the ring to the sink.
func (m *member) take(ctx context.Context, entries []entry) (given bool, err error) {
	b := batch{view: m.view}
	for _, e := range entries {
		if m.ended {
			break
		}
		if m.has(e) {
			continue
		}
		if m.astray(e) {
			if err := b.flush(); err != nil {
				return false, err
			}
			return true, m.attach(ctx, m.topic.place(m.reader))
		}
		if err := b.give(e.Frame); err != nil {
			return false, err
		}
	}
	return b.given, b.flush()
}

// has reports whether the reader has seen the entry's record.
func (m *member) has(e entry) bool {
	sequence := record(e.ReadResponse)
	if sequence == 0 || sequence > m.cursor {
		return false
	}
	if e.GetChunk() != nil && m.reads(e.Frame) {
		m.note(sequence)
	}
	return true
}

// astray reports whether the reader has to read what is stored before the entry:
// the topic passes its cursor and has not told all that it holds, or is told that its
// own cursor leads nowhere, which says nothing of the reader's; nor does it say of which
// session of the family records are gone.
func (m *member) astray(e entry) bool {
	if e.GetTruncated() != nil {
		return e.from != m.cursor || root(m.request) && !m.request.GetFamily()
	}
	return m.ahead != 0 && Cursor(e.ReadResponse, 0) >= m.cursor
}

// unknown is the fingerprint of a reader that holds what nobody knows: it came with
// a cursor that the topic had not reached.
const unknown = 1

// note puts a chunk that was read ahead of the topic into the fingerprint, or takes it
// out.
func (v *view) note(sequence int64) {
	if sequence > v.base {
		v.ahead ^= mix(uint64(sequence))
	}
}

// mix spreads a number over 64 bits, so that no few of them cancel out (the finalizer
// of SplitMix64: Steele, Lea, Flood, 2014).
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
