package conversation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// stored is a state service with one session.
type stored struct {
	statev1.SessionServiceClient
	statev1.RunServiceClient
	runs     []*statev1.Run
	messages []*eventv1.Message
	records  map[int32]*eventv1.StepRecord
	current  string // current_run_id of the session
	listed   int64  // number of messages returned
}

func (s *stored) reader() *conversation.Reader {
	r := &conversation.Reader{Sessions: s, Runs: s}
	r.Policy.Now = time.Now
	return r
}

func (s *stored) GetSession(context.Context, *statev1.GetSessionRequest, ...grpc.CallOption) (*statev1.GetSessionResponse, error) {
	return &statev1.GetSessionResponse{Session: &statev1.Session{Tenant: "default", SessionId: "s", CurrentRunId: s.current}}, nil
}

func (s *stored) GetRun(_ context.Context, q *statev1.GetRunRequest, _ ...grpc.CallOption) (*statev1.GetRunResponse, error) {
	i := slices.IndexFunc(s.runs, func(r *statev1.Run) bool { return r.GetRunId() == q.GetRunId() })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "there is no run %q", q.GetRunId())
	}
	return &statev1.GetRunResponse{Run: s.runs[i]}, nil
}

func (s *stored) ListRuns(_ context.Context, q *statev1.ListRunsRequest, _ ...grpc.CallOption) (*statev1.ListRunsResponse, error) {
	out := &statev1.ListRunsResponse{}
	for _, r := range slices.Backward(s.runs) {
		if q.GetBeforeTurn() == 0 || r.GetTurn() < q.GetBeforeTurn() {
			out.Runs = append(out.Runs, r)
		}
	}
	return out, nil
}

func (s *stored) ListMessages(_ context.Context, q *statev1.ListMessagesRequest, _ ...grpc.CallOption) (*statev1.ListMessagesResponse, error) {
	total := int64(len(s.messages))
	begin := min(q.GetOffset(), total)
	end := min(begin+int64(q.GetLimit()), total)
	out := &statev1.ListMessagesResponse{Total: total, HasMore: end < total}
	for i := begin; i < end; i++ {
		out.Messages = append(out.Messages, &statev1.StoredMessage{Ordinal: i, Message: s.messages[i]})
	}
	s.listed += end - begin
	return out, nil
}

// ListSteps returns two steps per page.
func (s *stored) ListSteps(_ context.Context, q *statev1.ListStepsRequest, _ ...grpc.CallOption) (*statev1.ListStepsResponse, error) {
	out := &statev1.ListStepsResponse{}
	for _, m := range s.messages {
		n := len(out.GetSteps())
		switch {
		case m.GetStep() <= q.GetAfterStep() || n > 0 && out.GetSteps()[n-1].GetStep() == m.GetStep():
		case n == 2:
			out.HasMore = true
			return out, nil
		default:
			out.Steps = append(out.Steps, &statev1.StoredStep{Step: m.GetStep(), RunId: m.GetRunId(), Record: s.records[m.GetStep()]})
		}
	}
	return out, nil
}

// begin adds a run with the user's message that begins it.
func (s *stored) begin(entry statev1.RunEntry, message string) string {
	run := &statev1.Run{RunId: fmt.Sprintf("run-%d", len(s.runs)+1), SessionId: "s", Turn: int32(len(s.runs) + 1), MessageId: message, Entry: entry}
	s.runs = append(s.runs, run)
	if entry == statev1.RunEntry_RUN_ENTRY_START {
		s.add(&eventv1.Message{Role: eventv1.Role_ROLE_USER, RunId: run.GetRunId(), Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}}})
	}
	return run.GetRunId()
}

func (s *stored) add(m *eventv1.Message) {
	m.Id = fmt.Sprintf("m%d", len(s.messages))
	s.messages = append(s.messages, m)
}

func (s *stored) addCalls(run string, step int32, calls ...string) {
	m := &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, RunId: run, Step: step}
	for _, id := range calls {
		m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id, ToolName: "locate", Arguments: `{"hold":true}`}}})
	}
	s.add(m)
}

func (s *stored) addFailedResult(run string, step int32, call string) {
	s.add(&eventv1.Message{Role: eventv1.Role_ROLE_TOOL, RunId: run, Step: step, Parts: []*eventv1.Part{
		{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{ToolCallId: call, ToolName: "locate", Error: "abandoned"}}},
	}})
}

func (s *stored) addText(run string, step int32) {
	s.add(&eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, RunId: run, Step: step, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "yes"}}}}})
}

// pageOf is the response of GET /messages.
func pageOf(t *testing.T, r *conversation.Reader, offset, limit int) (*conversation.Page, error) {
	t.Helper()
	session, err := r.SessionDetails(t.Context(), "default", "s")
	if err != nil {
		return nil, err
	}
	return r.Page(t.Context(), session, int64(offset), limit)
}

// page is the page as text.
func (s *stored) page(t *testing.T, offset, limit int) string {
	t.Helper()
	p, err := pageOf(t, s.reader(), offset, limit)
	if err != nil {
		t.Fatal(err)
	}
	shown := make([]string, len(p.Messages))
	for i, m := range p.Messages {
		shown[i] = show(m)
	}
	return strings.Join(shown, "; ")
}

func show(m uistream.UIMessage) string {
	words := []string{m.ID}
	for _, p := range m.Parts {
		switch {
		case p.ToolCallID != "":
			words = append(words, p.ToolCallID, p.State, string(p.Input)+p.ErrorText)
		case p.Type == "text":
			words = append(words, p.Text)
		}
	}
	return strings.Join(words, " ")
}

// abandoned is a conversation in which the user wrote instead of answering: messages 0 and 1, then
// 2, 3 and 4.
func abandoned() *stored {
	s := &stored{}
	s.addCalls(s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-1"), 1, "c1")
	second := s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-2")
	s.addFailedResult(second, 2, "c1")
	s.addText(second, 3)
	return s
}

func TestAnAbandonedCallEndsInItsMessage(t *testing.T) {
	t.Parallel()
	s := abandoned()
	for _, c := range []struct {
		offset, limit int
		want          string
	}{
		{0, 50, `m0 hi; msg-1 c1 output-error {"hold":true}abandoned; m2 hi; msg-2 yes`},
		{0, 2, `m0 hi; msg-1 c1 output-error {"hold":true}abandoned`},
		{1, 1, `msg-1 c1 output-error {"hold":true}abandoned`},
		{1, 2, `msg-1 c1 output-error {"hold":true}abandoned; m2 hi`},
		{2, 1, `m2 hi`},
		{2, 2, `m2 hi; msg-2 yes`},
		{3, 1, `msg-2 yes`},
	} {
		if got := s.page(t, c.offset, c.limit); got != c.want {
			t.Errorf("%d messages from %d: got %s, want %s", c.limit, c.offset, got, c.want)
		}
	}
}

func TestTheSearchForTheEndOfACallIsBounded(t *testing.T) {
	t.Parallel()
	s := &stored{}
	s.addCalls(s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-1"), 1, "c1")
	for range 1000 {
		s.begin(statev1.RunEntry_RUN_ENTRY_START, "")
	}
	if got, want := s.page(t, 0, 2), `m0 hi; msg-1 c1 input-available {"hold":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s.listed > 500 {
		t.Errorf("%d messages were read for a page of 2", s.listed)
	}
}

func TestARunThatResumesMayExtendThePreviousMessage(t *testing.T) {
	t.Parallel()
	s := &stored{}
	s.addText(s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-1"), 1)
	s.addCalls(s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-2"), 2, "c1")
	third := s.begin(statev1.RunEntry_RUN_ENTRY_RESUME, "msg-2")
	s.addFailedResult(third, 3, "c1")
	s.addText(third, 4)
	s.addText(s.begin(statev1.RunEntry_RUN_ENTRY_RESUME, "msg-4"), 5)
	whole := `msg-2 c1 output-error {"hold":true}abandoned yes`
	if got, want := s.page(t, 2, 2), "m2 hi; "+whole; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := s.page(t, 4, 50), "msg-4 yes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestABranchGroupsTheRunsOfAnotherSession(t *testing.T) {
	t.Parallel()
	s := &stored{}
	s.addCalls(s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-1"), 1, "c1")
	s.addFailedResult("run-2", 2, "c1")
	s.addCalls("run-2", 3, "c2")
	s.addFailedResult("run-3", 4, "c2")
	s.addText("run-3", 5)
	s.begin(statev1.RunEntry_RUN_ENTRY_START, "msg-4")
	s.addText("run-4", 6)
	s.runs = nil // they belong to the session before the branch
	s.addText(s.begin(statev1.RunEntry_RUN_ENTRY_RESUME, "own"), 7)
	s.messages[len(s.messages)-1].RunId, s.runs[0].RunId = "run-own", "run-own"
	one, two, own := `m1 c1 output-error {"hold":true}abandoned c2 output-error {"hold":true}abandoned yes`, "m7 yes", "own yes"
	for _, c := range []struct {
		offset, limit int
		want          string
	}{
		{0, 50, "m0 hi; " + one + "; m6 hi; " + two + "; " + own},
		{0, 2, "m0 hi; " + one},
		{1, 1, one},
		{2, 3, ""},
		{4, 4, "m6 hi; " + two},
		{8, 1, own},
	} {
		if got := s.page(t, c.offset, c.limit); got != c.want {
			t.Errorf("%d messages from %d: got %s, want %s", c.limit, c.offset, got, c.want)
		}
	}
}
