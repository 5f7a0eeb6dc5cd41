package server

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// small sets limits within reach of a test.
func small(c *Config) {
	c.Limits.MessageBytes, c.Limits.ResultBytes, c.Limits.StepBytes = 200, 100, 1000
	c.Limits.StateBytes, c.Limits.StagedBytes, c.Limits.ErrorBytes = 120, 60, 50
	c.Limits.Waiting, c.Limits.Messages = 2, 5
	c.Limits.Calls, c.Limits.UsageEntries, c.Limits.MemoryBytes = 3, 4, 40
	c.Limits.Tags, c.Limits.TagBytes, c.Limits.TitleBytes, c.Limits.Metadata, c.Limits.MetadataBytes = 3, 10, 12, 2, 12
}

// sized returns a message of n bytes on the wire.
func sized(role eventv1.Role, id string, bytes int) *eventv1.Message {
	m := said(role, id, "x")
	for proto.Size(m) < bytes {
		m.Parts[0].GetText().Text += "x"
	}
	return m
}

func xs(n int) string { return strings.Repeat("x", n) }

// text returns a JSON text of n bytes.
func text(n int) string { return `"` + xs(n-2) + `"` }

func tokens(n int) (list []*eventv1.UsageEntry) {
	for range n {
		list = append(list, &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{Model: "m", TotalTokens: 1}}})
	}
	return list
}

// edge is a limit of a request: the limit is accepted, one more is refused.
type edge struct {
	name   string
	most   int
	send   func(b *bench, n int) error
	kind   fault.Kind
	reason string
}

func (e edge) check(b *bench) {
	b.Helper()
	err := e.send(b, e.most+1)
	if f, ok := fault.From(err); !ok || f.Kind != e.kind || f.Reason != e.reason {
		b.Errorf("%s, %d: got %v, want %v (%s)", e.name, e.most+1, err, e.kind, e.reason)
	}
	if err := e.send(b, e.most); err != nil {
		b.Errorf("%s, %d: got %v, want it taken", e.name, e.most, err)
	}
}

func createWith(change func(*statev1.CreateSessionRequest)) func(*bench) error {
	return func(b *bench) error {
		r := &statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support"}
		change(r)
		_, err := b.sessions.CreateSession(b.Context(), r)
		return err
	}
}

func TestLimitsOfSessionsAndMessagesHoldAtTheirEdge(t *testing.T) {
	t.Parallel()
	b := newBench(t, small)
	b.announce()
	b.create("s")
	b.create("kept")
	tags := func(n int) (list []string) {
		for i := range n {
			list = append(list, strconv.Itoa(i))
		}
		return list
	}
	pairs := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[strconv.Itoa(i)] = "v"
		}
		return m
	}
	for _, e := range []edge{
		{"id bytes", 256, func(b *bench, n int) error {
			return createWith(func(r *statev1.CreateSessionRequest) { r.SessionId = xs(n) })(b)
		}, fault.Invalid, "ID_INVALID"},
		{"tags", 3, func(b *bench, n int) error {
			return createWith(func(r *statev1.CreateSessionRequest) { r.Tags = tags(n) })(b)
		}, fault.Invalid, "TAGS_INVALID"},
		{"tag bytes", 10, func(b *bench, n int) error {
			return createWith(func(r *statev1.CreateSessionRequest) { r.Tags = []string{xs(n)} })(b)
		}, fault.Invalid, "TAGS_INVALID"},
		{"metadata", 2, func(b *bench, n int) error {
			return createWith(func(r *statev1.CreateSessionRequest) { r.Metadata = pairs(n) })(b)
		}, fault.Invalid, "METADATA_INVALID"},
		{"metadata bytes", 12, func(b *bench, n int) error {
			return createWith(func(r *statev1.CreateSessionRequest) { r.Metadata = map[string]string{"k": xs(n)} })(b)
		}, fault.Invalid, "METADATA_INVALID"},
		{"tags of an update", 3, func(b *bench, n int) error {
			_, err := b.sessions.UpdateSession(b.Context(), &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "s", Tags: &statev1.Tags{Tags: tags(n)}})
			return err
		}, fault.Invalid, "TAGS_INVALID"},
		{"title bytes", 12, func(b *bench, n int) error {
			title := xs(n)
			_, err := b.sessions.UpdateSession(b.Context(), &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "s", Title: &title})
			return err
		}, fault.Invalid, "TITLE_INVALID"},
		{"first state bytes", 120, func(b *bench, n int) error {
			return createWith(func(r *statev1.CreateSessionRequest) { r.CustomState = `{"k":` + text(n-6) + `}` })(b)
		}, fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		{"saved state bytes", 120, func(b *bench, n int) error {
			_, err := b.sessions.SaveState(b.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: `{"k":` + text(n-6) + `}`})
			return err
		}, fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		{"staged bytes of a merge", 60, func(b *bench, n int) error {
			_, err := b.sessions.MergeState(b.Context(), &statev1.MergeStateRequest{Tenant: "acme", SessionId: "kept", Ops: []*statev1.StateOp{{Key: "k", Op: &statev1.StateOp_Replace{Replace: text(n - 1)}}}})
			return err
		}, fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		{"bytes of a user message", 200, func(b *bench, n int) error {
			r := startOf("")
			r.Messages = []*eventv1.Message{sized(eventv1.Role_ROLE_USER, "m", n)}
			_, err := b.runs.StartRun(b.Context(), r)
			return err
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		{"timeout", 30 * 86_400_000, func(b *bench, n int) error {
			r := startOf("")
			r.TimeoutMs = int64(n)
			_, err := b.runs.StartRun(b.Context(), r)
			return err
		}, fault.Invalid, "TIMEOUT_INVALID"},
		{"bytes of a message that is appended by a start", 200, func(b *bench, n int) error {
			r := startOf("s")
			resumeOf(r).AppendMessages = []*eventv1.Message{sized(eventv1.Role_ROLE_SYSTEM, "m", n)}
			_, err := b.runs.StartRun(b.Context(), r)
			return err
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		{"bytes of an appended message", 200, func(b *bench, n int) error {
			_, err := b.sessions.AppendMessages(b.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{sized(eventv1.Role_ROLE_SYSTEM, "", n)}})
			return err
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		{"bytes of a reason", 50, func(b *bench, n int) error {
			_, err := b.runs.RequestStop(b.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: xs(n)})
			return err
		}, fault.Invalid, "STOP_INVALID"},
		{"usage entries", 4, func(b *bench, n int) error {
			_, err := b.usage.RecordUsage(b.Context(), &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Usage: tokens(n)})
			return err
		}, fault.Invalid, "USAGE_INVALID"},
		{"memory bytes", 40, func(b *bench, n int) error {
			_, err := b.memories.AddMemory(b.Context(), &statev1.AddMemoryRequest{Tenant: "acme", Memory: &statev1.Memory{Text: xs(n)}})
			return err
		}, fault.TooLarge, "MEMORY_TOO_LARGE"},
		{"bytes of a query", 40, func(b *bench, n int) error {
			_, err := b.memories.SearchMemories(b.Context(), &statev1.SearchMemoriesRequest{Tenant: "acme", Query: xs(n)})
			return err
		}, fault.TooLarge, "MEMORY_TOO_LARGE"},
		{"page", 200, func(b *bench, n int) error {
			_, err := b.sessions.ListSessions(b.Context(), &statev1.ListSessionsRequest{Tenant: "acme", Limit: int32(n)})
			return err
		}, fault.Invalid, "LIMIT_INVALID"},
		{"remote bytes", 12, func(b *bench, n int) error {
			_, err := b.sessions.PutSubSession(b.Context(), &statev1.PutSubSessionRequest{Tenant: "acme", SessionId: "s", SubSession: &statev1.SubSession{
				SessionId: "far", Status: active, Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE, Remote: text(n)}})
			return err
		}, fault.Invalid, "SUB_SESSION_INVALID"},
		{"sessions of a query", 1000, func(b *bench, n int) error {
			_, err := b.usage.QueryUsage(b.Context(), &statev1.QueryUsageRequest{Tenant: "acme", SessionIds: strings.Split(strings.Repeat("s,", n-1)+"s", ",")})
			return err
		}, fault.Invalid, "QUERY_INVALID"},
		{"sessions to expire", 100_000, func(b *bench, n int) error {
			_, err := b.operator.ExpireSessions(b.Context(), &statev1.ExpireSessionsRequest{Limit: int32(n)})
			return err
		}, fault.Invalid, "LIMIT_INVALID"},
	} {
		e.check(b)
	}
}

func TestLimitsOfStepsHoldAtTheirEdge(t *testing.T) {
	t.Parallel()
	b := newBench(t, small)
	s := b.open("e1", 100)
	number := 0
	claimed := func() *statev1.RunRef {
		number++
		id := fmt.Sprint("s", number)
		b.start(id)
		for {
			if ref := refTo(s.execute()); ref.GetSessionId() == id { // others are continuations
				return ref
			}
		}
	}
	planned := func(callIDs ...string) *statev1.RunRef {
		ref := claimed()
		plan := &eventv1.Message{Id: "p", Role: eventv1.Role_ROLE_ASSISTANT}
		for _, id := range callIDs {
			plan.Parts = append(plan.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id}}})
		}
		_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: ref, Step: 1, Plan: plan})
		b.must(err)
		return ref
	}
	commit := func(change func(*statev1.CommitStepRequest)) error {
		r := suspendingStep(claimed(), 1, "c1")
		r.Calls[0].Input = ""
		change(r)
		_, err := b.work.CommitStep(t.Context(), r)
		return err
	}
	record := func(result *eventv1.ToolResultPart, ops ...*statev1.StateOp) error {
		result.ToolCallId = "c1"
		_, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: planned("c1"), Step: 1, Result: &statev1.CallResult{Result: result, Ops: ops}})
		return err
	}
	submit := func(answer *statev1.CallAnswer) error {
		r := suspendingStep(claimed(), 1, "c1")
		if answer.GetApproval() != nil {
			r.Calls[0].Kind, r.Calls[0].ApprovalId = statev1.CallKind_CALL_KIND_APPROVAL, "a"
		}
		b.commit(r)
		_, err := b.calls.SubmitCall(t.Context(), submitOf(r.GetRun().GetSessionId(), "c1", answer))
		return err
	}
	for _, e := range []edge{
		{"bytes of a plan", 200, func(b *bench, n int) error {
			_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: claimed(), Step: 1, Plan: sized(eventv1.Role_ROLE_ASSISTANT, "p", n)})
			return err
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		{"bytes of a plan's state writes", 60, func(b *bench, n int) error {
			_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: claimed(), Step: 1, Plan: sized(eventv1.Role_ROLE_ASSISTANT, "p", 20),
				Ops: []*statev1.StateOp{{Key: "k", Op: &statev1.StateOp_Replace{Replace: text(n - 1)}}}})
			return err
		}, fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		{"bytes of a result", 100, func(b *bench, n int) error { return record(&eventv1.ToolResultPart{Result: text(n)}) }, fault.TooLarge, "RESULT_TOO_LARGE"},
		{"bytes of a result's state writes", 60, func(b *bench, n int) error {
			return record(&eventv1.ToolResultPart{}, &statev1.StateOp{Key: "k", Op: &statev1.StateOp_Replace{Replace: text(n - 1)}})
		}, fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		{"bytes of a committed message", 1000, func(b *bench, n int) error {
			return commit(func(r *statev1.CommitStepRequest) {
				r.Messages = []*eventv1.Message{sized(eventv1.Role_ROLE_ASSISTANT, "m", n)}
			})
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		{"calls", 3, func(b *bench, n int) error {
			return commit(func(r *statev1.CommitStepRequest) {
				r.Calls = nil
				for i := range n {
					r.Calls = append(r.Calls, &statev1.Call{ToolCallId: fmt.Sprint("c", i), ToolName: "x", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL})
				}
			})
		}, fault.Invalid, "CALL_INVALID"},
		{"bytes of a call's input", 200, func(b *bench, n int) error {
			return commit(func(r *statev1.CommitStepRequest) { r.Calls[0].Input = text(n) })
		}, fault.TooLarge, "MESSAGE_TOO_LARGE"},
		{"sub-sessions of a step", 3, func(b *bench, n int) error {
			return commit(func(r *statev1.CommitStepRequest) {
				for i := range n {
					r.SubSessions = append(r.SubSessions, &statev1.SubSession{SessionId: fmt.Sprint("far", i), Status: active, Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE})
				}
			})
		}, fault.Invalid, "SUB_SESSION_INVALID"},
		{"usage of a step", 4, func(b *bench, n int) error {
			return commit(func(r *statev1.CommitStepRequest) { r.Usage = tokens(n) })
		}, fault.Invalid, "USAGE_INVALID"},
		{"bytes of an answer", 100, func(b *bench, n int) error { return submit(result(text(n))) }, fault.TooLarge, "RESULT_TOO_LARGE"},
		{"bytes of an answer's error", 50, func(b *bench, n int) error {
			return submit(&statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: xs(n)}})
		}, fault.TooLarge, "RESULT_TOO_LARGE"},
		{"bytes of an approval's reason", 50, func(b *bench, n int) error {
			return submit(&statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "a", Reason: xs(n)}}})
		}, fault.TooLarge, "RESULT_TOO_LARGE"},
		{"delay", 86_400_000, func(b *bench, n int) error {
			_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: claimed(), DelayMs: int64(n)})
			return err
		}, fault.Invalid, "DELAY_INVALID"},
	} {
		e.check(b)
	}
}

func TestAJournalIsBoundedWithItsStateWritesAndItsUsage(t *testing.T) {
	t.Parallel()
	b := newBench(t, small, func(c *Config) { c.Limits.ResultBytes = 2000 })
	s := b.open("e1", 10)
	b.start("s")
	ref := refTo(s.execute())
	plan := &eventv1.Message{Id: "p", Role: eventv1.Role_ROLE_ASSISTANT}
	for _, id := range []string{"c1", "c2", "c3", "c4"} {
		plan.Parts = append(plan.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id}}})
	}
	_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: ref, Step: 1, Plan: plan, Ops: []*statev1.StateOp{
		{Key: "p", Op: &statev1.StateOp_Replace{Replace: text(40)}},
	}})
	b.must(err)
	record := func(id string, n int, usage int) error {
		_, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: ref, Step: 1, Result: &statev1.CallResult{
			Result: &eventv1.ToolResultPart{ToolCallId: id, Result: text(n)}, Usage: tokens(usage),
			Ops: []*statev1.StateOp{{Key: "k", Op: &statev1.StateOp_Replace{Replace: text(40)}}},
		}})
		return err
	}
	b.must(record("c1", 300, 0))
	b.must(record("c2", 300, 0))
	b.refuses(record("c3", 200, 4), fault.TooLarge, "RESULT_TOO_LARGE")
	b.refuses(record("c3", 900, 0), fault.TooLarge, "RESULT_TOO_LARGE")
	b.must(record("c3", 100, 0))
	b.refuses(record("c4", 55, 0), fault.TooLarge, "RESULT_TOO_LARGE")
}

func TestAPlanThatIsTooLargeWithItsStateWritesIsTakenWithoutThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, small, func(c *Config) { c.Limits.StepBytes = 110 })
	s := b.open("e1", 10)
	b.start("s")
	r := &statev1.RecordPlanRequest{Run: refTo(s.execute()), Step: 1, Plan: sized(eventv1.Role_ROLE_ASSISTANT, "p", 80)}
	r.Ops = []*statev1.StateOp{{Key: "k", Op: &statev1.StateOp_Replace{Replace: text(40)}}}
	_, err := b.work.RecordPlan(t.Context(), r)
	b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
	r.Ops = []*statev1.StateOp{{Key: "k", Op: &statev1.StateOp_Replace{Replace: "half"}}}
	_, err = b.work.RecordPlan(t.Context(), r)
	b.refuses(err, fault.Invalid, "STATE_INVALID")
	r.Ops = nil
	_, err = b.work.RecordPlan(t.Context(), r)
	b.must(err)
}

func TestTheAnswersThatASessionHasNotReadAreBounded(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(small, func(c *Config) { c.Limits.ResultBytes = 900 })
		s := b.open("e1", 10)
		s.suspend("s", "c1", "c2")
		b.submit("s", "c1", result(text(900)))
		_, err := b.calls.SubmitCall(t.Context(), submitOf("s", "c2", result(text(200))))
		b.refuses(err, fault.TooLarge, "RESULT_TOO_LARGE")
		if got := b.submit("s", "c2", result(text(20))); got.GetContinuation() != newRun {
			t.Errorf("got %v, want a smaller answer taken", got)
		}
	})
}

func TestAStateThatGrowsTooLargeNamesTheKeys(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(small)
		b.announce()
		b.create("s")
		merge := func(key string) error {
			_, err := b.sessions.MergeState(t.Context(), &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", Ops: []*statev1.StateOp{
				{Key: key, Op: &statev1.StateOp_Replace{Replace: text(50)}}, {Key: "gone", Op: &statev1.StateOp_Delete{Delete: true}},
			}})
			return err
		}
		b.must(merge("a"))
		b.must(merge("b"))
		f := b.refuses(merge("c"), fault.TooLarge, "STATE_SIZE_EXCEEDED")
		if f.Meta["changedKeys"] != "c,gone" || f.Meta["limitBytes"] != "120" || f.Meta["sizeBytes"] == "" {
			t.Errorf("got metadata %v", f.Meta)
		}
	})
}

func TestTheMessagesOfARequestHaveALimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, small)
	b.announce()
	b.create("s")
	many := func(n int) (list []*eventv1.Message) {
		for range n {
			list = append(list, userMessage("x"))
		}
		return list
	}
	start := func(change func(r *statev1.StartRunRequest, list []*eventv1.Message)) func(b *bench, n int) error {
		return func(b *bench, n int) error {
			r := &statev1.StartRunRequest{Tenant: "acme", AgentType: "support"}
			change(r, many(n))
			_, err := b.runs.StartRun(b.Context(), r)
			if fault.ReasonOf(err) == "SESSION_NOT_FOUND" { // the messages have passed
				return nil
			}
			return err
		}
	}
	for _, e := range []edge{
		{name: "messages to append", send: func(b *bench, n int) error {
			_, err := b.sessions.AppendMessages(b.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: many(n)})
			return err
		}},
		{name: "messages of a start", send: start(func(r *statev1.StartRunRequest, list []*eventv1.Message) { r.Messages = list })},
		{name: "messages of a resume", send: start(func(r *statev1.StartRunRequest, list []*eventv1.Message) {
			r.Intent = &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{AppendMessages: list}}
		})},
		{name: "messages of a retry", send: start(func(r *statev1.StartRunRequest, list []*eventv1.Message) {
			r.Intent = &statev1.StartRunRequest_Retry{Retry: &statev1.Retry{AppendMessages: list}}
		})},
		{name: "messages of a branch", send: start(func(r *statev1.StartRunRequest, list []*eventv1.Message) {
			r.Intent = &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{FromSessionId: "none", CheckpointId: "none", AppendMessages: list}}
		})},
	} {
		e.most, e.kind, e.reason = 5, fault.TooLarge, "TOO_MANY_MESSAGES"
		e.check(b)
		f, _ := fault.From(e.send(b, 6))
		if f == nil || f.Meta["limit"] != "5" || f.Meta["count"] != "6" {
			t.Errorf("%s: got %+v, want the count and the limit", e.name, f)
		}
	}
}
