package step_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// in returns the chunk as one of a step, at a time.
func in(number int32, timestamp int64, c *eventv1.Chunk) *eventv1.Chunk {
	c.Step, c.Timestamp = number, timestamp
	return c
}

func event(name string) *eventv1.Chunk { return step.Custom(&eventv1.Custom{EventName: name}) }

// Readers of a stored step derive the place of step_started from this.
func TestWhatWasShownBeforeTheStepIsOlderThanItInTheRecord(t *testing.T) {
	t.Parallel()
	for name, times := range map[string][3]int64{
		"in its order":           {10, 20, 30},
		"in one millisecond":     {20, 20, 20},
		"while the clock is set": {30, 20, 10},
	} {
		r := step.Recorder{Step: 1}
		r.Add(in(0, times[0], event("early")))
		r.Add(in(1, times[1], step.Started()))
		r.Add(in(1, times[2], event("late")))
		r.Add(in(1, times[2], step.Text("a")))
		record := r.Record()
		if record.GetStartedAt() != 20 {
			t.Errorf("%s: the step started at %d, want 20", name, record.GetStartedAt())
		}
		for _, e := range record.GetEvents() {
			early := e.GetCustom().GetEventName() == "early"
			if before := e.GetTimestamp() < record.GetStartedAt(); before != early {
				t.Errorf("%s: %v is older than the step: %v, want %v", name, e, before, early)
			}
		}
		r.Retry()
		r.Add(in(1, 5, step.Started()))
		if record := r.Record(); len(record.GetEvents()) != 1 || record.GetEvents()[0].GetTimestamp() >= record.GetStartedAt() {
			t.Errorf("%s: after a retry the record is %v", name, record)
		}
	}
}

func TestARecordNamesTheReplyOfWhichReadersSawMoreThanTheReasoning(t *testing.T) {
	t.Parallel()
	thought := func() *eventv1.Chunk { return step.Thinking("hm", true) }
	for _, tc := range []struct {
		name   string
		chunks []*eventv1.Chunk
		place  int // of the reply among the events; -1 if absent
	}{
		{"text", []*eventv1.Chunk{event("before"), step.Text("a"), event("behind")}, 1},
		{"reasoning, then text", []*eventv1.Chunk{event("before"), thought(), event("between"), step.Text("a")}, 1},
		{"reasoning, then a call", []*eventv1.Chunk{thought(), step.InputStart("call", "tool", false)}, 0},
		{"reasoning alone", []*eventv1.Chunk{event("before"), thought(), event("behind")}, -1},
		{"nothing", nil, -1},
	} {
		r := step.Recorder{Step: 1}
		r.Add(in(1, 5, step.Started()))
		r.Add(in(1, 5, step.Text("void")))
		r.Retry()
		r.Add(in(1, 7, step.Started()))
		for _, c := range tc.chunks {
			r.Add(in(1, 7, c))
		}
		place := -1
		for i, e := range r.Record().GetEvents() {
			if e.GetReply() != nil {
				place = i
			}
		}
		if place != tc.place {
			t.Errorf("%s: the reply is event %d of the record, want %d", tc.name, place, tc.place)
		}
	}
}
