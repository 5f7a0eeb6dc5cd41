package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

const humanScript = `
models:
  careful:
    rules:
      - when: {step: 2}
        reply: 'All is answered.'
      - when: {lastUser: mixed}
        reply:
          - call: {name: look, arguments: {}}
          - call: {name: pay, arguments: {}}
          - call: {name: locate, arguments: {}}
      - when: {lastUser: soon}
        reply:
          - call: {name: ask, arguments: {}}
          - call: {name: confirm, arguments: {}}
      - when: {lastUser: pay}
        reply: [{call: {name: pay, arguments: {}}}]
      - reply: [{call: {name: locate, arguments: {}}}]
`

// careful is an agent with human answers: locate and pay wait indefinitely, ask and confirm for two days.
func careful(ran func()) agent.Agent {
	object := json.RawMessage(`{"type":"object"}`)
	does := func(context.Context, *agent.Call) (any, error) { ran(); return "done", nil }
	return agent.Agent{Name: "careful", Model: "scripted/careful", Tools: []agent.Tool{
		{Name: "look", InputSchema: object, Retry: agent.RetrySafe, Execute: does},
		{Name: "pay", InputSchema: object, Retry: agent.RetryNever, Approval: true, Execute: does},
		{Name: "locate", InputSchema: object, Client: true},
		{Name: "confirm", InputSchema: object, Retry: agent.RetryNever, Approval: true, AnswerWithin: 48 * time.Hour, Execute: does},
		{Name: "ask", InputSchema: object, Client: true, AnswerWithin: 48 * time.Hour},
	}}
}

// carefully is an executor with the careful agent, created anew for each run.
func carefully(t *testing.T, made func() agent.Agent) executor.Peers {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: humanScript})
	if err != nil {
		t.Fatal(err)
	}
	registry := executor.NewRegistry()
	err = errors.Join(registry.Model("scripted", model), registry.RegisterFactory("careful", "Asks first.",
		func(context.Context, executor.For) (agent.Agent, error) { return made(), nil }))
	if err != nil {
		t.Fatal(err)
	}
	return executor.Peers{Registry: registry}
}

// spans records the spans of traces with a remote parent until the test ends. It replaces the process's tracer
// provider, so the test runs alone.
type spans struct{ *tracetest.SpanRecorder }

func traced(t *testing.T) spans {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	former := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())), sdktrace.WithSpanProcessor(recorder),
	))
	t.Cleanup(func() { otel.SetTracerProvider(former) })
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return spans{recorder}
}

// of returns the sorted names of a trace's spans with the attribute.
func (s spans) of(trace string, with attribute.KeyValue) []string {
	var names []string
	for _, span := range s.Ended() {
		if span.SpanContext().TraceID().String() == trace && slices.Contains(span.Attributes(), with) {
			names = append(names, span.Name())
		}
	}
	slices.Sort(names)
	return names
}

// startInTrace starts a run in its own trace and waits for its suspension.
func (b *bubble) startInTrace(trace, sessionID, text string, status statev1.RunStatus) *statev1.GetSessionResponse {
	b.Helper()
	_, err := b.runs.StartRun(b.Context(), &statev1.StartRunRequest{
		Tenant: tenant, SessionId: sessionID, AgentType: "careful", Messages: []*eventv1.Message{says(text)},
		Traceparent: "00-" + trace + "-00f067aa0ba902b7-01",
	})
	b.must(err)
	return b.await(sessionID, status)
}

// answer answers every open call of the session in the client's trace, and returns the continuation.
func (b *bubble) answer(trace, sessionID string) (runID string) {
	b.Helper()
	ctx := telemetry.WithTraceparent(b.Context(), "00-"+trace+"-b7ad6b7169203331-01", "")
	found, err := b.sessions.GetSession(ctx, &statev1.GetSessionRequest{Tenant: tenant, SessionId: sessionID})
	b.must(err)
	for _, c := range found.GetCalls() {
		answer := &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `"here"`}}
		if c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL {
			answer.Answer = &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: c.GetApprovalId(), Approved: true}}
		}
		taken, err := b.calls.SubmitCall(ctx, &statev1.SubmitCallRequest{Tenant: tenant, SessionId: sessionID, ToolCallId: c.GetToolCallId(), Answer: answer})
		b.must(err)
		runID = taken.GetRunId()
	}
	return runID
}

const (
	suspendedWhole   = statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL
	suspendedPartial = statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL
)

// waiting is a suspended session with the expected end of its conversation.
type waiting struct {
	text   string
	status statev1.RunStatus
	trace  string
	want   []string
}

func waitingSessions() map[string]waiting {
	return map[string]waiting{
		"client": {"where am I", suspendedWhole, strings.Repeat("1", 32), []string{
			"user: where am I", "call: locate", `result: "here"`, "agent: All is answered.",
		}},
		"approval": {"pay", suspendedWhole, strings.Repeat("2", 32), []string{
			"user: pay", "call: pay", `result: "done"`, "agent: All is answered.",
		}},
		"mixed": {"mixed", suspendedPartial, strings.Repeat("3", 32), []string{
			"user: mixed", "call: look", "call: pay", "call: locate", `result: "done"`, `result: "done"`, `result: "here"`, "agent: All is answered.",
		}},
	}
}

func TestSuspendedSessionsOutliveAStopOfEverythingAndAWeek(t *testing.T) { //nolint:paralleltest // it records the spans of the process
	const answerer = "9c6b9f0e7a1d4c52b8e3f60718293a4b"
	told := traced(t)
	store := []string{
		"HOLDFAST_STATE_STORE=sqlite", "HOLDFAST_STATE_SQLITE_PATH=" + filepath.Join(t.TempDir(), "state.db"),
		// A week has many minutes.
		"HOLDFAST_STATE_SILENT_AFTER=2h", "HOLDFAST_STATE_SWEEP_EVERY=1h", "HOLDFAST_STATE_CLAIM_POLL=1h",
		"HOLDFAST_STATE_STOP_POLL=1h", "HOLDFAST_STREAM_CHECK=1h",
	}
	const heartbeats = "HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL=30m"
	synctest.Test(t, func(t *testing.T) {
		sessions := waitingSessions()
		asked := map[string]*statev1.Run{}
		b := openBubble(t, store...)
		b.join(carefully(t, func() agent.Agent { return careful(func() {}) }), heartbeats)
		time.Sleep(time.Second) // fake, here and everywhere below
		for id, s := range sessions {
			asked[id] = b.startInTrace(s.trace, id, s.text, s.status).GetCurrentRun()
		}
		b.startInTrace(strings.Repeat("4", 32), "overdue", "soon", suspendedWhole)
		b.close()

		time.Sleep(3 * 24 * time.Hour)
		b = openBubble(t, store...)
		defer b.close()
		ran := &attempts{}
		b.join(carefully(t, func() agent.Agent { return careful(func() { ran.add("") }) }), heartbeats)
		time.Sleep(4*24*time.Hour - time.Hour)
		b.await("overdue", statev1.RunStatus_RUN_STATUS_COMPLETED)
		want := []string{
			"user: soon", "call: ask", "call: confirm", "failed: no answer to this call arrived in time", "failed: no answer to this call arrived in time", "agent: All is answered.",
		}
		if got := b.conversation("overdue"); !slices.Equal(got, want) {
			t.Errorf("the overdue session has %q, want %q", got, want)
		}
		if n := len(ran.list()); n > 0 {
			t.Errorf("%d tools have run before anybody has answered", n)
		}
		for id, s := range sessions {
			if run := b.await(id, s.status).GetCurrentRun(); run.GetRunId() != asked[id].GetRunId() {
				t.Errorf("session %s is at run %s, want that it still waits at %s", id, run.GetRunId(), asked[id].GetRunId())
			}
			runID := b.answer(answerer, id)
			run := b.await(id, statev1.RunStatus_RUN_STATUS_COMPLETED).GetCurrentRun()
			if run.GetRunId() != runID || run.GetMessageId() != asked[id].GetMessageId() {
				t.Errorf("session %s goes on with run %s in message %s, want %s and %s", id, run.GetRunId(), run.GetMessageId(), runID, asked[id].GetMessageId())
			}
			if got := b.conversation(id); !slices.Equal(got, s.want) {
				t.Errorf("session %s has %q, want %q", id, got, s.want)
			}
			for _, runID := range []string{asked[id].GetRunId(), runID} {
				of := attribute.String("run.id", runID)
				if first, other := told.of(s.trace, of), told.of(answerer, of); !slices.Equal(first, []string{"invoke_agent careful"}) || len(other) > 0 {
					t.Errorf("run %s of session %s has the spans %q in its first trace and %q in that of who answers", runID, id, first, other)
				}
			}
		}
		if n := len(ran.list()); n != 2 {
			t.Errorf("%d tools have run, want the approved ones once each", n)
		}
		of := attribute.String("gen_ai.tool.name", "pay")
		if got := told.of(sessions["approval"].trace, of); !slices.Equal(got, []string{"execute_tool pay"}) {
			t.Errorf("the approved call has the spans %q in the first trace", got)
		}
	})
}

// former is the database of an earlier version with a session that waits for approval.
const former = "../../services/state/testdata/third.sqlite.sql"

func TestASessionOfAnEarlierReleaseGoesOnInItsTraceAfterAWeek(t *testing.T) { //nolint:paralleltest // it records the spans of the process
	told := traced(t)
	path := filepath.Join(t.TempDir(), "state.db")
	dump, err := os.ReadFile(former)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path) // registered by the state service
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), string(dump))
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const trace = "0af7651916cd43dd8448eb211c80319c"
		time.Sleep(time.Until(time.Date(2026, time.November, 29, 0, 0, 0, 0, time.UTC))) // fake: a week after the dump
		b := openBubble(t, "HOLDFAST_STATE_STORE=sqlite", "HOLDFAST_STATE_SQLITE_PATH="+path)
		defer b.close()
		b.join(booking(t))
		time.Sleep(time.Second)
		_, err := b.calls.SubmitCall(t.Context(), &statev1.SubmitCallRequest{
			Tenant: "acme", SessionId: "trip", ToolCallId: "call_1",
			Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "approval_1", Approved: true}}},
		})
		b.must(err)
		var found *statev1.GetSessionResponse
		for range 60 {
			time.Sleep(time.Second)
			found, err = b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "trip"})
			b.must(err)
		}
		run := found.GetCurrentRun()
		if run.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED || run.GetOutput() != `"All is answered."` {
			t.Errorf("the run is %v, want it completed", run)
		}
		if got := told.of(trace, attribute.String("run.id", run.GetRunId())); !slices.Equal(got, []string{"invoke_agent support"}) {
			t.Errorf("the run has the spans %q in the first trace", got)
		}
		if got := told.of(trace, attribute.String("gen_ai.tool.call.id", "call_1")); !slices.Equal(got, []string{"execute_tool book"}) {
			t.Errorf("the approved call has the spans %q in the first trace", got)
		}
	})
}

// booking is an executor with the agent of the former database.
func booking(t *testing.T) executor.Peers {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: humanScript})
	if err != nil {
		t.Fatal(err)
	}
	registry := executor.NewRegistry()
	err = errors.Join(registry.Model("scripted", model), registry.Register(agent.Agent{
		Name: "support", Model: "scripted/careful", Tools: []agent.Tool{{
			Name: "book", InputSchema: json.RawMessage(`{"type":"object"}`), Retry: agent.RetryNever, Approval: true,
			Execute: func(context.Context, *agent.Call) (any, error) { return "booked", nil },
		}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return executor.Peers{Registry: registry}
}

// ticket is held by the agent of a run. Its pointer makes it a separate object.
type ticket struct{ of *string }

func TestNothingIsHeldForSuspendedSessions(t *testing.T) {
	t.Parallel()
	const sessions = 300
	inBubble(t, func(t *testing.T, b *bubble) {
		var mu sync.Mutex
		var tickets []weak.Pointer[ticket]
		b.join(carefully(t, func() agent.Agent {
			own := &ticket{of: new(string)}
			mu.Lock()
			defer mu.Unlock()
			tickets = append(tickets, weak.Make(own))
			return careful(func() { *own.of = "ran" })
		}))
		time.Sleep(time.Second) // fake, here and everywhere below
		texts := []string{"where am I", "pay", "mixed"}
		suspend := func(from, to int) {
			for i := from; i < to; i++ {
				b.chat(fmt.Sprintf("s%d", i), texts[i%len(texts)])
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
		}
		suspend(0, len(texts))
		before := goroutines()
		suspend(len(texts), sessions)
		if after := goroutines(); after > before {
			t.Errorf("%d goroutines with %d suspended sessions, %d with %d", after, sessions, before, len(texts))
		}
		runtime.GC()
		runtime.GC() // objects held by finalizers
		held := slices.DeleteFunc(slices.Clone(tickets), func(p weak.Pointer[ticket]) bool { return p.Value() == nil })
		if len(tickets) != sessions || len(held) > 0 {
			t.Errorf("the agents of %d runs of %d are still held", len(held), len(tickets))
		}
		for i := range len(texts) {
			b.answer(strings.Repeat("5", 32), fmt.Sprintf("s%d", i))
			b.await(fmt.Sprintf("s%d", i), statev1.RunStatus_RUN_STATUS_COMPLETED)
		}
	})
}

// chat sends a message and reads the answer to its end.
func (b *bubble) chat(sessionID, text string) {
	b.Helper()
	body := fmt.Sprintf(`{"id":%q,"agentType":"careful","messages":[{"id":"m-%s","role":"user","parts":[{"type":"text","text":%q}]}]}`, sessionID, sessionID, text)
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost/chat?aiSdk=7", strings.NewReader(body))
	b.must(err)
	// Connections are not reused. The HTTP server aborts its background read with a deadline in the past and
	// then clears the deadline. bufconn may run the timer of that deadline after it was cleared, and a later
	// request on the connection then ends with EOF. TCP and production code are not affected.
	r.Close = true
	answer, err := b.http.Do(r)
	b.must(err)
	defer answer.Body.Close()
	told, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(told), "[DONE]") || !strings.Contains(string(told), "tool-calls") {
		b.Fatalf("session %s: %s, %v\n%s", sessionID, answer.Status, err, told)
	}
}

// goroutines counts the goroutines of the caller's bubble.
func goroutines() int {
	own := make([]byte, 1<<10)
	own = own[:runtime.Stack(own, false)]
	header, _, _ := strings.Cut(string(own), "\n")
	bubble := header[strings.Index(header, "synctest bubble"):] // to the end of the line
	all := make([]byte, 64<<20)
	all = all[:runtime.Stack(all, true)]
	return strings.Count(string(all), bubble)
}
