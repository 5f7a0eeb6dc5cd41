package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// A model that sends a little for ever is asked once: each further try would cost the user the whole limit again.
func TestAModelThatHangsTakesItsTimeLimitOnce(t *testing.T) {
	t.Parallel()
	for name, fallbacks := range map[string][]string{"without a fallback": nil, "with a fallback": {"fake/other"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := map[string]int{}
				demo := define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
					asked[r.Model]++
					if r.Model == "other" {
						say(model.TextDelta{Text: "here"})
						say(model.Finish{Reason: model.FinishStop})
						return nil
					}
					for ctx.Err() == nil {
						say(model.TextDelta{Text: "."})
						time.Sleep(time.Second)
					}
					return ctx.Err()
				}))
				demo.Fallbacks = fallbacks
				demo.Models["fake/other"] = demo.Models["fake/mind"]
				h := newSystem(t, demo)
				h.config.ModelTimeout = time.Minute
				h.open()
				began := time.Now()
				run := h.end(h.startRun("s", "demo", "hi"))
				if took := time.Since(began); took < time.Minute || took > time.Minute+10*time.Second {
					t.Errorf("the run took %v, want one time limit", took)
				}
				if fallbacks == nil && (run.GetStatus() != failed || run.GetFailure().GetCode() != model.CodeTimeout) {
					t.Errorf("run = %v, want it failed with %s", run, model.CodeTimeout)
				}
				if fallbacks != nil && (run.GetOutput() != `"here"` || asked["other"] != 1) {
					t.Errorf("run = %v, models asked = %v, want the answer of the fallback", run, asked)
				}
				delete(asked, "other")
				for name, times := range asked {
					if times != 1 {
						t.Errorf("the model %s was asked %d times, want 1", name, times)
					}
				}
			})
		})
	}
}
