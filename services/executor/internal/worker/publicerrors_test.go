package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestUsersSeeThePublicTextOfAFailureAndTheModelTheWholeOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		work := p.tool("work", agent.RetrySafe, func(context.Context, *agent.Call) (any, error) {
			return nil, agent.PublicError(errors.New("HTTP 500: panic in db-7"), "The service failed.")
		})
		var told []string
		p.agents["demo"] = define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			for _, m := range r.Messages {
				for _, result := range m.Results() {
					told = append(told, result.Error)
				}
			}
			return stepReplies(callsReply("work", `{}`), textReply("ok"))(ctx, r, say)
		}), work)
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Fatalf("run = %v", run)
		}
		var shown []string
		for _, r := range p.records("s") {
			if end := r.GetChunk().GetToolEnd(); end != nil {
				shown = append(shown, end.GetError())
			}
		}
		equalLines(t, "errors for the model", told, []string{"HTTP 500: panic in db-7"})
		equalLines(t, "errors for users", shown, []string{"The service failed."})
		if got := p.results(); len(got) != 1 || got[0].GetPublicError() != "The service failed." {
			t.Errorf("stored results = %v, want one with the public text", got)
		}
		p.verifyReaders("s")
	})
}
