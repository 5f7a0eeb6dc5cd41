package publisher

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// tooLargeNote stands in place of content that is too large for the log.
const tooLargeNote = "too large for the stream: it is in the session's messages"

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

// cut halves a delta and gives the second half; nil when there is nothing to halve.
func cut(chunk *eventv1.Chunk) *eventv1.Chunk {
	text := delta(chunk)
	if text == nil || len(*text) < 2*utf8.UTFMax {
		return nil
	}
	return cutAt(chunk, len(*text)/2)
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

// shrinkChunk leaves out what a reader finds in the session's messages, and reports
// whether there was something to leave out.
func shrinkChunk(chunk *eventv1.Chunk) bool {
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_ToolEnd:
		if e.ToolEnd.GetResult() == "" {
			return false
		}
		e.ToolEnd.Result = ""
		if e.ToolEnd.GetError() == "" {
			e.ToolEnd.Error = "the result is " + tooLargeNote
		}
		return true
	case *eventv1.Chunk_ToolStart:
		if e.ToolStart.GetArguments() == "" {
			return false
		}
		e.ToolStart.Arguments = ""
		return true
	case *eventv1.Chunk_RunCompleted:
		if e.RunCompleted.GetOutput() == "" {
			return false
		}
		e.RunCompleted.Output = ""
		return true
	case *eventv1.Chunk_Output:
		if e.Output.GetOutput() == "" {
			return false
		}
		e.Output.Output = ""
		return true
	case *eventv1.Chunk_ToolApprovalRequest:
		if e.ToolApprovalRequest.GetInput() == "" {
			return false
		}
		e.ToolApprovalRequest.Input = ""
		return true
	}
	return false
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
