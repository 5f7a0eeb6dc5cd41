package uistream_test

import (
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// A run ends calls of an earlier message before its first step. If readers are rewound to before these ends while a step
// is in flight, the client keeps the start-step of the void step, and the ends come again.
func TestCallsOfAnEarlierMessageStayOutOfTheAnswerAfterAReset(t *testing.T) {
	t.Parallel()
	ofEarlier := []*eventv1.Chunk{
		{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{ToolCallId: "c0", ToolName: "pay", ApprovalId: "a0", Input: "{}"}}},
		{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{ToolCallId: "c0", ApprovalId: "a0", Decision: "approve"}}},
		{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "c0", ToolName: "pay", Arguments: "{}"}}},
		{Event: &eventv1.Chunk_SubagentEnd{SubagentEnd: &eventv1.SubagentEnd{ToolCallId: "c0", SubSessionId: "below", SubAgentType: "reader"}}},
		{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: "c0", ToolName: "pay", Error: "client_tool_abandoned"}}},
	}
	for name, shown := range map[string][]*eventv1.Chunk{
		"a step with text": {stepStarted(), textDelta("void")},
		"an empty step":    {stepStarted()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, at := uistream.New("msg-2", uistream.DefaultMajor), int64(0)
			take := func(c *eventv1.Chunk) []uistream.Part {
				at++
				return tr.Chunk(at, c)
			}
			repeated := func(attempt string) {
				t.Helper()
				take(&eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{}}})
				for _, c := range ofEarlier {
					if parts := take(c); len(parts) > 0 {
						t.Errorf("%s: %v gives %+v, want nothing", attempt, c, parts)
					}
				}
			}
			repeated("at first")
			for _, c := range shown {
				take(c)
			}
			if _, ok := tr.Rewind(0); !ok {
				t.Fatal("the client should be able to drop the step")
			}
			repeated("after the rewind")
			if parts := append(take(stepStarted()), take(textDelta("good"))...); len(parts) != 2 || parts[1].Delta != "good" {
				t.Errorf("the next attempt gives %+v, want its text in the same step", parts)
			}
		})
	}
}

// A run may end while its step is void. The client has the start-step, and nothing else depends on the void chunks.
func TestTheEndAfterAVoidStepIsTheOneOfAReplayWithoutIt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*uistream.Translator) []uistream.Part{
		"interrupted": func(tr *uistream.Translator) []uistream.Part { return tr.Finish(uistream.Interrupted) },
		"failed":      func(tr *uistream.Translator) []uistream.Part { return tr.Fail("It failed.") },
	} {
		for _, steps := range []int{0, 1} {
			live, replay := uistream.New("msg", uistream.DefaultMajor), uistream.New("msg", uistream.DefaultMajor)
			at := int64(0)
			both := []*uistream.Translator{live, replay}
			take := func(c *eventv1.Chunk, of ...*uistream.Translator) {
				at++
				for _, tr := range of {
					tr.Chunk(at, c)
				}
			}
			for _, tr := range both {
				tr.SetMetadata(uistream.Metadata{RunID: "r"})
				tr.Start()
			}
			for range steps {
				take(stepStarted(), both...)
				take(textDelta("good"), both...)
				take(&eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}}, both...)
			}
			before := at
			take(stepStarted(), live)
			take(textDelta("void"), live)
			live.Rewind(before)
			if got, want := encoded(t, end(live)), encoded(t, end(replay)); got != want {
				t.Errorf("%s after %d steps:\nlive   %s\nreplay %s", name, steps, got, want)
			}
		}
	}
}

func encoded(t *testing.T, parts []uistream.Part) string {
	t.Helper()
	text := ""
	for _, p := range parts {
		b, err := p.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	return text
}

func stepStarted() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}
}

func textDelta(text string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}}
}
