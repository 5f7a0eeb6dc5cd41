package stream_test

import (
	"fmt"
	"slices"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// words says a frame in words, without its sequence.
func words(frame *streamv1.ReadResponse) string {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return said(f.Chunk.GetChunk())
	case *streamv1.ReadResponse_End:
		return "end " + f.End.GetRunId()
	case *streamv1.ReadResponse_Fail:
		return "fail " + f.Fail.GetRunId()
	case *streamv1.ReadResponse_Truncated:
		return "truncated"
	case *streamv1.ReadResponse_Rewound:
		return "rewound"
	case *streamv1.ReadResponse_CaughtUp:
		return "caught up"
	}
	return fmt.Sprintf("a frame of an unknown kind: %v", frame)
}

func said(c *eventv1.Chunk) string { return c.GetTextDelta().GetDelta() }

// sequenceOf returns the sequence of a frame.
func sequenceOf(frame *streamv1.ReadResponse) int64 {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return f.Chunk.GetSequence()
	case *streamv1.ReadResponse_End:
		return f.End.GetSequence()
	case *streamv1.ReadResponse_Fail:
		return f.Fail.GetSequence()
	case *streamv1.ReadResponse_Rewound:
		return f.Rewound.GetSequence()
	case *streamv1.ReadResponse_CaughtUp:
		return f.CaughtUp.GetSequence()
	}
	return 0
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}
