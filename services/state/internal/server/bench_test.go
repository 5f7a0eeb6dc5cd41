package server

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/grant"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// newMeasured returns a server on a database in memory, with one announced agent and no claim streams.
func newMeasured(b *testing.B) (*Server, store.Store) {
	b.Helper()
	var c Config
	if err := config.Load(&c, nil); err != nil {
		b.Fatal(err)
	}
	stored := sqlitetest.Open(b)
	if err := stored.Announce(b.Context(), "e1", []session.Agent{{Type: "support"}}, session.Millis(time.Now().UnixMilli())); err != nil {
		b.Fatal(err)
	}
	var ids atomic.Int64
	newID := func() string { return fmt.Sprint("id", ids.Add(1)) }
	return New(c, stored, grant.Keys{}, time.Now, newID, slog.New(slog.DiscardHandler)), stored
}

// BenchmarkStartRun starts runs, each in a new session, as a gateway asks for them.
func BenchmarkStartRun(b *testing.B) {
	server, _ := newMeasured(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := startOf(fmt.Sprint("s", i))
		r.RequestKey, r.UserId, r.Caller = "key", "ann", &statev1.Caller{Actor: "user:ann", Owner: "ann"}
		if _, err := server.runs.StartRun(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommitStep commits the steps of one run, each with a reply, a tool result, a state write and two usage
// entries.
func BenchmarkCommitStep(b *testing.B) {
	server, stored := newMeasured(b)
	if _, err := server.runs.StartRun(b.Context(), startOf("s")); err != nil {
		b.Fatal(err)
	}
	now := session.Millis(time.Now().UnixMilli())
	due := store.Queued{ExecutorID: "e1", AgentTypes: []string{"support"}, Now: now}
	claimed, err := stored.UpdateDue(b.Context(), due, session.Need{}, 1, session.Claim{ExecutorID: "e1", Now: now}.Decide)
	if err != nil || len(claimed) != 1 {
		b.Fatalf("got %d claims and %v, want one", len(claimed), err)
	}
	run := claimed[0].Change.Runs[0]
	ref := &statev1.RunRef{Tenant: "acme", SessionId: "s", RunId: run.RunID, Epoch: run.Epoch}
	b.ReportAllocs()
	for step := int32(1); b.Loop(); step++ {
		r := &statev1.CommitStepRequest{
			Run: ref, Step: step,
			Messages: []*eventv1.Message{
				{Id: fmt.Sprint("answer", step), Role: eventv1.Role_ROLE_ASSISTANT, Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: "c1", ToolName: "search", Arguments: `{"q":"x"}`}}}}},
				{Id: fmt.Sprint("result", step), Role: eventv1.Role_ROLE_TOOL, Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{ToolCallId: "c1", ToolName: "search", Result: `"found"`}}}}},
			},
			Record: &eventv1.StepRecord{},
			Ops:    []*statev1.StateOp{{Key: "step", Op: &statev1.StateOp_Replace{Replace: fmt.Sprint(step)}}},
			Usage: []*eventv1.UsageEntry{
				{Entry: &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{Model: "m", PromptTokens: 900, CompletionTokens: 100, TotalTokens: 1000}}},
				{Source: "tool", Entry: &eventv1.UsageEntry_Tool{Tool: &eventv1.ToolUsage{ToolName: "search", Success: true, DurationMs: 12}}},
			},
		}
		if _, err := server.work.CommitStep(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
