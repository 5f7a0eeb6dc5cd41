package sqlite

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// BenchmarkStep commits steps with an assistant message and a tool result. Each caller has
// its own session. Commands share transactions or have one each.
func BenchmarkStep(b *testing.B) {
	for _, batch := range []int{1, 256} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("batch=%d/callers=%d", batch, callers), func(b *testing.B) {
				single := config
				single.Batch = batch
				s, err := Open(b.Context(), filepath.Join(b.TempDir(), "state.db"), single, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				announce(b, s, "executor-1")
				refs := make([]session.ClaimRef, callers)
				for i := range refs {
					refs[i] = claimed(b, s, session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)})
				}
				b.ResetTimer()
				var all sync.WaitGroup
				for i, ref := range refs {
					all.Go(func() {
						for step := range (b.N + callers - 1 - i) / callers {
							if err := commitStep(b, s, ref, int32(step+1)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}

func claimed(b *testing.B, s *Store, key session.Key) session.ClaimRef {
	b.Helper()
	start(b, s, key)
	due := store.Queued{ExecutorID: "executor-1", AgentTypes: []string{"support"}, Now: now}
	got, err := s.UpdateDue(b.Context(), due, session.Need{}, 1, session.Claim{ExecutorID: "executor-1", Now: now}.Decide)
	if err != nil || len(got) != 1 {
		b.Fatalf("got %d claims, %v", len(got), err)
	}
	return session.ClaimRef{Key: key, RunID: "run-" + key.SessionID, Epoch: 1}
}

var body = bytes.Repeat([]byte("x"), 1000)

func commitStep(b *testing.B, s *Store, ref session.ClaimRef, step int32) error {
	c := session.Commit{
		ClaimRef: ref, Step: step, CheckpointID: fmt.Sprint("cp-", step), Now: now, Limits: session.Limits{State: 1 << 20, Journal: 1 << 20},
		Messages: []session.Message{
			{ID: fmt.Sprint("answer-", step), Role: "assistant", RunID: ref.RunID, Step: step, CreatedAt: now, Body: body},
			{ID: fmt.Sprint("result-", step), Role: "tool", RunID: ref.RunID, Step: step, CreatedAt: now, Body: body},
		},
		Ops: []session.StateOp{{Key: "step", Kind: session.OpReplace, Value: fmt.Sprint(step)}},
		Usage: []session.Usage{
			{Kind: session.UsageTokens, Source: "agent", Model: "m", PromptTokens: 900, CompletionTokens: 100, TotalTokens: 1000},
			{Kind: session.UsageTool, Source: "tool", Tool: "search", Success: true, DurationMS: 12},
		},
	}
	return s.Update(b.Context(), target(c.Key, c.Need()), 4000, on(func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	}))
}
