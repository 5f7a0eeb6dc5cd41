package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestInvalidStartsAreRefusedWithTheirReasons(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	many := func(n int) (list []string) {
		for range n {
			list = append(list, "x")
		}
		return list
	}
	pairs := map[string]string{}
	for i := range 65 {
		pairs[strings.Repeat("k", i+1)] = "v"
	}
	assistant := userMessage("hi")
	assistant.Role = eventv1.Role_ROLE_ASSISTANT
	call := userMessage("hi")
	call.Parts = append(call.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{}}})
	named := userMessage("hi")
	named.Id = strings.Repeat("é", 129)
	for name, c := range map[string]struct {
		change func(*statev1.StartRunRequest)
		kind   fault.Kind
		reason string
	}{
		"no tenant":           {func(r *statev1.StartRunRequest) { r.Tenant = "" }, fault.Invalid, "ID_INVALID"},
		"a long session id":   {func(r *statev1.StartRunRequest) { r.SessionId = strings.Repeat("x", 257) }, fault.Invalid, "ID_INVALID"},
		"a zero character":    {func(r *statev1.StartRunRequest) { r.SessionId = "a\x00b" }, fault.Invalid, "ID_INVALID"},
		"a line break":        {func(r *statev1.StartRunRequest) { r.RequestKey = "a\nb" }, fault.Invalid, "ID_INVALID"},
		"a control character": {func(r *statev1.StartRunRequest) { r.UserId = "\u0085" }, fault.Invalid, "ID_INVALID"},
		"a long message id":   {func(r *statev1.StartRunRequest) { r.Messages = []*eventv1.Message{named} }, fault.Invalid, "ID_INVALID"},
		"no message":          {func(r *statev1.StartRunRequest) { r.Messages = nil }, fault.Invalid, "MESSAGE_INVALID"},
		"an empty message":    {func(r *statev1.StartRunRequest) { r.Messages = []*eventv1.Message{userMessage(" \n")} }, fault.Invalid, "MESSAGE_INVALID"},
		"another role":        {func(r *statev1.StartRunRequest) { r.Messages = []*eventv1.Message{assistant} }, fault.Invalid, "MESSAGE_INVALID"},
		"a call of a user":    {func(r *statev1.StartRunRequest) { r.Messages = []*eventv1.Message{call} }, fault.Invalid, "MESSAGE_INVALID"},
		"a large message": {func(r *statev1.StartRunRequest) {
			r.Messages = []*eventv1.Message{userMessage(strings.Repeat("x", 1<<20))}
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		"a state that is a list": {func(r *statev1.StartRunRequest) { r.CustomState = "[]" }, fault.Invalid, "STATE_INVALID"},
		"a broken state":         {func(r *statev1.StartRunRequest) { r.CustomState = `{"a":` }, fault.Invalid, "STATE_INVALID"},
		"a large state":          {func(r *statev1.StartRunRequest) { r.CustomState = `{"a":"` + strings.Repeat("x", 1900<<10) + `"}` }, fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		"many tags":              {func(r *statev1.StartRunRequest) { r.Tags = many(65) }, fault.Invalid, "TAGS_INVALID"},
		"a long tag":             {func(r *statev1.StartRunRequest) { r.Tags = []string{strings.Repeat("x", 257)} }, fault.Invalid, "TAGS_INVALID"},
		"much metadata":          {func(r *statev1.StartRunRequest) { r.Metadata = pairs }, fault.Invalid, "METADATA_INVALID"},
		"an unknown agent":       {func(r *statev1.StartRunRequest) { r.AgentType = "nobody" }, fault.NotFound, "AGENT_NOT_FOUND"},
	} {
		r := startOf("s")
		c.change(r)
		_, err := b.runs.StartRun(t.Context(), r)
		if f, ok := fault.From(err); !ok || f.Kind != c.kind || f.Reason != c.reason {
			t.Errorf("%s: got %v, want %v (%s)", name, err, c.kind, c.reason)
		} else if c.reason == "AGENT_NOT_FOUND" && f.Meta["availableTypes"] != "support" {
			t.Errorf("%s: got metadata %v, want availableTypes", name, f.Meta)
		}
	}
	_, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"})
	b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestAStartThatCollidesIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	r := startOf("s")
	r.RequestKey = "k"
	r.Messages[0].Id = "m1"
	first, err := b.runs.StartRun(t.Context(), r)
	b.must(err)
	again, err := b.runs.StartRun(t.Context(), r)
	if err != nil || !again.GetRepeated() || again.GetRun().GetRunId() != first.GetRun().GetRunId() {
		t.Errorf("got %v, %v; want the first run, repeated", again, err)
	}
	reused := proto.CloneOf(r)
	reused.Messages = []*eventv1.Message{userMessage("something else")}
	_, err = b.runs.StartRun(t.Context(), reused)
	b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
	_, err = b.runs.StartRun(t.Context(), startOf("s"))
	b.refuses(err, fault.Conflict, "SESSION_BUSY")
	b.finish(refTo(s.execute()))
	r.RequestKey = ""
	if same, err := b.runs.StartRun(t.Context(), r); err != nil || !same.GetRepeated() || same.GetRun().GetRunId() != first.GetRun().GetRunId() {
		t.Errorf("got %v, %v; want the run of the message", same, err)
	}
	r.Messages[0].Parts = userMessage("something else").GetParts()
	_, err = b.runs.StartRun(t.Context(), r)
	b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
	other := startOf("s")
	other.AgentType = "sales"
	_, err = b.runs.StartRun(t.Context(), other)
	b.refuses(err, fault.Conflict, "AGENT_MISMATCH")
}

func TestAStartFillsInDefaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	r := startOf("")
	r.Traceparent = "not\na trace"
	r.Messages = append(r.Messages, userMessage("mine"))
	r.Messages[1].Id, r.Messages[1].CreatedAt, r.Messages[1].Metadata = "m1", 42, map[string]string{"k": "v"}
	started, err := b.runs.StartRun(t.Context(), r)
	b.must(err)
	id := started.GetSession().GetSessionId()
	if id == "" || !started.GetSessionCreated() || started.GetRun().GetMessageId() == "" || started.GetRun().GetTraceparent() != "" ||
		started.GetSession().GetCustomState() != "{}" || started.GetSession().GetRootSessionId() != id {
		t.Errorf("got %v", started)
	}
	page, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: id})
	b.must(err)
	made, mine := page.GetMessages()[0].GetMessage(), page.GetMessages()[1].GetMessage()
	if made.GetId() == "" || made.GetCreatedAt() == 0 || made.GetRunId() != started.GetRun().GetRunId() {
		t.Errorf("got message %v", made)
	}
	want := proto.CloneOf(r.Messages[1])
	want.RunId = started.GetRun().GetRunId()
	if !proto.Equal(mine, want) || page.GetMessages()[1].GetOrdinal() != 1 || page.GetTotal() != 2 || page.GetHasMore() {
		t.Errorf("got %v, want message %v as the second of two", page, want)
	}
}

func TestAStepGoesOverTheWireWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	b.start("s")
	ref := refTo(s.execute())
	plan := &eventv1.Message{Id: "a1", Role: eventv1.Role_ROLE_ASSISTANT, Parts: []*eventv1.Part{
		{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: "hm", ProviderData: `{"s":1}`}}},
		{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: "c1", ToolName: "add", Arguments: `{"a":1}`}}},
	}}
	tokens := []*eventv1.UsageEntry{{Entry: &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{Model: "m", PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 5}}, Source: "agent"}}
	record := &statev1.RecordPlanRequest{Run: ref, Step: 1, Plan: plan, Usage: tokens,
		Ops: []*statev1.StateOp{{Key: "n", Op: &statev1.StateOp_Replace{Replace: "1"}}, {Key: "asked", Op: &statev1.StateOp_Append{Append: `["x"]`}}}}
	_, err := b.work.RecordPlan(t.Context(), record)
	b.must(err)
	_, err = b.work.RecordPlan(t.Context(), record)
	b.must(err)
	result := &statev1.CallResult{
		Result: &eventv1.ToolResultPart{ToolCallId: "c1", ToolName: "add", Result: "3", Success: true},
		Ops: []*statev1.StateOp{
			{Key: "n", Op: &statev1.StateOp_Replace{Replace: "3"}}, {Key: "log", Op: &statev1.StateOp_Append{Append: `["x"]`}}, {Key: "gone", Op: &statev1.StateOp_Delete{Delete: true}},
		},
		Usage: []*eventv1.UsageEntry{{Entry: &eventv1.UsageEntry_Tool{Tool: &eventv1.ToolUsage{ToolName: "add", Success: true, DurationMs: 4}}, Source: "tool"}},
	}
	for _, repeated := range []bool{false, true} {
		answer, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: ref, Step: 1, Result: result})
		if err != nil || answer.GetRepeated() != repeated {
			t.Errorf("got %v, %v; want repeated %v", answer, err, repeated)
		}
	}
	_, err = b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: ref})
	b.must(err)
	b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
	claim := s.execute()
	want := &statev1.Journal{Step: 1, Plan: plan, Results: []*statev1.CallResult{result}, Usage: tokens, Ops: record.GetOps()}
	if !proto.Equal(claim.GetJournal(), want) {
		t.Errorf("got journal\n%v\nwant\n%v", claim.GetJournal(), want)
	}
	tool := &eventv1.Message{Id: "t1", Role: eventv1.Role_ROLE_TOOL, Step: 1, RunId: ref.RunId, CreatedAt: 5,
		Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolResult{ToolResult: result.Result}}}}
	commit := &statev1.CommitStepRequest{Run: refTo(claim), Step: 1, Messages: []*eventv1.Message{plan, tool}, Ops: record.GetOps()[1:],
		Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED, Output: `{"sum":3}`, CompletionReason: "stop_when"}}
	committed, err := b.work.CommitStep(t.Context(), commit)
	b.must(err)
	if committed.GetMessageCount() != 3 || committed.GetVersion() != 2 || !strings.HasPrefix(committed.GetCheckpointId(), "cpv1-s-s1-t") {
		t.Errorf("got %v", committed)
	}
	again, err := b.work.CommitStep(t.Context(), commit)
	if err != nil || !proto.Equal(again, committed) {
		t.Errorf("repetition: got %v, %v; want %v", again, err, committed)
	}
	got, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"})
	b.must(err)
	if got.GetSession().GetCustomState() != `{"n":3,"log":["x"],"asked":["x"]}` || got.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED ||
		got.GetCurrentRun().GetOutput() != `{"sum":3}` || got.GetCurrentRun().GetCompletionReason() != "stop_when" {
		t.Errorf("got %v", got)
	}
	page, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s", Offset: 2, Limit: 1})
	if err != nil || !proto.Equal(page.GetMessages()[0].GetMessage(), tool) {
		t.Errorf("got %v, %v; want %v", page, err, tool)
	}
}

func TestInvalidWritesAreRefusedWithTheirReasons(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	b.start("s")
	ref := refTo(s.execute())
	plan := func(role eventv1.Role, calls ...string) *eventv1.Message {
		m := &eventv1.Message{Id: "a1", Role: role}
		for _, id := range calls {
			m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id}}})
		}
		return m
	}
	record := func(m *eventv1.Message) error {
		_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: ref, Step: 1, Plan: m})
		return err
	}
	b.refuses(record(plan(eventv1.Role_ROLE_USER)), fault.Invalid, "MESSAGE_INVALID")
	b.refuses(record(plan(eventv1.Role_ROLE_ASSISTANT, "c1", "c1")), fault.Invalid, "MESSAGE_INVALID")
	b.refuses(record(plan(eventv1.Role_ROLE_ASSISTANT, "")), fault.Invalid, "ID_INVALID")
	b.must(record(plan(eventv1.Role_ROLE_ASSISTANT, "c1")))
	b.refuses(record(plan(eventv1.Role_ROLE_ASSISTANT, "c2")), fault.Stale, "PLAN_EXISTS")

	result := func(id, text string, ops ...*statev1.StateOp) error {
		_, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: ref, Step: 1,
			Result: &statev1.CallResult{Result: &eventv1.ToolResultPart{ToolCallId: id, Result: text}, Ops: ops}})
		return err
	}
	b.refuses(result("c2", ""), fault.Conflict, "CALL_UNKNOWN")
	b.refuses(result("c1", "{"), fault.Invalid, "RESULT_INVALID")
	b.refuses(result("c1", `"`+strings.Repeat("x", 1_000_000)+`"`), fault.TooLarge, "RESULT_TOO_LARGE")
	b.refuses(result("c1", "1", &statev1.StateOp{Key: "k"}), fault.Invalid, "STATE_INVALID")
	b.refuses(result("c1", "1", &statev1.StateOp{Key: "k", Op: &statev1.StateOp_Replace{Replace: "nope"}}), fault.Invalid, "STATE_INVALID")
	b.refuses(result("c1", "1", &statev1.StateOp{Key: "k", Op: &statev1.StateOp_Append{Append: `{}`}}), fault.Invalid, "STATE_INVALID")
	large := &statev1.StateOp{Key: "k", Op: &statev1.StateOp_Replace{Replace: `"` + strings.Repeat("x", 1_900_000) + `"`}}
	if f := b.refuses(result("c1", "1", large), fault.TooLarge, "STATE_SIZE_EXCEEDED"); f.Meta["changedKeys"] != "k" || f.Meta["limitBytes"] != "1887436" || f.Meta["sizeBytes"] == "" {
		t.Errorf("got metadata %v", f.Meta)
	}

	commit := func(step int32, o *statev1.Outcome, messages ...*eventv1.Message) error {
		_, err := b.work.CommitStep(t.Context(), &statev1.CommitStepRequest{Run: ref, Step: step, Outcome: o, Messages: messages})
		return err
	}
	b.refuses(commit(2, nil), fault.Stale, "STEP_STALE")
	b.refuses(commit(1, nil, &eventv1.Message{Id: "x"}), fault.Invalid, "MESSAGE_INVALID")
	b.refuses(commit(1, nil, userMessage("without an id")), fault.Invalid, "ID_INVALID")
	for _, o := range []*statev1.Outcome{
		{}, {Status: statev1.RunStatus_RUN_STATUS_RUNNING}, {Status: statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL},
		{Status: statev1.RunStatus_RUN_STATUS_FAILED}, {Status: statev1.RunStatus_RUN_STATUS_COMPLETED, Output: "{"},
	} {
		b.refuses(commit(1, o), fault.Invalid, "OUTCOME_INVALID")
		_, err := b.work.FinishRun(t.Context(), &statev1.FinishRunRequest{Run: ref, Outcome: o})
		b.refuses(err, fault.Invalid, "OUTCOME_INVALID")
	}
	old := proto.CloneOf(ref)
	old.Epoch--
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: old})
	b.refuses(err, fault.Stale, "EPOCH_STALE")
	_, err = b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{})
	b.refuses(err, fault.Invalid, "ID_INVALID")
}

func TestALongErrorIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	b.start("s")
	ref := refTo(s.execute())
	finish := &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_FAILED,
		Failure: &statev1.Failure{Error: strings.Repeat("é", 5000), Detail: "d", Code: "provider_rate_limited", Retryable: true}}}
	first, err := b.work.FinishRun(t.Context(), finish)
	b.must(err)
	again, err := b.work.FinishRun(t.Context(), finish)
	if err != nil || again.GetVersion() != first.GetVersion() {
		t.Errorf("repetition: got %v, %v; want %v", again, err, first)
	}
	run, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: ref.RunId})
	b.must(err)
	f := run.GetRun().GetFailure()
	if len(f.GetError()) > 8192 || !strings.HasSuffix(f.GetError(), "é…") || f.GetCode() != "provider_rate_limited" || !f.GetRetryable() || f.GetDetail() != "d" {
		t.Errorf("got a failure with an error of %d bytes, code %q, detail %q", len(f.GetError()), f.GetCode(), f.GetDetail())
	}
}

func TestReadsOfMissingThingsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.start("s")
	_, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: "nobody"})
	b.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
	_, err = b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "other", SessionId: "s", RunId: "nobody"})
	b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	_, err = b.runs.ListRuns(t.Context(), &statev1.ListRunsRequest{Tenant: "acme", SessionId: "s", Limit: 201})
	b.refuses(err, fault.Invalid, "LIMIT_INVALID")
	_, err = b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s", Offset: -1})
	b.refuses(err, fault.Invalid, "LIMIT_INVALID")
	_, err = b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "\xff"})
	if err == nil {
		t.Error("an id that is not UTF-8 was taken")
	}
}

func TestPagesSayWhetherThereIsMore(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.PageBytes = 100 })
	s := b.open("e1", 10)
	for range 3 {
		b.start("s")
		b.finish(refTo(s.execute()))
	}
	var turns []int32
	before := int32(0)
	for more := true; more; {
		page, err := b.runs.ListRuns(t.Context(), &statev1.ListRunsRequest{Tenant: "acme", SessionId: "s", Limit: 2, BeforeTurn: before})
		b.must(err)
		for _, r := range page.GetRuns() {
			turns, before = append(turns, r.GetTurn()), r.GetTurn()
		}
		more = page.GetHasMore()
	}
	if len(turns) != 3 || turns[0] != 3 || turns[2] != 1 {
		t.Errorf("got turns %v, want 3 2 1", turns)
	}
	count, offset := 0, int64(0)
	for more := true; more; {
		page, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s", Offset: offset})
		b.must(err)
		count += len(page.GetMessages())
		offset += int64(len(page.GetMessages()))
		more = page.GetHasMore()
		if page.GetTotal() != 3 {
			t.Errorf("got total %d, want 3", page.GetTotal())
		}
	}
	if count != 3 {
		t.Errorf("got %d messages over all pages, want 3", count)
	}
}

func TestAgentsAreListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	got, err := b.sessions.ListAgents(t.Context(), &statev1.ListAgentsRequest{})
	if err != nil || len(got.GetAgents()) != 1 || got.GetAgents()[0].GetAgentType() != "support" || got.GetAgents()[0].GetDescription() != "helps" {
		t.Errorf("got %v, %v", got, err)
	}
}
