package snapshot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// open is a call that somebody outside answers, and what it comes to.
type open struct {
	call   *statev1.Call
	answer *statev1.CallAnswer
	result *eventv1.ToolResultPart
}

// leave has the model make calls that others answer: of a client tool, and two that wait
// for a yes, of which one is refused.
func (s *story) leave(number int32, answer *eventv1.Message) {
	for _, kind := range []string{"locate", "pay", "delete"} {
		s.calls++
		o := s.newOpen(fmt.Sprintf("call-%d", s.calls), kind, number)
		s.open = append(s.open, o)
		answer.Parts = append(answer.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{
			ToolCallId: o.call.GetToolCallId(), ToolName: kind, Arguments: o.call.GetInput(),
		}}})
		for _, c := range append(callChunks(o.call.GetToolCallId(), kind, o.call.GetInput()), o.questions()...) {
			s.tell(number, c)
		}
	}
}

func (s *story) newOpen(id, kind string, number int32) *open {
	o := &open{
		call: &statev1.Call{
			ToolCallId: id, SessionId: "s", RunId: s.run.GetRunId(), Step: number, ToolName: kind, Input: `{"a":1}`,
			Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "approval-" + id,
		},
		result: &eventv1.ToolResultPart{ToolCallId: id, ToolName: kind, Success: kind != "delete", Result: `"done"`},
	}
	if kind == "locate" {
		o.call.Kind, o.call.ApprovalId = statev1.CallKind_CALL_KIND_CLIENT_TOOL, ""
		o.answer = &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: o.result.GetResult()}}
		return o
	}
	verdict := &eventv1.ApprovalVerdict{ApprovalId: o.call.GetApprovalId(), Approved: kind == "pay"}
	if kind == "delete" {
		o.result.Result, o.result.Error, verdict.Reason = "", "refused: too dear", "too dear"
	}
	o.result.Approval = verdict
	o.answer = &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{
		ApprovalId: verdict.GetApprovalId(), Approved: verdict.GetApproved(), Reason: verdict.GetReason(),
	}}}
	return o
}

// questions ask for a yes, where the call waits for one.
func (o *open) questions() []*eventv1.Chunk {
	if o.call.GetApprovalId() == "" {
		return nil
	}
	return []*eventv1.Chunk{{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{
		ToolCallId: o.call.GetToolCallId(), ToolName: o.call.GetToolName(), ApprovalId: o.call.GetApprovalId(), Input: o.call.GetInput(),
	}}}}
}

// suspend ends the run with what it has left to others.
func (s *story) suspend() {
	s.run.Status = statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL
	s.now.session.Status = statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL
	for _, o := range s.open {
		s.now.calls = append(s.now.calls, o.call)
	}
}

// answer answers what the run has left open, one by one. The last answer queues the run
// that goes on in the same message.
func (s *story) answer(suspended *statev1.Run) *statev1.Run {
	session := s.now.session
	for _, o := range s.open[:len(s.open)-1] {
		o.call.Answer, o.call.AnsweredAt = o.answer, 1
		session.Version++
		s.mark()
	}
	last := s.open[len(s.open)-1]
	last.call.Answer, last.call.AnsweredAt = last.answer, 1
	turn := int32(len(s.now.runs) + 1)
	run := &statev1.Run{
		RunId: fmt.Sprintf("run-%d", turn), SessionId: "s", Turn: turn, Status: statev1.RunStatus_RUN_STATUS_QUEUED,
		MessageId: suspended.GetMessageId(), Entry: statev1.RunEntry_RUN_ENTRY_CONTINUATION,
	}
	s.now.runs = append(s.now.runs, run)
	session.Version++
	session.Turn, session.CurrentRunId, session.Status = turn, run.GetRunId(), statev1.SessionStatus_SESSION_STATUS_ACTIVE
	s.mark()
	return run
}

// giveUp has the user write again instead of answering but for one of the approvals.
func (s *story) giveUp() *statev1.Run {
	run := s.ask()
	for _, o := range s.open {
		o.call.AnsweredAt = 1
		if o.call.GetToolName() == "pay" {
			o.call.Answer = o.answer
			continue
		}
		o.call.Answer = &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "abandoned"}, Source: statev1.AnswerSource_ANSWER_SOURCE_ABANDONED}
		o.result = &eventv1.ToolResultPart{ToolCallId: o.call.GetToolCallId(), ToolName: o.call.GetToolName(), Error: "abandoned"}
	}
	s.mark()
	return run
}

// drain tells how the calls have ended, and commits that: a step without a model.
func (s *story) drain(number int32) {
	tools := &eventv1.Message{Role: eventv1.Role_ROLE_TOOL}
	for _, o := range s.open {
		tools.Parts = append(tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: o.result}})
	}
	for range s.choose("lost in drains", 2) {
		chunks := chunksOf(tools)
		for _, c := range chunks[:1+s.choose("ends of the drain", len(chunks))] {
			s.tell(number, c)
		}
		s.current = slices.DeleteFunc(s.current, func(c *eventv1.Chunk) bool { return c.GetStep() == number })
		s.takeBack(number - 1)
	}
	for _, c := range chunksOf(tools) {
		s.tell(number, c)
	}
	for _, o := range s.open {
		o.call.ConsumedAt = 2
	}
	s.open = nil
	s.commit(number, []*eventv1.Message{tools}, false)
}

// lastIs gives the condition that a chunk like this was told last.
func lastIs(like func(*eventv1.Chunk) bool) func(*moment) bool {
	return func(m *moment) bool {
		return len(m.log) > 0 && m.log[len(m.log)-1].chunk != nil && like(m.log[len(m.log)-1].chunk)
	}
}

func TestCallsThatOthersAnswerAreInTheSnapshotAsTheyAreKnown(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(map[string]int{"asks": 1}), false)
	suspended := func(m *moment) bool {
		return m.session.GetStatus() == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL && m.current().GetSettled()
	}
	for name, c := range map[string]struct {
		when         func(*moment) bool
		want, status string
		pending      int
	}{
		"all are open": {suspended, "locate input-available, pay approval-requested ?, delete approval-requested ?", "paused", 3},
		"one is answered": {
			func(m *moment) bool { return suspended(m) && m.calls[0].GetAnswer() != nil },
			`locate output-available "done", pay approval-requested ?, delete approval-requested ?`, "paused", 3,
		},
		"all are answered, and nothing runs yet": {
			func(m *moment) bool { return len(m.runs) == 2 },
			`locate output-available "done", pay approval-responded true, delete approval-responded false too dear`, "active", 3,
		},
		"the run that goes on has begun": {
			lastIs(func(c *eventv1.Chunk) bool { return c.GetRunResumed() != nil }),
			`locate output-available "done", pay approval-responded true, delete approval-responded false too dear`, "active", 3,
		},
		"it has told some ends": {
			lastIs(func(c *eventv1.Chunk) bool { return c.GetToolEnd().GetToolName() == "pay" }),
			`locate output-available "done", pay output-available "done" true, delete approval-responded false too dear`, "active", 3,
		},
		"it has committed them": {
			func(m *moment) bool { return len(m.runs) == 2 && m.runs[1].GetStepCount() == 1 },
			`locate output-available "done", pay output-available "done" true, delete output-denied false too dear`, "active", 0,
		},
		"the model speaks again": {
			func(m *moment) bool { return len(m.runs) == 2 && said("step ")(m) },
			`locate output-available "done", pay output-available "done" true, delete output-denied false too dear`, "active", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := now(t, s.when(t, c.when))
			if calls := callsIn(got.Messages[1]); calls != c.want {
				t.Errorf("got  %s\nwant %s", calls, c.want)
			}
			if got.Status != c.status || len(got.Pending) != c.pending {
				t.Errorf("got status %s and %d pending calls, want %s and %d", got.Status, len(got.Pending), c.status, c.pending)
			}
		})
	}
}

func TestCallsThatAreGivenUpEndInTheirMessage(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(map[string]int{"asks": 1, "answers": 1}), false)
	for name, c := range map[string]struct {
		when func(*moment) bool
		want string
	}{
		"the user has written": {
			func(m *moment) bool { return len(m.runs) == 2 && m.calls[2].GetAnswer() != nil },
			`locate output-error abandoned, pay approval-responded true, delete output-error abandoned`,
		},
		"some ends are told": {
			lastIs(func(c *eventv1.Chunk) bool { return c.GetToolEnd().GetToolName() == "locate" }),
			`locate output-error abandoned, pay approval-responded true, delete output-error abandoned`,
		},
		"all are told": {
			lastIs(func(c *eventv1.Chunk) bool { return c.GetToolEnd().GetToolName() == "delete" }),
			`locate output-error abandoned, pay output-available "done" true, delete output-error abandoned`,
		},
		"they are committed": {
			func(m *moment) bool { return len(m.runs) == 2 && m.runs[1].GetStepCount() == 1 },
			`locate output-error abandoned, pay output-available "done" true, delete output-error abandoned`,
		},
		"the model speaks again": {
			func(m *moment) bool { return len(m.runs) == 2 && said("step ")(m) },
			`locate output-error abandoned, pay output-available "done" true, delete output-error abandoned`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := now(t, s.when(t, c.when))
			if calls := callsIn(got.Messages[1]); calls != c.want {
				t.Errorf("got  %s\nwant %s", calls, c.want)
			}
			for _, m := range got.Messages[2:] {
				if calls := callsIn(m); calls != "" {
					t.Errorf("the message %s has the calls %s", m.ID, calls)
				}
			}
		})
	}
}

// callsIn is the message's calls for people.
func callsIn(m uistream.UIMessage) string {
	var calls []string
	for _, p := range m.Parts {
		if p.ToolCallID == "" {
			continue
		}
		words := []string{strings.TrimPrefix(p.Type, "tool-"), p.State, string(p.Output), p.ErrorText}
		if a := p.Approval; a != nil {
			decided := "?"
			if a.Approved != nil {
				decided = fmt.Sprint(*a.Approved)
			}
			words = append(words, decided, a.Reason)
		}
		calls = append(calls, strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " "))
	}
	return strings.Join(calls, ", ")
}
