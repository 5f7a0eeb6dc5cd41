package writer

import (
	"context"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// What is sent with one request, within the limits of the stream service: 64 chunks
// and 256 KiB. A chunk that is larger goes by itself.
const (
	maxBatch      = 64
	maxBatchBytes = 192 << 10
)

// batch is chunks on their way into the log. Each keeps its number and its content
// from the first attempt on, whatever comes into the queue meanwhile: it may stand in
// the log without an answer, and what is sent under its number is then taken for its
// repetition.
type batch struct {
	writer *Writer
	chunks []*eventv1.Chunk // that are not acknowledged
	alone  bool             // they are sent one by one
}

func (w *Writer) appendChunks(chunks []*eventv1.Chunk) *operation {
	b := &batch{writer: w, chunks: chunks}
	return &operation{send: b.send, single: b.single, shrink: b.shrink, pass: b.pass}
}

func (b *batch) send(ctx context.Context, number, last int64) (stored, error) {
	together := b.chunks
	if b.alone {
		together = together[:1]
	}
	r := &streamv1.AppendRequest{Record: &streamv1.AppendRequest_Chunk{Chunk: together[0]}, More: together[1:]}
	answer, err := b.writer.append(ctx, r, number, last)
	if err != nil {
		return stored{}, err
	}
	if answer.GetStored() == 0 { // a service that does not know of several
		b.alone, together = true, together[:1]
	}
	return stored{max(1, min(int(answer.GetStored()), len(together))), answer.GetSequence()}, nil
}

func (b *batch) single() bool {
	if b.alone || len(b.chunks) == 1 {
		return false
	}
	b.alone = true
	return true
}

func (b *batch) pass(records int) bool {
	b.chunks = b.chunks[records:]
	if len(b.chunks) > 0 && b.alone {
		b.fit()
	}
	return len(b.chunks) > 0
}

// fit cuts the first chunk to the limit, which may be lower than when it was queued.
// Its request was refused or not read so far.
func (b *batch) fit() {
	chunk := b.chunks[0]
	if text := delta(chunk); text != nil && len(*text) > b.writer.deltaLimit() {
		b.chunks = slices.Insert(b.chunks, 1, cutAt(chunk, b.writer.deltaLimit()))
	}
}

// shrink makes the first chunk smaller, which is sent alone.
func (b *batch) shrink() bool {
	chunk := b.chunks[0]
	if shrinkChunk(chunk) {
		return true
	}
	rest := cut(chunk)
	if rest == nil {
		return false
	}
	b.writer.lower(max(len(*delta(chunk)), len(*delta(rest))))
	b.chunks, b.alone = slices.Insert(b.chunks, 1, rest), true
	return true
}
