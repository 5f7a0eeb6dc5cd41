package publisher

import (
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Limits of one append. A larger chunk or boundary goes alone.
const (
	maxEntries     = 64
	maxAppendBytes = 192 << 10
)

// maxMerged limits merged deltas: large enough for few chunks, small enough to copy for each delta.
const maxMerged = 4 << 10

// entry is one queued item: a start record, a chunk or a boundary.
type entry struct {
	step, attempt int32
	mark          *streamv2.Attempt // begins the attempt
	chunk         *eventv1.Chunk
	boundary      *streamv2.Record
	partial       bool // for a boundary: the live log lacks a part of the step
}

// request is one append. It is repeated unchanged until its outcome is known, unless it is abandoned.
type request struct {
	records []*streamv2.Record // empty for a check
	after   int64
	last    int64 // sequence of the last frame
	// entries are the entries of the records that still have to be shown: a new attempt replaces the one that it
	// voids.
	entries []entry
	before  position.Position // position of the last frame sent before
	since   time.Time         // time of the first attempt
	trimmed bool              // a part of it is void
	void    bool              // the outcome is irrelevant
	voided  chan struct{}     // closed when it becomes void
}

// check reports whether the request only checks the last record.
func (r *request) check() bool { return len(r.records) == 0 }

// stopRepeating stops repeating the request: a later record replaces it.
func (r *request) stopRepeating() {
	if !r.void {
		r.void = true
		close(r.voided)
	}
}

// push queues a chunk of the attempt in flight. The caller holds mu.
func (p *Publisher) push(chunk *eventv1.Chunk) {
	for _, piece := range split(chunk, p.deltaLimit) {
		if last := len(p.queue) - 1; last >= 0 && p.queue[last].chunk != nil && p.queue[last].step == p.step {
			before := size(p.queue[last].chunk)
			if merge(p.queue[last].chunk, piece, min(maxMerged, p.deltaLimit)) {
				p.queued += size(p.queue[last].chunk) - before
				continue
			}
		}
		p.queue = append(p.queue, entry{step: p.step, attempt: p.attempt, chunk: piece})
		p.queued += size(piece)
	}
}

// retain retains the attempt's chunks stored in the log. The caller holds mu.
func (p *Publisher) retain(chunks []*eventv1.Chunk) {
	for _, chunk := range chunks {
		if last := len(p.kept) - 1; last < 0 || !merge(p.kept[last], chunk, maxMerged) {
			p.kept = append(p.kept, chunk)
		}
	}
}

// measure recomputes the queued bytes.
func (p *Publisher) measure() {
	p.queued = 0
	for _, e := range p.queue {
		if e.chunk != nil {
			p.queued += size(e.chunk)
		}
	}
}

// take builds a request from the queue; nil if nothing in it is valid any more. The caller holds mu, and the
// queue is not empty.
func (p *Publisher) take() *request {
	r := &request{after: p.after, before: p.at, voided: make(chan struct{})}
	for bytes := 0; len(p.queue) > 0 && len(r.entries) < maxEntries; {
		if p.queue[0].chunk != nil && p.at.N >= position.MaxChunks {
			spoiled := p.pop()
			p.markPartial(spoiled.step)
			continue
		}
		count := unitLength(p.queue)
		p.shorten(count - 1)
		bytes += sizeOf(p.queue[:count])
		if len(r.entries) > 0 && bytes > p.appendLimit {
			break
		}
		for range count {
			p.add(r, p.pop())
		}
	}
	if len(r.entries) == 0 {
		return nil
	}
	r.last = p.at.Sequence()
	return r
}

// unitLength returns how many of the first entries belong together: the first chunk of an attempt is in the
// attempt's first record.
func unitLength(entries []entry) int {
	if len(entries) > 1 && entries[0].mark != nil && entries[1].chunk != nil {
		return 2
	}
	return 1
}

// shorten cuts a delta queued under a higher limit.
func (p *Publisher) shorten(place int) {
	e := p.queue[place]
	if e.chunk == nil {
		return
	}
	if text := delta(e.chunk); text != nil && len(*text) > p.deltaLimit {
		rest := cutAt(e.chunk, p.deltaLimit)
		p.queue = slices.Insert(p.queue, place+1, entry{step: e.step, attempt: e.attempt, chunk: rest})
		p.measure()
	}
}

// add adds an entry to the request. A chunk extends the last record of its attempt.
func (p *Publisher) add(r *request, e entry) {
	r.entries = append(r.entries, e)
	switch {
	case e.boundary != nil:
		b := e.boundary.GetBoundary()
		b.Last = 0
		if !e.partial && p.at.Step == e.step && p.at.Attempt == e.attempt {
			b.Last = p.at.Sequence()
		}
		p.at = position.Of(e.boundary.GetSequence())
		r.records = append(r.records, e.boundary)
		return
	case e.mark != nil:
		p.at = position.Position{Step: e.step, Attempt: e.attempt}
		r.records = append(r.records, &streamv2.Record{Sequence: p.at.Sequence(), Attempt: e.mark})
		return
	}
	p.at.N++
	if n := len(r.records); n == 0 || r.records[n-1].GetBoundary() != nil {
		r.records = append(r.records, &streamv2.Record{})
	}
	record := r.records[len(r.records)-1]
	if len(record.Chunks) == 0 {
		record.Sequence = p.at.Sequence()
	}
	record.Chunks = append(record.Chunks, e.chunk)
}

// inflightChunks returns the chunks of the step in flight within the request in flight.
func (p *Publisher) inflightChunks() []*eventv1.Chunk {
	if p.inflight == nil {
		return nil
	}
	return chunksOf(p.inflight.entries, p.step)
}

// chunksOf returns the chunks of a step.
func chunksOf(entries []entry, step int32) (chunks []*eventv1.Chunk) {
	for _, e := range entries {
		if e.chunk != nil && e.step == step {
			chunks = append(chunks, e.chunk)
		}
	}
	return chunks
}

// pop removes and returns the first entry.
func (p *Publisher) pop() entry {
	e := p.queue[0]
	if e.chunk != nil {
		p.queued -= size(e.chunk)
	}
	p.queue[0] = entry{}
	p.queue = p.queue[1:]
	return e
}

// requeue queues entries again that the log has not stored.
func (p *Publisher) requeue(r *request, entries []entry) {
	p.at = r.before
	p.queue = slices.Concat(entries, p.queue)
	p.measure()
}

// markPartial records that the live log lacks a part of the step.
func (p *Publisher) markPartial(step int32) {
	if step == p.step {
		p.partial = true
	}
	for i := range p.queue {
		if p.queue[i].step == step {
			p.queue[i].partial = true
		}
	}
}

// dropBacklog drops queued entries of committed steps while the log is unreachable, except the last boundary:
// readers get them from the state service. The caller holds mu.
func (p *Publisher) dropBacklog() {
	if !p.unreachable {
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
	if p.inflight != nil { // older than the boundary
		p.inflight.stopRepeating()
	}
	p.queue = slices.Clone(p.queue[boundary:])
	p.queue[0].partial = true
	p.measure()
}

// delta points to the text of a chunk that can be merged and split; nil for other chunks.
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

// size returns the approximate size of the chunk in memory.
func size(chunk *eventv1.Chunk) int {
	if text := delta(chunk); text != nil {
		return 64 + len(*text)
	}
	return proto.Size(chunk)
}

// bytes returns the size of the entry in a record.
func (e entry) bytes() int {
	switch {
	case e.chunk != nil:
		return proto.Size(e.chunk)
	case e.boundary != nil:
		return proto.Size(e.boundary)
	}
	return proto.Size(e.mark)
}

func sizeOf(entries []entry) (bytes int) {
	for _, e := range entries {
		bytes += e.bytes()
	}
	return bytes
}

// isHalvable reports whether the chunk is a delta of several characters.
func isHalvable(chunk *eventv1.Chunk) bool {
	text := delta(chunk)
	return text != nil && len(*text) >= 2*utf8.UTFMax
}

// merge appends the delta of next to last if both belong to one block and the sum is within the limit. It
// reports whether it did.
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

// split cuts a large delta between runes. Only the last piece ends a block.
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

// cutAt leaves at most limit bytes of a longer delta in the chunk, cut between runes, and returns the rest. Only
// the rest ends a block.
func cutAt(chunk *eventv1.Chunk, limit int) *eventv1.Chunk {
	text := delta(chunk)
	all := *text
	at := limit
	for at > 0 && !utf8.RuneStart(all[at]) {
		at--
	}
	if at == 0 { // the limit is below one rune
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

// shrinkBoundary drops the run's output, which the state service has.
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
