package publisher_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// runes have one to four bytes.
var runes = []string{"a", "é", "日", "😀"}

func pieces(log *publishertest.Log) []string {
	var all []string
	for _, r := range log.Records("s") {
		for _, c := range r.GetChunks() {
			all = append(all, c.GetTextDelta().GetDelta())
		}
	}
	return all
}

func TestADeltaAroundTheLimitIsCutBetweenRunesAndNowhereElse(t *testing.T) {
	t.Parallel()
	for _, r := range runes {
		for size := 990; size <= 1010; size++ { // the limit is 1000
			synctest.Test(t, func(t *testing.T) {
				log := &publishertest.Log{}
				p := start(t, log, claim())
				want := strings.Repeat(r, size/len(r)) + strings.Repeat(".", size%len(r))
				show(t, p, text(1, want))
				flush(t, p)
				got := pieces(log)
				if strings.Join(got, "") != want || len(got) != (size+999)/1000 {
					t.Errorf("%d bytes of %q are %d chunks of %d bytes", size, r, len(got), len(strings.Join(got, "")))
				}
				for _, piece := range got {
					if !utf8.ValidString(piece) || len(piece) > 1000 {
						t.Errorf("%d bytes of %q: a piece has %d bytes, valid %v", size, r, len(piece), utf8.ValidString(piece))
					}
				}
			})
		}
	}
}

func TestADeltaAtTheEdgeOfTheLogsChunkSizeIsTakenAndOneAboveItIsHalved(t *testing.T) {
	t.Parallel()
	for _, r := range runes {
		want := strings.Repeat(r, 900/len(r))
		exact := proto.Size(text(1, want))
		for above, chunks := range map[int]int{0: 1, 1: 2} { // excess bytes of the chunk
			synctest.Test(t, func(t *testing.T) {
				log := &publishertest.Log{MaxChunk: exact - above}
				p := start(t, log, claim())
				show(t, p, text(1, want))
				flush(t, p)
				if got := pieces(log); strings.Join(got, "") != want || len(got) != chunks {
					t.Errorf("%q, too large by %d: %d chunks of %d bytes, want %d", r, above, len(got), len(strings.Join(got, "")), chunks)
				}
			})
		}
	}
}

func TestDeltasOfOneBlockMergeAndOthersDoNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		thought := func(content string, complete bool) *eventv1.Chunk {
			return &eventv1.Chunk{Step: 1, Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: content, IsComplete: complete}}}
		}
		arguments := func(id string) *eventv1.Chunk {
			return &eventv1.Chunk{Step: 1, Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: "{}"}}}
		}
		show(t, p, thought("a", false), thought("b", true), thought("c", false), text(1, "d"), text(1, "e"), arguments("1"), arguments("1"), arguments("2"))
		flush(t, p)
		var got []string
		for _, c := range log.Records("s")[0].GetChunks() {
			got = append(got, c.GetThinking().GetContent()+c.GetTextDelta().GetDelta()+c.GetToolArgStreamDelta().GetToolCallId())
		}
		if want := "ab c de 1 2"; strings.Join(got, " ") != want {
			t.Errorf("chunks = %q, want %q", got, want)
		}
	})
}
