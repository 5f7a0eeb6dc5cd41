package conversation_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// changingSession is a state service whose session changes between reads.
type changingSession struct {
	*stored
	now     *statev1.GetSessionResponse
	changes []func() // one before each ListMessages
}

func (m *changingSession) GetSession(context.Context, *statev1.GetSessionRequest, ...grpc.CallOption) (*statev1.GetSessionResponse, error) {
	return m.now, nil
}

func (m *changingSession) ListMessages(ctx context.Context, q *statev1.ListMessagesRequest, options ...grpc.CallOption) (*statev1.ListMessagesResponse, error) {
	if len(m.changes) > 0 {
		m.changes[0]()
		m.changes = m.changes[1:]
	}
	return m.stored.ListMessages(ctx, q, options...)
}

// sessionAt returns the session at the version, with its pending calls.
func sessionAt(version int64, run *statev1.Run, calls ...*statev1.Call) *statev1.GetSessionResponse {
	return &statev1.GetSessionResponse{
		Session: &statev1.Session{Tenant: "default", SessionId: "s", Version: version, CurrentRunId: run.GetRunId()}, CurrentRun: run, Calls: calls,
	}
}

// firstPage is the first page as JSON.
func firstPage(t *testing.T, r *conversation.Reader) string {
	t.Helper()
	page, err := pageOf(t, r, 0, 50)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAPageHasItsMessagesAndCallsOfOneMoment(t *testing.T) {
	t.Parallel()
	s := &stored{}
	id := s.begin(statev1.RunEntry_RUN_ENTRY_START, "answer-1")
	run := s.runs[0]
	call := &statev1.Call{ToolCallId: "c1", SessionId: "s", RunId: id, Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a1"}
	addCall := func() {
		s.add(&eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, RunId: id, Step: 1, Parts: []*eventv1.Part{{
			Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: "c1", ToolName: "pay", Arguments: "{}"}}}}})
	}
	m := &changingSession{stored: s, now: sessionAt(1, run)}
	m.changes = []func(){func() { // the run suspends between the two reads
		addCall()
		m.now = sessionAt(2, run, call)
	}}
	r := &conversation.Reader{Sessions: m, Runs: m}
	if got := firstPage(t, r); !strings.Contains(got, `"state":"approval-requested"`) || !strings.Contains(got, `"approval":{"id":"a1"}`) {
		t.Errorf("got %s", got)
	}
	// A session that keeps changing still gets a page.
	version := int64(2)
	for range 20 {
		m.changes = append(m.changes, func() {
			version++
			m.now = sessionAt(version, run, call)
		})
	}
	if got := firstPage(t, r); !strings.Contains(got, `"approval":{"id":"a1"}`) || version > 10 {
		t.Errorf("after %d versions: got %s", version, got)
	}
}

func TestACallWithoutAnAnswerEndsWhenNoneCanCome(t *testing.T) {
	t.Parallel()
	const other = "The conversation was stopped before this call was answered."
	run := func(status statev1.RunStatus, steps int32) *statev1.Run {
		return &statev1.Run{RunId: "r2", MessageId: "new", Status: status, StepCount: steps}
	}
	const suspended, running, completed = statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, statev1.RunStatus_RUN_STATUS_RUNNING, statev1.RunStatus_RUN_STATUS_COMPLETED
	const waits, active, failed, done = statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL, statev1.SessionStatus_SESSION_STATUS_ACTIVE,
		statev1.SessionStatus_SESSION_STATUS_FAILED, statev1.SessionStatus_SESSION_STATUS_COMPLETED
	for name, tc := range map[string]struct {
		status  statev1.SessionStatus
		run     *statev1.Run
		failure string
		calls   []*statev1.Call
		newest  string // the end of a call of the newest message
		older   string // the end of a call of the message before
	}{
		"it waits":                     {status: waits, run: run(suspended, 1), older: other},
		"stopped":                      {status: failed, run: run(suspended, 1), failure: "The session has expired.", newest: "The session has expired.", older: other},
		"stopped without a reason":     {status: failed, run: run(suspended, 1), newest: other, older: other},
		"live, and has taken over":     {status: active, run: run(running, 1), older: other},
		"live, and may take over":      {status: active, run: run(running, 0)},
		"over":                         {status: done, run: run(completed, 1), newest: other, older: other},
		"interrupted, and can go on":   {status: statev1.SessionStatus_SESSION_STATUS_INTERRUPTED, run: run(suspended, 1), older: other},
		"an older call that still is":  {status: waits, run: run(suspended, 1), calls: []*statev1.Call{{ToolCallId: "c", SessionId: "s"}}},
		"an older call of another one": {status: waits, run: run(suspended, 1), calls: []*statev1.Call{{ToolCallId: "c", SessionId: "below"}}, older: other},
		"no run yet":                   {status: waits},
	} {
		s := sessionAt(1, tc.run, tc.calls...)
		s.GetSession().Status = tc.status
		if tc.failure != "" {
			s.GetSession().Failure = &statev1.Failure{Error: tc.failure}
		}
		why := conversation.UnansweredReasons(s, []uistream.UIMessage{{ID: "oldest", Role: "assistant"}, {ID: "old", Role: "assistant"}, {ID: "new", Role: "assistant"}})
		if newest, older := why("new", "c"), why("old", "c"); newest != tc.newest || older != tc.older {
			t.Errorf("%s: got %q and %q, want %q and %q", name, newest, older, tc.newest, tc.older)
		}
		if oldest := why("oldest", "left"); tc.run != nil && oldest != other {
			t.Errorf("%s: of a call that several messages have left behind: got %q, want %q", name, oldest, other)
		}
	}
}
