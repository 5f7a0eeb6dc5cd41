package publisher

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// What one record holds at most. A chunk that is larger goes by itself.
const (
	maxChunks      = 64
	maxRecordBytes = 192 << 10
)

// maxMerged is how far deltas are merged: large enough for few chunks, small enough to
// be copied for each delta.
const maxMerged = 4 << 10

// entry is one thing that waits for the log: a mark, a chunk or a boundary.
type entry struct {
	step, attempt int32
	mark          *streamv2.Attempt // begins the attempt
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

// take makes a request of what waits; nil where nothing of it can be shown any more.
// The caller holds mu, and something waits.
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
	for len(p.queue) > 0 && len(r.chunks) < maxChunks {
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
		if bytes += proto.Size(next.chunk); len(r.chunks) > 0 && bytes > p.limit {
			return
		}
		p.pop()
		p.at.N++
		r.chunks = append(r.chunks, next.chunk)
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

// putBack queues once more what the log has refused: the mark and the chunks.
func (p *Publisher) putBack(r *request, chunks []*eventv1.Chunk) {
	p.at = r.before
	var entries []entry
	if mark := r.record.GetAttempt(); mark != nil {
		entries = append(entries, entry{step: r.step, attempt: r.attempt, mark: mark})
	}
	for _, chunk := range chunks {
		entries = append(entries, entry{step: r.step, attempt: r.attempt, chunk: chunk})
	}
	p.queue = slices.Concat(entries, p.queue)
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
	p.measure()
}

// delta points to the text of a chunk that can be merged and split; nil when
// the chunk has none.
func delta(chunk *eventv1.Chunk) *string {
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		return &e.TextDelta.Delta
	case *eventv1.Chunk_Thinking:
		return &e.Thinking.Content
	case *eventv1.Chunk_ToolArgStreamDelta:
		return &e.ToolArgStreamDelta.Delta
	}
	return nil
}

// size is about what the chunk takes in memory.
func size(chunk *eventv1.Chunk) int {
	if text := delta(chunk); text != nil {
		return 64 + len(*text)
	}
	return proto.Size(chunk)
}

// sizeOf is how large the chunks are in a record.
func sizeOf(chunks []*eventv1.Chunk) (bytes int) {
	for _, chunk := range chunks {
		bytes += proto.Size(chunk)
	}
	return bytes
}

// halvable reports whether the chunk is a delta of several characters.
func halvable(chunk *eventv1.Chunk) bool {
	text := delta(chunk)
	return text != nil && len(*text) >= 2*utf8.UTFMax
}

// merge adds the delta of next to that of last where both belong to one block and
// the sum is not above the limit, and reports whether it did.
func merge(last, next *eventv1.Chunk, limit int) bool {
	if last.GetStep() != next.GetStep() || last.GetAgentId() != next.GetAgentId() || !sameBlock(last, next) {
		return false
	}
	into, from := delta(last), delta(next)
	if len(*into)+len(*from) > limit {
		return false
	}
	*into += *from
	if thinking := last.GetThinking(); thinking != nil {
		thinking.IsComplete = next.GetThinking().GetIsComplete()
	}
	return true
}

func sameBlock(last, next *eventv1.Chunk) bool {
	switch e := last.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		return next.GetTextDelta() != nil
	case *eventv1.Chunk_Thinking:
		return next.GetThinking() != nil && !e.Thinking.GetIsComplete()
	case *eventv1.Chunk_ToolArgStreamDelta:
		return next.GetToolArgStreamDelta() != nil && next.GetToolArgStreamDelta().GetToolCallId() == e.ToolArgStreamDelta.GetToolCallId()
	}
	return false
}

// split cuts a large delta on rune borders. The last piece alone ends a block.
func split(chunk *eventv1.Chunk, limit int) []*eventv1.Chunk {
	text := delta(chunk)
	if text == nil || len(*text) <= limit {
		return []*eventv1.Chunk{chunk}
	}
	var pieces []*eventv1.Chunk
	for len(*delta(chunk)) > limit {
		rest := cutAt(chunk, limit)
		pieces = append(pieces, chunk)
		chunk = rest
	}
	return append(pieces, chunk)
}

// cutAt leaves at most limit bytes of a longer delta in the chunk, on a rune
// border, and gives the rest. The rest alone ends a block.
func cutAt(chunk *eventv1.Chunk, limit int) *eventv1.Chunk {
	text := delta(chunk)
	all := *text
	at := limit
	for at > 0 && !utf8.RuneStart(all[at]) {
		at--
	}
	if at == 0 { // the limit is below a rune
		for at = limit; at < len(all) && !utf8.RuneStart(all[at]); at++ {
		}
	}
	rest := proto.CloneOf(chunk)
	*text, *delta(rest) = all[:at], all[at:]
	if thinking := chunk.GetThinking(); thinking != nil {
		thinking.IsComplete = false
	}
	return rest
}

// shrinkBoundary leaves the output of the run out, which the state service has.
func shrinkBoundary(b *streamv2.Boundary) bool {
	completed, end := b.GetRunEnded().GetRunCompleted(), b.GetEnd().GetEnd()
	if completed.GetOutput() == "" && end.GetOutput() == "" {
		return false
	}
	if completed != nil {
		completed.Output = ""
	}
	if end != nil {
		end.Output = ""
	}
	return true
}
