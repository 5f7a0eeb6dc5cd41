package conversation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// body is the messages of GET /messages as JSON.
func (s *stored) body(t *testing.T, offset, limit int) string {
	t.Helper()
	page, err := pageOf(t, s.reader(), offset, limit)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(page.Messages)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// failNewestRun ends the newest run with a failure.
func (s *stored) failNewestRun(run string) {
	r := s.runs[len(s.runs)-1]
	r.Status, r.Failure = statev1.RunStatus_RUN_STATUS_FAILED, &statev1.Failure{Error: "It broke.", Code: "x", Detail: "internals"}
	s.current = run
}

const start = statev1.RunEntry_RUN_ENTRY_START

func TestAMessageHasTheMetadataOfItsRun(t *testing.T) {
	t.Parallel()
	s := &stored{}
	s.addText(s.begin(start, "msg-1"), 1)
	run := s.runs[0]
	run.Status, run.AgentType, run.CreatedAt, run.Usage = statev1.RunStatus_RUN_STATUS_COMPLETED, "demo", 7, &eventv1.Usage{PromptTokens: 1, CompletionTokens: 2}
	for status, want := range map[statev1.RunStatus]string{
		statev1.RunStatus_RUN_STATUS_COMPLETED:   `"metadata":{"runId":"run-1","agentType":"demo","createdAt":7,"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}}]`,
		statev1.RunStatus_RUN_STATUS_INTERRUPTED: `"metadata":{"runId":"run-1","agentType":"demo","createdAt":7,"interrupted":"interrupt"}}]`,
		statev1.RunStatus_RUN_STATUS_FAILED:      `"metadata":{"runId":"run-1","agentType":"demo","createdAt":7}}]`,
	} {
		run.Status = status
		if got := s.body(t, 1, 1); !strings.HasSuffix(got, want) {
			t.Errorf("%v: got %s, want %s", status, got, want)
		}
	}
}

func TestAMessageHasTheEventsOfItsStepsInOrder(t *testing.T) {
	t.Parallel()
	s := &stored{records: map[int32]*eventv1.StepRecord{}}
	run := s.begin(start, "msg-1")
	for step := range int32(5) {
		s.addText(run, step+1)
		s.records[step+1] = &eventv1.StepRecord{Events: []*eventv1.StepEvent{
			{Event: &eventv1.StepEvent_Custom{Custom: &eventv1.Custom{EventName: "progress", Id: "p", Data: fmt.Sprint(step)}}},
			{Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}},
			{Event: &eventv1.StepEvent_Custom{Custom: &eventv1.Custom{EventName: "note", Data: fmt.Sprint(step)}}},
		}}
	}
	want := `[{"id":"msg-1","role":"assistant","parts":[{"type":"step-start"},{"type":"data-progress","id":"p","data":4},{"type":"text","text":"yes","state":"done"},{"type":"data-note","data":0}`
	for step := range 4 {
		want += fmt.Sprintf(`,{"type":"step-start"},{"type":"text","text":"yes","state":"done"},{"type":"data-note","data":%d}`, step+1)
	}
	if got := s.body(t, 1, 50); !strings.HasPrefix(got, want+`],`) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAFailedRunShowsItsErrorWhereItEnded(t *testing.T) {
	t.Parallel()
	const why = `{"type":"data-error","id":"run-%d","data":{"code":"x","error":"It broke."}}`
	answers := func(s *stored, offset, limit int) []string {
		var messages []struct {
			ID    string
			Parts []json.RawMessage
		}
		if err := json.Unmarshal([]byte(s.body(t, offset, limit)), &messages); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range messages {
			out = append(out, m.ID+" "+string(m.Parts[len(m.Parts)-1]))
		}
		return out
	}
	hi := func(id string) string { return id + ` {"type":"text","text":"hi"}` }
	broke := func(run int) string { return fmt.Sprintf("msg-%d "+why, run, run) }

	s := &stored{}
	one := s.begin(start, "msg-1")
	s.addText(one, 1)
	s.failNewestRun(one)
	two := s.begin(start, "msg-2") // fails without messages
	s.failNewestRun(two)
	three := s.begin(start, "msg-3")
	s.failNewestRun(three)
	for _, tc := range []struct {
		offset, limit int
		want          []string
	}{
		{0, 50, []string{hi("m0"), broke(1), hi("m2"), broke(2), hi("m3"), broke(3)}},
		{0, 2, []string{hi("m0"), broke(1)}},
		{2, 1, []string{hi("m2"), broke(2)}},
		{3, 1, []string{hi("m3"), broke(3)}},
		{1, 2, []string{broke(1), hi("m2"), broke(2)}},
		{4, 5, nil},
	} {
		if got := answers(s, tc.offset, tc.limit); strings.Join(got, "; ") != strings.Join(tc.want, "; ") {
			t.Errorf("%d from %d: got %s\nwant %s", tc.limit, tc.offset, got, tc.want)
		}
	}
	four := s.begin(statev1.RunEntry_RUN_ENTRY_RESUME, "msg-4") // answers the last question
	s.current = four
	if got, want := answers(s, 3, 50), []string{hi("m3")}; strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("while it runs: got %s, want %s", got, want)
	}
	s.addText(four, 2)
	if got, want := answers(s, 3, 50), []string{hi("m3"), `msg-4 {"type":"text","text":"yes","state":"done"}`}; strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("answered again: got %s, want %s", got, want)
	}
}

func TestARunThatContinuesAndFailsShowsItsErrorInTheMessage(t *testing.T) {
	t.Parallel()
	s := &stored{}
	s.addCalls(s.begin(start, "msg-1"), 1, "c1")
	s.runs[0].Status, s.runs[0].StepCount = statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, 1
	second := s.begin(statev1.RunEntry_RUN_ENTRY_CONTINUATION, "msg-1")
	s.failNewestRun(second)
	want := `{"type":"data-error","id":"run-2","data":{"code":"x","error":"It broke."}}],"metadata":{"runId":"run-2"}}]`
	if got := s.body(t, 0, 50); !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s at its end", got, want)
	}
}

func TestAMessageOfAUserHasItsMetadataAsItWasSent(t *testing.T) {
	t.Parallel()
	s := &stored{}
	s.begin(start, "msg-1")
	for _, metadata := range []string{`{"b":1,"a":[null,1e3,"é"],"runId":"mine"}`, `null`, `"text"`, `0`, `[]`} {
		s.messages[0].UiMetadata = metadata
		if got, want := s.body(t, 0, 50), `,"metadata":`+metadata+`}]`; !strings.HasSuffix(got, want) {
			t.Errorf("got %s, want %s at its end", got, want)
		}
	}
}
