package publisher

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

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

// limits are those of a delta and of an append with several entries, in bytes. They fall when the log refuses one.
type limits struct{ delta, append int }

// split leaves the first part of a delta above the limit in the chunk and returns the rest; nil if the chunk is within
// the limit.
func (l limits) split(chunk *eventv1.Chunk) (rest *eventv1.Chunk) {
	text := delta(chunk)
	if text == nil || len(*text) <= l.delta {
		return nil
	}
	all := *text
	at := l.delta
	for at > 0 && !utf8.RuneStart(all[at]) {
		at--
	}
	if at == 0 { // the limit is below one rune
		for at = l.delta; at < len(all) && !utf8.RuneStart(all[at]); at++ {
		}
	}
	rest = proto.CloneOf(chunk)
	*text = all[:at]
	*delta(rest) = all[at:]
	if thinking := chunk.GetThinking(); thinking != nil { // the rest ends the block
		thinking.IsComplete = false
	}
	return rest
}

// halve lowers the limit of a delta so that the refused chunk is split. It reports false if that is impossible.
func (l *limits) halve(chunk *eventv1.Chunk) bool {
	text := delta(chunk)
	if text == nil || len(*text) < 2*utf8.UTFMax {
		return false
	}
	l.delta = len(*text)/2 + utf8.UTFMax - 1 // the chunk is split between two runes
	return true
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

// merge appends the delta of next to last if both belong to one block and the sum is within the limit. It
// reports whether it did.
func merge(last, next *eventv1.Chunk, limit int) bool {
	sameBlock := false
	switch e := last.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		sameBlock = next.GetTextDelta() != nil
	case *eventv1.Chunk_Thinking:
		sameBlock = next.GetThinking() != nil && !e.Thinking.GetIsComplete()
	case *eventv1.Chunk_ToolArgStreamDelta:
		sameBlock = next.GetToolArgStreamDelta() != nil && next.GetToolArgStreamDelta().GetToolCallId() == e.ToolArgStreamDelta.GetToolCallId()
	}
	if !sameBlock || last.GetStep() != next.GetStep() || last.GetAgentId() != next.GetAgentId() {
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

// dropOutput removes the run's output, which the state service has. It reports false if there is none.
func dropOutput(b *streamv2.Boundary) bool {
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
