package follow

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
)

var update = flag.Bool("update", false, "write what is rendered into the scenarios")

// A scenario has a run and a step as text, then a line of dashes and the frames.
func TestStoredStepsAreRenderedAsTheyWereLive(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want, _ := strings.Cut(string(b), "----\n")
			runText, stepText, _ := strings.Cut(in, "--\n")
			run, step := &statev1.Run{}, &statev1.StoredStep{}
			if err := prototext.Unmarshal([]byte(runText), run); err != nil {
				t.Fatal(err)
			}
			if err := prototext.Unmarshal([]byte(stepText), step); err != nil {
				t.Fatal(err)
			}
			got := lines(t, renderStep(run, "run-0", step))
			if *update {
				if err := os.WriteFile(file, []byte(in+"----\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func lines(t *testing.T, frames []*frame.Frame) string {
	t.Helper()
	var b strings.Builder
	for _, f := range frames {
		fmt.Fprint(&b, place(f.Sequence), " ")
		if f.Terminal != nil {
			fmt.Fprintf(&b, "%s: %s\n", f.Terminal.GetRunId(), outcome(f))
			continue
		}
		text, err := eventv1.MarshalChunk(f.Chunk)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String()
}

func outcome(f *frame.Frame) string {
	if fail := f.Terminal.GetFail(); fail != nil {
		return fmt.Sprintf("fails, %s, %s", fail.GetCode(), fail.GetError())
	}
	end := f.Terminal.GetEnd()
	return fmt.Sprintf("%s, output %s, %d tokens", end.GetStatus(), end.GetOutput(), end.GetUsage().GetTotalTokens())
}

func place(sequence int64) string {
	p := position.Of(sequence)
	switch sequence {
	case position.Committed(p.Step):
		return fmt.Sprint(p.Step, ".committed")
	case position.Ended(p.Step) - 1:
		return fmt.Sprint(p.Step, ".last")
	case position.Ended(p.Step):
		return fmt.Sprint(p.Step, ".ended")
	}
	if p.Attempt == position.Stored {
		return fmt.Sprint(p.Step, ".", p.N)
	}
	return fmt.Sprint(p)
}

// drawStep draws any step, also with records that name missing messages.
func drawStep(t *rapid.T) (*statev1.Run, *statev1.StoredStep) {
	step := &statev1.StoredStep{
		Step: rapid.Int32Range(1, 9).Draw(t, "step"), RunId: "r", BeginsRun: rapid.Bool().Draw(t, "begins"), CommittedAt: 9,
	}
	ids := []string{"a", "b", "c"}
	if rapid.Bool().Draw(t, "replies") {
		m := &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}
		for range rapid.IntRange(0, 4).Draw(t, "parts") {
			switch rapid.IntRange(0, 2).Draw(t, "part") {
			case 0:
				m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "x"}}})
			case 1:
				m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: "x"}}})
			default:
				id := rapid.SampledFrom(ids).Draw(t, "call")
				m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id}}})
			}
		}
		step.Messages = append(step.Messages, m)
	}
	for range rapid.IntRange(0, 2).Draw(t, "results") {
		id := rapid.SampledFrom(ids).Draw(t, "result")
		step.Messages = append(step.Messages, &eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{ToolCallId: id}}}}})
	}
	if rapid.Bool().Draw(t, "recorded") {
		step.Record = &eventv1.StepRecord{StartedAt: rapid.Int64Range(0, 3).Draw(t, "started")}
		for at := range rapid.IntRange(0, 5).Draw(t, "events") {
			e := &eventv1.StepEvent{Timestamp: int64(at)}
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				if len(step.GetMessages()) > 0 && step.GetMessages()[0].GetRole() == eventv1.Role_ROLE_ASSISTANT {
					e.Event = &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}
				}
			case 1:
				e.Event = &eventv1.StepEvent_ToolStart{ToolStart: &eventv1.ToolStartEvent{ToolCallId: rapid.SampledFrom(ids).Draw(t, "starts")}}
			case 2:
				e.Event = &eventv1.StepEvent_ToolEnd{ToolEnd: rapid.SampledFrom(ids).Draw(t, "ends")}
			default:
				e.Event = &eventv1.StepEvent_Custom{Custom: &eventv1.Custom{EventName: "x"}}
			}
			step.Record.Events = append(step.Record.Events, e)
		}
	}
	run := &statev1.Run{RunId: "r", Status: statev1.RunStatus(rapid.Int32Range(3, 8).Draw(t, "status"))}
	if rapid.Bool().Draw(t, "ends") {
		run.FinishStep = step.GetStep()
	}
	return run, step
}

func TestPositionsRiseAndStayInTheStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run, step := drawStep(t)
		last := position.Start(step.GetStep())
		frames := renderStep(run, "", step)
		for i, f := range frames {
			if f.Sequence <= last || position.Of(f.Sequence).Step != step.GetStep() {
				t.Fatalf("frame %d stands at %v, behind %v", i, position.Of(f.Sequence), position.Of(last))
			}
			if n := position.Of(f.Sequence).N; n != int32(i+1) && f.Sequence < position.Committed(step.GetStep()) {
				t.Fatalf("frame %d has the number %d", i, n)
			}
			last = f.Sequence
		}
		want := position.Committed(step.GetStep())
		if run.GetFinishStep() != 0 {
			want = position.Ended(step.GetStep())
		}
		if last != want {
			t.Fatalf("ends at %v, want %v", position.Of(last), position.Of(want))
		}
	})
}
