package remote_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/remote"
)

// chunks of step n.
func text(n int32, delta string) *eventv1.Chunk {
	return &eventv1.Chunk{Step: n, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}}}
}

func committed(n int32) *eventv1.Chunk {
	return &eventv1.Chunk{Step: n, Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}}
}

func argumentsOf(n int32, id, delta string) []*eventv1.Chunk {
	return []*eventv1.Chunk{
		{Step: n, Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: id, ToolName: "find"}}},
		{Step: n, Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: delta}}},
		{Step: n, Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: id}}},
	}
}

func begins(n int32, id string, client bool) *eventv1.Chunk {
	return &eventv1.Chunk{Step: n, Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: id, ToolName: "find", Arguments: `{"q":1}`, AwaitsClient: client}}}
}

func asks(n int32, id string) *eventv1.Chunk {
	return &eventv1.Chunk{Step: n, Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{ToolCallId: id}}}
}

func ends(n int32, id, result string) *eventv1.Chunk {
	return &eventv1.Chunk{Step: n, Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: id, ToolName: "find", Result: result, Success: true}}}
}

// play adds the chunks, and returns the committed steps and the number of chunks for readers.
func play(m *remote.Mirror, chunks ...*eventv1.Chunk) (steps []remote.Step, shown int) {
	for _, c := range chunks {
		chunk, isCommit := m.Add(c)
		if chunk != nil {
			shown++
		}
		if isCommit {
			steps = append(steps, m.Commit())
		}
	}
	return steps, shown
}

func newMirror(after int32) *remote.Mirror {
	return remote.NewMirror(after, func(id string) string { return id + "'" })
}

// The test would take minutes if the work were quadratic.
func TestManySmallDeltasAreCopiedInLinearTime(t *testing.T) {
	t.Parallel()
	const deltas = 400_000
	m := newMirror(0)
	for range deltas {
		m.Add(text(1, "x"))
	}
	m.Add(argumentsOf(1, "c", "")[0])
	one := argumentsOf(1, "c", "1")[1]
	for range deltas {
		m.Add(one)
	}
	steps, _ := play(m, committed(1))
	if len(steps) != 1 || len(steps[0].Parts) != 2 {
		t.Fatalf("got %d steps, want one with two parts", len(steps))
	}
	said, call := steps[0].Parts[0].(agent.Text), steps[0].Parts[1].(agent.ToolCall)
	if len(said.Text) != deltas || len(call.Arguments) != deltas {
		t.Errorf("got %d bytes of text and %d of arguments, want %d of each", len(said.Text), len(call.Arguments), deltas)
	}
}

func TestAStepIsCopiedWithItsCallsAndResults(t *testing.T) {
	t.Parallel()
	chunks := []*eventv1.Chunk{{Step: 0, Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{}}}, text(1, "Let me "), text(1, "look.")}
	chunks = append(chunks, argumentsOf(1, "a", `{"q":`)...)
	chunks = append(chunks, argumentsOf(1, "b", `{"broken`)...)
	chunks = append(chunks, begins(1, "a", false), ends(1, "a", "7"), ends(1, "b", ""), committed(1), text(2, "It is 7."), committed(2))
	steps, shown := play(newMirror(0), chunks...)
	if len(steps) != 2 || shown != 12 {
		t.Fatalf("%d steps and %d chunks for readers, want 2 and 12", len(steps), shown)
	}
	parts := steps[0].Parts
	if len(parts) != 3 || parts[0] != (agent.Text{Text: "Let me look."}) {
		t.Fatalf("parts = %v", parts)
	}
	good, refused := parts[1].(agent.ToolCall), parts[2].(agent.ToolCall)
	if good.ID != "a'" || string(good.Arguments) != `{"q":1}` || !good.Dynamic || refused.ID != "b'" || string(refused.Arguments) != `"{\"broken"` {
		t.Errorf("calls = %+v and %+v", good, refused)
	}
	if r := steps[0].Results; len(r) != 2 || r[0].CallID != "a'" || string(r[0].Result) != "7" || steps[0].Waits {
		t.Errorf("results = %+v", steps[0])
	}
	if steps[1].Number != 2 || steps[1].Parts[0] != (agent.Text{Text: "It is 7."}) {
		t.Errorf("second step = %+v", steps[1])
	}
}

func TestCommittedStepsAreNotCopiedAgain(t *testing.T) {
	t.Parallel()
	steps, shown := play(newMirror(3), text(2, "old"), committed(2), text(3, "old"), committed(3), text(5, "new"), committed(5))
	if len(steps) != 1 || shown != 1 || steps[0].Number != 5 {
		t.Errorf("steps = %+v with %d chunks, want the new one", steps, shown)
	}
}

func TestAVoidStepLeavesNothing(t *testing.T) {
	t.Parallel()
	m := newMirror(0)
	play(m, text(1, "half"), begins(1, "a", true))
	if !m.InFlight() {
		t.Error("no step is in flight")
	}
	m.Void()
	if m.InFlight() {
		t.Error("a void step is in flight")
	}
	steps, _ := play(m, text(1, "whole"), committed(1))
	if len(steps[0].Parts) != 1 || steps[0].Parts[0] != (agent.Text{Text: "whole"}) || steps[0].Waits {
		t.Errorf("step = %+v", steps[0])
	}
}

func TestAStepWaitsForTheClientsOfItsOpenCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chunks []*eventv1.Chunk
		want   bool
	}{
		"a client tool":           {[]*eventv1.Chunk{begins(1, "a", true)}, true},
		"an answered client tool": {[]*eventv1.Chunk{begins(1, "a", true), ends(1, "a", "1")}, false},
		"an approval":             {[]*eventv1.Chunk{begins(1, "a", false), asks(1, "a")}, true},
		"one of two":              {[]*eventv1.Chunk{begins(1, "a", true), begins(1, "b", true), ends(1, "a", "1")}, true},
	} {
		if steps, _ := play(newMirror(0), append(c.chunks, committed(1))...); steps[0].Waits != c.want {
			t.Errorf("%s: got %v, want %v", name, steps[0].Waits, c.want)
		}
	}
}

func TestAStepHasALimit(t *testing.T) {
	t.Parallel()
	m := newMirror(0)
	delta := strings.Repeat("x", remote.MaxStepBytes/2-100)
	if play(m, text(1, delta), text(1, delta)); m.TooLarge() {
		t.Error("a step below the limit is too large")
	}
	if play(m, text(1, strings.Repeat("x", 200))); !m.TooLarge() {
		t.Error("a step above the limit is not too large")
	}
	if play(m, committed(1)); m.TooLarge() {
		t.Error("the next step has begun with the size of the last one")
	}
}

func TestIDsOfACopyAreItsOwn(t *testing.T) {
	t.Parallel()
	one, other := loop.Run{Tenant: "t", SessionID: "one", RunID: "r"}, loop.Run{Tenant: "t", SessionID: "other", RunID: "r"}
	if remote.SessionID(one) == remote.SessionID(other) || remote.CallID(one, "a") == remote.CallID(other, "a") || remote.CallID(one, "a") == remote.CallID(one, "b") {
		t.Error("two ids are equal")
	}
	later := one
	if later.RunID = "r2"; remote.SessionID(one) != remote.SessionID(later) || remote.CallID(one, "a") != remote.CallID(later, "a") {
		t.Error("the ids change with the run")
	}
	if long := remote.CallID(one, strings.Repeat("x", 256)); len(long) > 256 {
		t.Errorf("the id has %d bytes", len(long))
	}
}
