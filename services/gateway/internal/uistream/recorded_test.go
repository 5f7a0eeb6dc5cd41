package uistream_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// recordOf returns an executor's record of a step with these chunks. An executor sends the input of a call before its
// start. Here it may come with it.
func recordOf(chunks []*eventv1.Chunk) *eventv1.StepRecord {
	var recorder step.Recorder
	started := false
	for _, c := range chunks {
		started = started || c.GetStepStarted() != nil
		if e := c.GetToolStart(); e != nil && started {
			input := step.InputStart(e.GetToolCallId(), e.GetToolName(), e.GetDynamic())
			input.Timestamp, input.Step = c.GetTimestamp(), c.GetStep()
			recorder.Add(input)
		}
		recorder.Add(c)
	}
	return recorder.Record()
}

// drawEvents draws some events of a tool or hook.
func drawEvents(t *rapid.T, where string) []func() *eventv1.Chunk {
	var events []func() *eventv1.Chunk
	for range rapid.IntRange(0, 2).Draw(t, "events "+where) {
		data := fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "data"))
		name := rapid.SampledFrom([]string{"progress", "note"}).Draw(t, "name")
		id := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "id")
		transient := rapid.Bool().Draw(t, "transient")
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		events = append(events, func() *eventv1.Chunk {
			switch kind {
			case 0:
				return &eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: &eventv1.StatePatch{Patches: "[" + data + "]"}}}
			case 1:
				return &eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: &eventv1.Output{Output: data}}}
			default:
				return &eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: &eventv1.Custom{EventName: name, Data: data, Id: id, Transient: transient}}}
			}
		})
	}
	return events
}

// recordStep records the step that ends here. A step that showed only its messages may have no
// record.
func (s *story) recordStep(form bool) {
	var chunks []*eventv1.Chunk
	for _, r := range withoutVoid(s.log) {
		if r.chunk.GetStepCommitted() != nil {
			chunks = nil
		} else if r.chunk != nil {
			chunks = append(chunks, r.chunk)
		}
	}
	record := recordOf(chunks)
	plain := !form && !slices.ContainsFunc(record.GetEvents(), func(e *eventv1.StepEvent) bool {
		return e.GetCustom() != nil || e.GetStatePatch() != nil || e.GetOutput() != nil
	})
	if !plain || rapid.IntRange(0, 3).Draw(s.t, "without a record") > 0 {
		s.records[uistream.Step{RunID: s.runID(), Number: s.step}] = record
	}
}

// user is a user's message that begins a run, with metadata of the client.
func user(run, metadata string) *eventv1.Message {
	return &eventv1.Message{Id: "u-" + run, Role: eventv1.Role_ROLE_USER, RunId: run, UiMetadata: metadata,
		Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}}}
}

func TestAConversationIsTheSameStoredAndLive(t *testing.T) {
	t.Parallel()
	for i := range 10 { // 100 checks each
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, checkConversation)
		})
	}
}

func checkConversation(t *rapid.T) {
	stored := uistream.Stored{Runs: map[string]uistream.Run{}, Records: map[uistream.Step]*eventv1.StepRecord{}}
	var live []string
	run, step := 0, int32(0)
	for range rapid.IntRange(1, 3).Draw(t, "questions") {
		run++
		id := fmt.Sprint("run-", run)
		metadata := rapid.SampledFrom([]string{"", `{"a":[1,"<é>"]}`, `"text"`, "null", "7"}).Draw(t, "metadata")
		stored.Messages = append(stored.Messages, user(id, metadata))
		live = append(live, `{"id":"u-`+id+`","role":"user","parts":[{"type":"text","text":"hi"}]`+withMetadata(metadata)+`}`)
		if rapid.IntRange(0, 3).Draw(t, "fails without a word") == 0 {
			known := uistream.Run{ID: id, MessageID: "msg-" + id, AgentType: "demo", CreatedAt: 5, Failure: &eventv1.Error{Code: "c"}}
			stored.Runs[id], stored.Last = known, id
			live = append(live, text(t, silent(t, known).message()))
			continue
		}
		s := drawStoryFrom(t, "msg-"+id, run, step)
		for id, known := range s.runs {
			stored.Runs[id] = known
		}
		for step, record := range s.records {
			stored.Records[step] = record
		}
		stored.Messages = append(stored.Messages, s.messages...)
		live = append(live, shown(t, s.watch(t, 7, never).dropUndecided().message()))
		run, step, stored.Last = s.run, s.step, s.runID()
	}
	var got []string
	for _, m := range stored.Conversation() {
		got = append(got, text(t, m))
	}
	if !slices.Equal(got, live) {
		t.Fatalf("stored\n%s\nlive\n%s", strings.Join(got, "\n"), strings.Join(live, "\n"))
	}
}

func withMetadata(metadata string) string {
	if metadata == "" {
		return ""
	}
	return `,"metadata":` + strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(metadata)
}

// silent is the client of a run that fails before it writes anything.
func silent(t *rapid.T, run uistream.Run) *client {
	w := &watcher{t: t, c: newClient(7), tr: uistream.New(run.MessageID, 7)}
	w.tr.SetMetadata(run.Metadata())
	w.giveAll(w.tr.Start())
	w.giveAll(w.tr.Chunk(1, &eventv1.Chunk{AgentId: run.ID, Event: &eventv1.Chunk_Error{Error: run.Failure}}))
	w.giveAll(w.tr.Fail(run.Failure.GetError()))
	return w.c
}
