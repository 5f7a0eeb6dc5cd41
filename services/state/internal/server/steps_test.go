package server

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func (b *bench) listSteps(change func(*statev1.ListStepsRequest)) *statev1.ListStepsResponse {
	b.Helper()
	r := &statev1.ListStepsRequest{Tenant: "acme", SessionId: "s"}
	change(r)
	got, err := b.sessions.ListSteps(b.Context(), r)
	b.must(err)
	return got
}

// recordOf returns a record with one event.
func recordOf(data string) *eventv1.StepRecord {
	return &eventv1.StepRecord{StartedAt: 5, Events: []*eventv1.StepEvent{
		{Timestamp: 6, Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}},
		{Timestamp: 7, Event: &eventv1.StepEvent_Custom{Custom: &eventv1.Custom{EventName: "e", Data: data, Id: "i"}}},
	}}
}

func TestStepsAreListedWithTheirMessagesAndRecords(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		first := b.start("s")
		if at := first.GetRun(); at.GetStartPosition() != 0 || first.GetSession().GetClaims() != 0 {
			t.Errorf("got a new run %v", at)
		}
		claim := s.execute()
		if claim.GetSession().GetClaims() != 1 || claim.GetSession().GetPosition() != 0 {
			t.Errorf("got a claim of %v, want the first one", claim.GetSession())
		}
		ref := refTo(claim)
		one, two := step(ref, 1), step(ref, 2)
		one.Record = recordOf(`{"a":1}`)
		usage := &eventv1.Usage{PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 5}
		two.Outcome = &statev1.Outcome{Status: completed, Output: `"done"`, Usage: usage}
		b.commit(one)
		if got := b.get("s").GetSession(); got.GetPosition() != position.Committed(1) || got.GetClaims() != 0 {
			t.Errorf("got %v after a step", got)
		}
		b.commit(two)
		got := b.listSteps(func(*statev1.ListStepsRequest) {})
		if len(got.GetSteps()) != 2 || got.GetHasMore() || got.GetStands() != 0 || len(got.GetRuns()) != 1 || got.GetRuns()[0].GetOutput() != "" {
			t.Fatalf("got %v", got)
		}
		step1, step2 := got.GetSteps()[0], got.GetSteps()[1]
		if !proto.Equal(step1.GetRecord(), one.GetRecord()) || len(step1.GetMessages()) != 1 || step1.GetMessages()[0].GetId() != one.GetMessages()[0].GetId() ||
			!step1.GetBeginsRun() || step1.GetFollows() != 0 || step1.GetStep() != 1 || step1.GetRunId() != ref.GetRunId() || step1.GetCheckpointId() == "" || step1.GetCommittedAt() == 0 {
			t.Errorf("got the step %v", step1)
		}
		if step2.GetRecord() != nil || step2.GetFollows() != 1 || step2.GetBeginsRun() || step2.GetMessages()[0].GetStep() != 2 {
			t.Errorf("got the step %v", step2)
		}
		run, session := got.GetCurrentRun(), got.GetSession()
		if run.GetEndPosition() != position.Ended(2) || run.GetFinishStep() != 2 || !proto.Equal(run.GetUsage(), usage) || run.GetOutput() != `"done"` {
			t.Errorf("got the newest run %v", run)
		}
		if session.GetPosition() != position.Ended(2) || session.GetCustomState() != "" || session.GetSessionId() != "s" {
			t.Errorf("got the session %v", session)
		}
		alone, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: ref.GetRunId()})
		b.must(err)
		if !proto.Equal(alone.GetRun(), run) {
			t.Errorf("got %v alone, want %v", alone.GetRun(), run)
		}
		page := b.listSteps(func(r *statev1.ListStepsRequest) { r.Limit = 1 })
		if len(page.GetSteps()) != 1 || !page.GetHasMore() {
			t.Errorf("got %v, want one step and more", page)
		}
		rest := b.listSteps(func(r *statev1.ListStepsRequest) { r.AfterStep, r.RunId = 1, ref.GetRunId() })
		if len(rest.GetSteps()) != 1 || rest.GetSteps()[0].GetFollows() != 1 || rest.GetStands() != 1 {
			t.Errorf("got %v, want the second step", rest)
		}
	})
}

func TestAPageOfStepsIsCutWhereItWouldBeTooLarge(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.PageBytes = 1000 })
	s := b.open("e1", 10)
	b.start("s")
	ref := refTo(s.execute())
	for n, size := range []int{2000, 300, 300, 300} {
		commit := step(ref, int32(n)+1)
		commit.Record = recordOf(text(size))
		b.commit(commit)
	}
	var pages []int
	for after := int32(0); ; {
		page := b.listSteps(func(r *statev1.ListStepsRequest) { r.AfterStep = after })
		pages = append(pages, len(page.GetSteps()))
		if !page.GetHasMore() {
			break
		}
		after = page.GetSteps()[len(page.GetSteps())-1].GetStep()
	}
	if len(pages) != 3 || pages[0] != 1 || pages[1] != 2 || pages[2] != 1 {
		t.Errorf("got pages of %v steps, want 1, 2 and 1", pages)
	}
}

func TestARecordIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 10)
	b.start("s")
	ref := refTo(s.execute())
	commit := step(ref, 1)
	commit.Record = recordOf("")
	commit.Record = recordOf(text(maxRecordBytes - proto.Size(commit.GetRecord()) - 12)) // the lengths of its fields grow too
	for proto.Size(commit.GetRecord()) <= maxRecordBytes {
		commit.Record.Events[1].GetCustom().EventName += "e"
	}
	_, err := b.work.CommitStep(t.Context(), commit)
	b.refuses(err, fault.Invalid, "RECORD_TOO_LARGE")
	commit.Record.Events[1].GetCustom().EventName = commit.Record.Events[1].GetCustom().EventName[1:]
	b.commit(commit)
}

func TestTheClientsDataOfAMessageAreReturned(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]struct {
		set func(*eventv1.Message, string)
		get func(*eventv1.Message) string
	}{
		"metadata": {func(m *eventv1.Message, text string) { m.UiMetadata = text }, (*eventv1.Message).GetUiMetadata},
		"parts":    {func(m *eventv1.Message, text string) { m.UiParts = text }, (*eventv1.Message).GetUiParts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.announce()
			start := func(id, data string) error {
				r := startOf(id)
				r.Messages[0].Id = "u1"
				field.set(r.Messages[0], data)
				_, err := b.runs.StartRun(t.Context(), r)
				return err
			}
			for _, bad := range []string{"{", `{} {}`, text(maxUIMetadata + 1)} {
				b.refuses(start("s", bad), fault.Invalid, "METADATA_INVALID")
			}
			for _, good := range []string{"", `{"a":[1]}`, "null", text(maxUIMetadata)} {
				b.must(start("", good))
			}
			b.must(start("s", `{"a":1}`))
			b.must(start("s", `{"a":1}`))                                    // the same message again
			b.refuses(start("s", `{"a":2}`), fault.Conflict, "SESSION_BUSY") // another message
			page, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s"})
			b.must(err)
			if got := field.get(page.GetMessages()[0].GetMessage()); got != `{"a":1}` {
				t.Errorf("got %q, want what was kept", got)
			}
			message := &eventv1.Message{Role: eventv1.Role_ROLE_USER, Parts: userMessage("x").GetParts()}
			field.set(message, "?")
			_, err = b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{message}})
			b.refuses(err, fault.Invalid, "METADATA_INVALID")
		})
	}
}

func TestAListOfStepsIsAskedForAsItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.create("s")
	b.refusesAll([]refusal{
		{"SessionService/ListSteps", &statev1.ListStepsRequest{Tenant: "acme", SessionId: "nobody"}, fault.NotFound, "SESSION_NOT_FOUND"},
		{"SessionService/ListSteps", &statev1.ListStepsRequest{Tenant: "acme", SessionId: "s", Limit: 201}, fault.Invalid, "LIMIT_INVALID"},
		{"SessionService/ListSteps", &statev1.ListStepsRequest{Tenant: "acme", SessionId: "s", AfterStep: -1}, fault.Invalid, "STEP_INVALID"},
		{"SessionService/ListSteps", &statev1.ListStepsRequest{Tenant: "acme", SessionId: "s", RunId: "\n"}, fault.Invalid, "ID_INVALID"},
		{"SessionService/ListSteps", &statev1.ListStepsRequest{Tenant: "acme"}, fault.Invalid, "ID_INVALID"},
	})
	if got := b.listSteps(func(*statev1.ListStepsRequest) {}); got.GetCurrentRun() != nil || len(got.GetSteps()) > 0 || got.GetSession() == nil {
		t.Errorf("got %v of a session without runs", got)
	}
}
