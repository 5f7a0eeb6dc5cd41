package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

func TestAReaderOfACallThatWasCutInItsArgumentsIsSentToTheStoredStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "Let me look."})
			say(model.CallStart{ID: "c1", Name: "look"})
			say(model.CallDelta{Text: `{"a`})
			<-ctx.Done()
			return ctx.Err()
		})))
		h.open()
		run := h.startRun("s", "demo", "hi")
		synctest.Wait()
		h.stopRun(run, statev1.StopKind_STOP_KIND_INTERRUPT, "enough")
		h.end(run)
		time.Sleep(time.Second)
		equalLines(t, "stream", streamLines(h.records("s")), []string{
			"0 run_started 1", "1 step_started", "1 text Let me look.", "1 step_committed", "1 run_interrupted enough", "END INTERRUPTED ",
		})
		var reader publishertest.Reader
		reader.Read(h.history("s")...)
		if len(reader.ReadStored) != 1 || reader.ReadStored[0].UpTo != position.Ended(1) {
			t.Errorf("the reader asked for %v, want the step, which has no call", reader.ReadStored)
		}
		h.verifyReaders("s")
	})
}
