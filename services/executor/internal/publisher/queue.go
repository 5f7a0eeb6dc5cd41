package publisher

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// What one record holds at most. A chunk that is larger goes by itself.
const (
	maxBatch      = 64
	maxBatchBytes = 192 << 10
)

// maxMerged is how far deltas are merged: large enough for few chunks, small enough to
// be copied for each delta.
const maxMerged = 4 << 10

// entry is one thing that waits for the log: a mark, a chunk or a boundary.
type entry struct {
	step, attempt int32
	mark          *streamv2.Attempt // begins the attempt
	held          bool              // the mark goes with the next chunk: the log refuses it alone
	chunk         *eventv1.Chunk
	boundary      *streamv2.Record
	partial       bool // of a boundary: the live log does not have all of the step
}

// request is one append. Until its fate is known it is sent as it is, unless it is
// given up.
type request struct {
	step, attempt int32
	after         int64
	record        *streamv2.Record // nil for a check
	chunks        []*eventv1.Chunk // of the record
	last          int64            // the sequence of the record's last frame
	before        position.Position
	void          bool          // its fate does not matter any more
	voided        chan struct{} // closed when it is void
}

// giveUp ends the repetitions of the request: a later record takes its place.
func (r *request) giveUp() {
	if !r.void {
		r.void = true
		close(r.voided)
	}
}

// push queues a chunk of the attempt in flight. The caller holds mu.
func (p *Publisher) push(chunk *eventv1.Chunk) {
	for _, piece := range split(chunk, p.limit) {
		if last := len(p.queue) - 1; last >= 0 && p.queue[last].chunk != nil && p.queue[last].step == p.step {
			before := size(p.queue[last].chunk)
			if merge(p.queue[last].chunk, piece, min(maxMerged, p.limit)) {
				p.queued += size(p.queue[last].chunk) - before
				continue
			}
		}
		p.queue = append(p.queue, entry{step: p.step, attempt: p.attempt, chunk: piece})
		p.queued += size(piece)
	}
}

// keep keeps what the log has of the attempt in flight. The caller holds mu.
func (p *Publisher) keep(chunks []*eventv1.Chunk) {
	for _, chunk := range chunks {
		if last := len(p.kept) - 1; last < 0 || !merge(p.kept[last], chunk, maxMerged) {
			p.kept = append(p.kept, chunk)
		}
	}
}

// measure counts what is queued anew.
func (p *Publisher) measure() {
	p.queued = 0
	for _, e := range p.queue {
		if e.chunk != nil {
			p.queued += size(e.chunk)
		}
	}
}

// ready reports whether something can be sent. The caller holds mu.
func (p *Publisher) ready() bool {
	return len(p.queue) > 1 || len(p.queue) == 1 && !p.queue[0].held
}

// take makes a request of what waits; nil where nothing of it can be shown any more.
// The caller holds mu, and something is ready.
func (p *Publisher) take() *request {
	first := p.queue[0]
	r := &request{step: first.step, attempt: first.attempt, after: p.after, before: p.at, record: &streamv2.Record{}, voided: make(chan struct{})}
	switch {
	case first.boundary != nil:
		p.pop()
		r.record = first.boundary
		r.record.GetBoundary().Last = 0
		if !first.partial && p.at.Step == first.step && p.at.Attempt == first.attempt {
			r.record.GetBoundary().Last = p.at.Sequence()
		}
		r.last, p.at = r.record.GetSequence(), position.Of(r.record.GetSequence())
		return r
	case first.mark != nil:
		p.pop()
		r.record.Attempt = first.mark
		p.at = position.Position{Step: first.step, Attempt: first.attempt}
	}
	p.takeChunks(r)
	if len(r.chunks) == 0 && r.record.Attempt == nil {
		return nil
	}
	r.record.Chunks, r.last = r.chunks, p.at.Sequence()
	r.record.Sequence = r.last - int64(max(len(r.chunks)-1, 0))
	return r
}

// takeChunks takes the chunks of the request's attempt that fit into one record.
func (p *Publisher) takeChunks(r *request) {
	bytes := 0
	for len(p.queue) > 0 && len(r.chunks) < maxBatch {
		next := p.queue[0]
		if next.chunk == nil || next.step != r.step || next.attempt != r.attempt {
			return
		}
		if p.at.N >= position.MaxChunks {
			p.pop()
			p.spoil(r.step)
			continue
		}
		if text := delta(next.chunk); text != nil && len(*text) > p.limit { // queued under a higher limit
			rest := cutAt(next.chunk, p.limit)
			p.queue = slices.Insert(p.queue, 1, entry{step: next.step, attempt: next.attempt, chunk: rest})
			p.measure()
		}
		if bytes += proto.Size(next.chunk); len(r.chunks) > 0 && bytes > maxBatchBytes {
			return
		}
		p.pop()
		p.at.N++
		r.chunks = append(r.chunks, next.chunk)
		if p.alone > 0 {
			p.alone--
			return
		}
	}
}

// pop removes the first entry.
func (p *Publisher) pop() {
	if chunk := p.queue[0].chunk; chunk != nil {
		p.queued -= size(chunk)
	}
	p.queue[0] = entry{}
	p.queue = p.queue[1:]
}

// putBack queues what the log has refused once more: the chunks, each by itself.
func (p *Publisher) putBack(r *request, chunks ...*eventv1.Chunk) {
	p.at = r.before
	var entries []entry
	if r.record.GetAttempt() != nil {
		entries = append(entries, entry{step: r.step, attempt: r.attempt, mark: r.record.GetAttempt(), held: len(chunks) == 0})
	}
	for _, chunk := range chunks {
		entries = append(entries, entry{step: r.step, attempt: r.attempt, chunk: chunk})
	}
	p.queue = slices.Concat(entries, p.queue)
	p.alone += len(chunks)
	p.measure()
}

// spoil notes that the live log does not have all of the step.
func (p *Publisher) spoil(step int32) {
	if step == p.step {
		p.partial = true
	}
	for i := range p.queue {
		if p.queue[i].step == step {
			p.queue[i].partial = true
		}
	}
}

// giveUpBacklog drops what waits of committed steps while the log is away, but for the
// last boundary: readers get them from the state service. The caller holds mu.
func (p *Publisher) giveUpBacklog() {
	if !p.away {
		return
	}
	boundary := -1
	for i, e := range p.queue {
		if e.step < p.step && e.boundary != nil {
			boundary = i
		}
	}
	if boundary < 0 {
		return
	}
	if r := p.inflight; r != nil && r.step < p.step {
		r.giveUp()
	}
	p.queue = slices.Clone(p.queue[boundary:])
	p.queue[0].partial = true
	p.alone = 0
	p.measure()
}
