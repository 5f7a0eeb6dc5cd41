package publisher_test

import (
	"log/slog"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
)

func recording() *publisher.Publisher {
	return publisher.New(nil, claim(), publisher.Config{MaxDeltaBytes: 1000, MaxQueuedBytes: 1 << 20}, slog.New(slog.DiscardHandler))
}

func at(timestamp int64, c *eventv1.Chunk) *eventv1.Chunk {
	c.Timestamp = timestamp
	return c
}

// Readers of a stored step derive the place of step_started from this.
func TestWhatWasShownBeforeTheStepIsOlderThanItInTheRecord(t *testing.T) {
	t.Parallel()
	for name, times := range map[string][3]int64{
		"in its order":           {10, 20, 30},
		"in one millisecond":     {20, 20, 20},
		"while the clock is set": {30, 20, 10},
	} {
		p := recording()
		show(t, p, at(times[0], event(0, "early")), at(times[1], stepStarted(1)), at(times[2], event(1, "late")), at(times[2], text(1, "a")))
		r := p.Record()
		if r.GetStartedAt() != 20 {
			t.Errorf("%s: the step started at %d, want 20", name, r.GetStartedAt())
		}
		for _, e := range r.GetEvents() {
			early := e.GetCustom().GetEventName() == "early"
			if before := e.GetTimestamp() < r.GetStartedAt(); before != early {
				t.Errorf("%s: %v stands before the step: %v, want %v", name, e, before, early)
			}
		}
		p.Retry(publisher.ReasonStepRetried)
		show(t, p, at(5, stepStarted(1)))
		if r := p.Record(); len(r.GetEvents()) != 1 || r.GetEvents()[0].GetTimestamp() >= r.GetStartedAt() {
			t.Errorf("%s: after a retry the record is %v", name, r)
		}
	}
}

func TestARecordNamesTheReplyOfWhichReadersSawMoreThanTheReasoning(t *testing.T) {
	t.Parallel()
	thought := func() *eventv1.Chunk {
		return &eventv1.Chunk{Step: 1, Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: "hm", IsComplete: true}}}
	}
	arguments := &eventv1.Chunk{Step: 1, Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: "call"}}}
	for _, tc := range []struct {
		name   string
		chunks []*eventv1.Chunk
		place  int // of the reply among the events; -1 if absent
	}{
		{"text", []*eventv1.Chunk{event(1, "before"), text(1, "a"), event(1, "behind")}, 1},
		{"reasoning, then text", []*eventv1.Chunk{event(1, "before"), thought(), event(1, "between"), text(1, "a")}, 1},
		{"reasoning, then a call", []*eventv1.Chunk{thought(), arguments}, 0},
		{"reasoning alone", []*eventv1.Chunk{event(1, "before"), thought(), event(1, "behind")}, -1},
		{"nothing", nil, -1},
	} {
		p := recording()
		show(t, p, stepStarted(1), text(1, "void"))
		p.Retry(publisher.ReasonStepRetried)
		show(t, p, append([]*eventv1.Chunk{stepStarted(1)}, tc.chunks...)...)
		place := -1
		for i, e := range p.Record().GetEvents() {
			if e.GetReply() != nil {
				place = i
			}
		}
		if place != tc.place {
			t.Errorf("%s: the reply is event %d of the record, want %d", tc.name, place, tc.place)
		}
	}
}
