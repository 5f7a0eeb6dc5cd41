package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/snapshot"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// when gives the first moment for which the condition holds.
func (s *story) when(t *testing.T, condition func(*moment) bool) *moment {
	t.Helper()
	i := slices.IndexFunc(s.moments, condition)
	if i < 0 {
		t.Fatal("there is no such moment")
	}
	return s.moments[i]
}

// said reports whether the text was told last.
func said(word string) func(*moment) bool {
	return func(m *moment) bool {
		return len(m.log) > 0 && m.log[len(m.log)-1].chunk.GetTextDelta().GetDelta() == word
	}
}

// shape is the messages for people: the roles, and of each part what it is and says.
func shape(messages []uistream.UIMessage) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s:", m.Role)
		for _, p := range m.Parts {
			says := slices.DeleteFunc([]string{p.Type, p.Text, p.InputText, p.State, string(p.Output)}, func(s string) bool { return s == "" })
			fmt.Fprintf(&b, " %s", strings.Join(says, "|"))
		}
		b.WriteString("; ")
	}
	return b.String()
}

func now(t *testing.T, m *moment) shown { t.Helper(); return load(t, m, m, m, m) }

func TestASnapshotShowsWhatSomebodySeesWhoWasThereAllTheTime(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(map[string]int{"lost attempts": 1, "chunks of the attempt": 9, "thinks": 1, "calls": 2, "lost in the tool": 1}), false)
	for i, m := range s.moments {
		got := now(t, m)
		watcher := &reader{}
		if watcher.follow(m) {
			t.Fatalf("moment %d: the log should be whole", i)
		}
		var shows, sees []uistream.UIMessage
		for _, message := range got.Messages {
			if message.Role == "assistant" {
				message.Parts = done(message.Parts) // a step that is committed has ended before it is told
				shows = append(shows, message)
			}
		}
		for _, message := range watcher.messages() {
			message.Parts = done(message.Parts)
			sees = append(sees, message)
		}
		if text(shows) != text(sees) {
			t.Fatalf("moment %d\nshown %s\nseen  %s", i, text(shows), text(sees))
		}
		newest := m.current().GetRunId()
		over := slices.ContainsFunc(m.log, func(r record) bool { return r.terminal == newest && newest != "" })
		want := "active"
		switch {
		case newest == "":
			want = "paused"
		case over:
			want = "ended"
		}
		if got.Status != want {
			t.Errorf("moment %d: the status is %q, want %q", i, got.Status, want)
		}
	}
}

func TestTheUnfinishedAnswerIsInTheSnapshot(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(map[string]int{"calls": 1}), false)
	for _, c := range []struct {
		when func(*moment) bool
		want string
	}{
		{func(m *moment) bool { return m.current() != nil }, "user: text|question 1; "},
		{said("step "), "user: text|question 1; assistant: step-start text|kept of step |streaming; "},
		{func(m *moment) bool {
			return len(m.log) > 0 && m.log[len(m.log)-1].chunk.GetToolArgStreamDelta() != nil
		}, `user: text|question 1; assistant: step-start text|kept of step 1|done tool-add|{"a|input-streaming; `},
		{func(m *moment) bool { return len(m.log) > 0 && m.log[len(m.log)-1].chunk.GetToolStart() != nil },
			"user: text|question 1; assistant: step-start text|kept of step 1|done tool-add|input-available; "},
		{func(m *moment) bool { return len(m.log) > 0 && m.log[len(m.log)-1].chunk.GetToolEnd() != nil },
			"user: text|question 1; assistant: step-start text|kept of step 1|done tool-add|output-available|2; "},
		{said("2"), "user: text|question 1; assistant: step-start text|kept of step 1|done tool-add|output-available|2 step-start text|kept of step 2|streaming; "},
	} {
		m := s.when(t, c.when)
		got := now(t, m)
		if shape(got.Messages) != c.want {
			t.Errorf("got  %s\nwant %s", shape(got.Messages), c.want)
		}
		if n := len(m.log); n > 0 && got.StreamSequence != m.log[n-1].sequence {
			t.Errorf("the sequence is %d, want that of the last record, %d", got.StreamSequence, m.log[n-1].sequence)
		}
	}
}

func TestWhileTheLogIsAwayASnapshotIsTheLastStepThatItWasTold(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(nil), false)
	m := s.when(t, said("2")).clone()
	m.away = true
	got := now(t, m)
	if want := "user: text|question 1; assistant: step-start text|kept of step 1|done; "; shape(got.Messages) != want {
		t.Errorf("got %s, want %s", shape(got.Messages), want)
	}
	if got.StreamSequence != m.session.GetStreamSequence() || got.Status != "active" {
		t.Errorf("got %d %s, want %d active", got.StreamSequence, got.Status, m.session.GetStreamSequence())
	}
}

func TestStepsThatTheStreamWillBeToldOfAreNotShownBefore(t *testing.T) {
	t.Parallel()
	s := newStory(by(nil))
	run := s.ask()
	s.run, run.Status = run, statev1.RunStatus_RUN_STATUS_RUNNING
	s.tell(0, started())
	s.step(1, false, false)
	s.lossy, s.now.away = true, true
	s.step(2, true, false)
	s.now.away = false
	s.mark()
	want := "user: text|question 1; assistant: step-start text|kept of step 1|done; "
	if got := now(t, s.now); shape(got.Messages) != want || got.Status != "active" {
		t.Errorf("got %s %s, want %s active", shape(got.Messages), got.Status, want)
	}
	s.mend()
	want = "user: text|question 1; assistant: step-start text|kept of step 1|done step-start text|kept of step 2|done; "
	if got := now(t, s.now); shape(got.Messages) != want {
		t.Errorf("got %s, want %s", shape(got.Messages), want)
	}
}

func TestWhereChunksAreGoneTheMessagesAreWhole(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(nil), false)
	one := "user: text|question 1; assistant: step-start text|kept of step 1|done; "
	for name, c := range map[string]struct {
		at     *moment
		change func(*moment)
		want   string
		from   func(*moment) int64
	}{
		"a part of the step in flight": {s.when(t, said("2")), func(m *moment) {
			m.floor = m.log[len(m.log)-2].sequence
			m.log = m.log[len(m.log)-1:]
		}, one, func(m *moment) int64 { return m.floor }},
		"what was told before the step in flight": {s.when(t, said("2")), func(m *moment) {
			i := slices.IndexFunc(m.log, func(r record) bool { return r.chunk.GetStepCommitted() != nil })
			m.floor, m.log = m.log[i-1].sequence+1, m.log[i:]
			m.log[0].sequence, m.log[0].prev = m.floor+1, m.floor
			for i := range m.log[1:] {
				m.log[i+1].sequence += 2
			}
		}, one, func(m *moment) int64 { return m.log[0].sequence }},
		"what was voided": {s.when(t, said("2")), func(m *moment) {
			m.floor = m.log[len(m.log)-1].sequence
			m.log = []record{{sequence: m.floor + 1, prev: m.floor, marker: true, at: m.floor - 1, run: "run-1"}}
		}, one, func(m *moment) int64 { return m.floor + 1 }},
		"everything": {s.when(t, said("2")), func(m *moment) {
			m.floor = m.log[len(m.log)-1].sequence
			m.log = nil
		}, one, func(m *moment) int64 { return m.floor }},
		"the log was lost": {s.when(t, said("2")), func(m *moment) { m.log, m.began = nil, 1000 },
			one, func(*moment) int64 { return 999 }},
		"the log knows nothing": {s.when(t, said("2")), func(m *moment) { m.log = nil },
			one, func(m *moment) int64 { return m.session.GetStreamSequence() }},
		"of a session that has ended": {s.moments[len(s.moments)-1], func(m *moment) {
			m.floor, m.log = m.log[len(m.log)-1].sequence+7, nil
		}, shape(now(t, s.now).Messages), func(m *moment) int64 { return m.floor }},
	} {
		m := c.at.clone()
		c.change(m)
		got := now(t, m)
		if shape(got.Messages) != c.want || got.StreamSequence != c.from(m) {
			t.Errorf("%s: got %d %s, want %d %s", name, got.StreamSequence, shape(got.Messages), c.from(m), c.want)
		}
	}
}

func TestWhatTheMessagesHaveIsNotFoldedAgain(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(nil), false)
	m := s.when(t, said("2")).clone()
	m.session.StreamSequence = m.log[0].sequence // known to be below the end of step 1
	if got, want := shape(now(t, m).Messages), "user: text|question 1; assistant: step-start text|kept of step 1|done step-start text|kept of step 2|streaming; "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestALogThatWasBegunAnewIsToldFromTheBeginOfTheRun(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(nil), false)
	m := s.when(t, said("2")).clone()
	last := m.log[len(m.log)-1].sequence
	m.log = []record{{sequence: last + 9, prev: last, marker: true, run: "run-1"}}
	tells := func(step int32, c *eventv1.Chunk) {
		prev := m.log[len(m.log)-1].sequence
		c.AgentId, c.Step = "run-1", step
		m.log = append(m.log, record{sequence: prev + 1, prev: prev, run: "run-1", chunk: c})
	}
	shows := func(want string) {
		t.Helper()
		got := now(t, m)
		if shape(got.Messages) != want || got.StreamSequence != m.log[len(m.log)-1].sequence {
			t.Errorf("got %d %s, want %s", got.StreamSequence, shape(got.Messages), want)
		}
	}
	shows("user: text|question 1; assistant:; ")
	tells(0, started())
	shows("user: text|question 1; assistant:; ")
	tells(1, stepStarted())
	tells(1, delta("again"))
	shows("user: text|question 1; assistant: step-start text|again|streaming; ")
}

func TestTheEndOfARunComesAfterASnapshotThatDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(nil), false)
	executing := s.when(t, said("2"))
	failed := executing.clone()
	last := failed.log[len(failed.log)-1].sequence
	failed.log = append(failed.log, record{sequence: last + 1, prev: last, terminal: "run-1", run: "run-1"})
	failed.session.Status, failed.session.Failure = statev1.SessionStatus_SESSION_STATUS_FAILED, &statev1.Failure{Error: "It failed.", Detail: "secret"}
	failed.session.Version++
	failed.current().Status = statev1.RunStatus_RUN_STATUS_FAILED
	if got := load(t, executing, executing, failed, failed); got.Status != "active" || got.StreamSequence != last {
		t.Errorf("got %s at %d, want active at %d", got.Status, got.StreamSequence, last)
	}
	if got := now(t, failed); got.Status != "failed" || got.StreamSequence != last+1 || got.Error != "It failed." {
		t.Errorf("got %s at %d, %q; want failed at %d", got.Status, got.StreamSequence, got.Error, last+1)
	}
}

func TestAResetOfAnIdleStreamIsNotToldAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	s := twoTurns(by(nil), false)
	m := s.now.clone()
	last := m.log[len(m.log)-1].sequence
	m.log = []record{{sequence: last + 3, prev: last, marker: true}}
	got := now(t, m)
	if got.StreamSequence != last+3 || text(got.Messages) != text(now(t, s.now).Messages) {
		t.Errorf("got %d %s", got.StreamSequence, shape(got.Messages))
	}
}

func TestTheTailIsBoundedAndTheClientReadsTheRest(t *testing.T) {
	t.Parallel()
	s := newStory(by(nil))
	run := s.ask()
	s.run, run.Status = run, statev1.RunStatus_RUN_STATUS_RUNNING
	s.append(record{chunk: s.stamp(0, started()), run: run.GetRunId()})
	s.append(record{chunk: s.stamp(1, stepStarted()), run: run.GetRunId()})
	for i := range 23000 {
		s.append(record{chunk: s.stamp(1, delta(fmt.Sprint(i, " "))), run: run.GetRunId()})
	}
	s.mark()
	got := loadFrom(t, &reads{state: s.now, messages: s.now, log: s.now, page: 1000})
	if got.StreamSequence != 20000 {
		t.Errorf("%d records were folded, want 20000", got.StreamSequence)
	}
	r, all := &reader{}, &reader{}
	r.attach(got)
	r.follow(s.now)
	all.attach(shown{Messages: got.Messages[:1]})
	all.follow(s.now)
	if text(r.messages()) != text(all.messages()) {
		t.Error("the snapshot and what follows are not the stream")
	}
}

func TestLargeChunksAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := newStory(by(nil))
	run := s.ask()
	s.run, run.Status = run, statev1.RunStatus_RUN_STATUS_RUNNING
	s.append(record{chunk: s.stamp(1, stepStarted()), run: run.GetRunId()})
	for range 30 {
		s.append(record{chunk: s.stamp(1, delta(strings.Repeat("x", 1<<20))), run: run.GetRunId()})
	}
	got := loadFrom(t, &reads{state: s.now, messages: s.now, log: s.now, page: 4})
	if size := len(got.Messages[1].Parts[1].Text) >> 20; size < 15 || size > 20 || got.StreamSequence != int64(size)+1 {
		t.Errorf("%d MiB were folded up to %d; want 16 and a page", size, got.StreamSequence)
	}
}

// conversed is a session with these messages and nothing else.
func conversed(messages ...*eventv1.Message) *moment {
	s := newStory(by(nil))
	s.store(messages...)
	return s.now
}

func user(text string) *eventv1.Message {
	return &eventv1.Message{Role: eventv1.Role_ROLE_USER, Parts: says(text)}
}

func answer(run string, step int, text string) *eventv1.Message {
	return &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, RunId: run, Step: int32(step), Parts: says(text)}
}

func TestOnlyTheNewestPartOfALargeConversationIsShown(t *testing.T) {
	t.Parallel()
	var all []*eventv1.Message
	for i := range 150 {
		all = append(all, user(fmt.Sprint(i)), answer("", i, "an answer"))
	}
	all = append(all, answer("", 150, "one more"))
	got := loadFrom(t, idle(conversed(all...), 40))
	if got.Offset != 102 || got.Total != 301 || !got.HasMore || got.Messages[0].ID != "m102" || len(got.Messages) != 199 {
		t.Errorf("got %d messages from %d (%s) of %d", len(got.Messages), got.Offset, got.Messages[0].ID, got.Total)
	}
	few := loadFrom(t, idle(conversed(all[:7]...), 40))
	if few.Offset != 0 || few.HasMore || len(few.Messages) != 7 {
		t.Errorf("got %d messages from %d", len(few.Messages), few.Offset)
	}
}

func TestLargeMessagesMakeTheNewestPartShort(t *testing.T) {
	t.Parallel()
	var all []*eventv1.Message
	for i := range 100 {
		all = append(all, user(strings.Repeat("x", 1<<19)), answer("", i, "an answer"))
	}
	got := loadFrom(t, idle(conversed(all...), 40))
	if n := len(got.Messages); n != 40 || got.Offset != 160 { // two blocks
		t.Errorf("got %d messages from %d; want 40 from 160", n, got.Offset)
	}
}

func TestTheLastAnswerIsShownBackToItsBegin(t *testing.T) {
	t.Parallel()
	var all []*eventv1.Message
	for range 30 {
		all = append(all, user("first"), answer("", 1, "old"))
	}
	all = append(all, answer("run-1", 1, "old"), user("question"))
	for i := range 400 {
		all = append(all, answer("run-2", i+2, "step"))
	}
	got := loadFrom(t, idle(conversed(all...), 40))
	if got.Offset != 42 || len(got.Messages) != 21 || len(got.Messages[20].Parts) != 800 {
		t.Errorf("got %d messages from %d", len(got.Messages), got.Offset)
	}
}

func TestALastAnswerThatIsTooLargeSaysSo(t *testing.T) {
	t.Parallel()
	all := []*eventv1.Message{user("question")}
	for i := range 40 {
		all = append(all, answer("run-2", i+2, strings.Repeat("x", 1<<20)))
	}
	got := loadFrom(t, idle(conversed(all...), 40))
	if got.Offset != 21 || len(got.Messages) != 1 || len(got.Messages[0].Parts) != 41 || !strings.HasPrefix(got.Messages[0].Parts[0].Text, "The first part of this answer is too large") {
		t.Errorf("got %d messages from %d, the first of %d parts", len(got.Messages), got.Offset, len(got.Messages[0].Parts))
	}
}

func idle(m *moment, page int) *reads { return &reads{state: m, messages: m, log: m, page: page} }

// taken has messages taken back while they are read.
type taken struct{ *reads }

func (r taken) ListMessages(ctx context.Context, q *statev1.ListMessagesRequest, o ...grpc.CallOption) (*statev1.ListMessagesResponse, error) {
	if q.GetOffset() == 0 {
		return r.reads.ListMessages(ctx, q, o...)
	}
	return &statev1.ListMessagesResponse{Total: q.GetOffset()}, nil
}

// changing has another version whenever it is read.
type changing struct{ *reads }

func (r changing) GetSession(ctx context.Context, q *statev1.GetSessionRequest, o ...grpc.CallOption) (*statev1.GetSessionResponse, error) {
	r.state = r.state.clone()
	r.state.session.Version++
	r.reads.state, r.log = r.state, r.state
	return r.reads.GetSession(ctx, q, o...)
}

func ask(sessions statev1.SessionServiceClient, runs statev1.RunServiceClient, stream streamv1.StreamServiceClient) (*httptest.ResponseRecorder, error) {
	l := &snapshot.Loader{Sessions: &conversation.Reader{Runs: runs, Sessions: sessions}, Stream: stream, Now: time.Now}
	l.Sessions.Policy.Now = l.Now
	out := httptest.NewRecorder()
	return out, l.Snapshot(out, &http.Request{Method: http.MethodGet, URL: &url.URL{RawQuery: "sessionId=s"}}, "default")
}

func TestASessionThatDoesNotHoldStillIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, sessions := range map[string]func(*reads) statev1.SessionServiceClient{
		"messages are taken back": func(r *reads) statev1.SessionServiceClient { return taken{r} },
		"something is written":    func(r *reads) statev1.SessionServiceClient { return changing{r} },
	} {
		r := idle(conversed(user("one"), user("two"), user("three"), user("four")), 3)
		if _, err := ask(sessions(r), r, r); !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != "SESSION_CHANGING" || r.asked > 6 {
			t.Errorf("%s: got %v after %d questions", name, err, r.asked)
		}
	}
}

// waiting has calls that wait for an answer.
type waiting struct {
	*reads
	calls []*statev1.Call
}

func (r waiting) GetSession(ctx context.Context, q *statev1.GetSessionRequest, o ...grpc.CallOption) (*statev1.GetSessionResponse, error) {
	got, err := r.reads.GetSession(ctx, q, o...)
	got.Calls = r.calls
	return got, err
}

func TestASnapshotTellsWhatTheSessionWaitsFor(t *testing.T) {
	t.Parallel()
	calls := []*statev1.Call{
		{ToolCallId: "c1", SessionId: "s", RunId: "run-1", StepId: "step-1", ToolName: "locate", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: `{"a":1}`, CreatedAt: 5, DeadlineAt: 9},
		{ToolCallId: "c2", SessionId: "below", ToolName: "pay", Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a2", CreatedAt: 6},
		{ToolCallId: "c3", SessionId: "s", ToolName: "pay", Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a3", CreatedAt: 7, AnsweredAt: 8, Answer: &statev1.CallAnswer{
			Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "a3", Reason: "no"}}, Source: statev1.AnswerSource_ANSWER_SOURCE_CLIENT}},
		{ToolCallId: "c4", SessionId: "s", ConsumedAt: 4, LateAt: 5},
	}
	m := conversed(user("one"))
	m.session.Status = statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL
	r := idle(m, 3)
	out, err := ask(waiting{r, calls}, r, r)
	if err != nil {
		t.Fatal(err)
	}
	want := `"pendingClientToolCalls":{` +
		`"c1":{"toolCallId":"c1","toolName":"locate","kind":"client-tool","input":{"a":1},"runId":"run-1","stepId":"step-1","createdAt":5,"deadlineAt":9},` +
		`"c3":{"toolCallId":"c3","toolName":"pay","kind":"approval","approvalId":"a3","createdAt":7,"response":{"kind":"approval-response","approved":false,"reason":"no","source":"client"},"submittedAt":8}},` +
		`"clientToolCallOwnership":{"c1":"s","c2":"below","c3":"s"},"completedClientToolCalls":{"c4":4}}`
	if got := strings.TrimSpace(out.Body.String()); !strings.HasSuffix(got, want) || !strings.Contains(got, `"status":"paused"`) {
		t.Errorf("got %s", got)
	}
}
