package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// refuseFiles is a provider that refuses files, in the middle of its reply.
func refuseFiles(_ context.Context, r model.Request, say func(model.Event) bool) error {
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if _, ok := p.(agent.File); ok {
				say(model.TextDelta{Text: "Let me"})
				return &model.Error{
					Code: model.CodeInvalidRequest, StatusCode: 400, Message: "image exceeds 5 MB maximum",
					Refusal: &model.Refusal{Part: model.RefusedFile, Reason: model.FileTooLarge, Limit: 5 << 20},
				}
			}
		}
	}
	sendText(say, "I cannot see it.")
	return nil
}

func TestARefusedFileCostsAnAttemptAndNotTheConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			calls.Add(1)
			return refuseFiles(ctx, r, say)
		})))
		h.config.MaxCallFileBytes, h.config.FileMemory = 100, 100
		cat := h.putFile("text/x", "cat")
		h.open()
		for _, run := range []string{h.end(h.post(withFile("look", cat))).GetOutput(), h.end(h.startRun("s", "demo", "and now?")).GetOutput()} {
			if run != `"I cannot see it."` {
				t.Errorf("got the output %s, want the reply without the file", run)
			}
		}
		if got := calls.Load(); got != 3 {
			t.Errorf("got %d model calls, want 3: the refused request is not sent again", got)
		}
		var notices []string
		for _, r := range h.records("s") {
			if e := r.GetChunk().GetCustom(); e != nil {
				notices = append(notices, e.GetEventName()+" "+e.GetData())
			}
		}
		equalLines(t, "notices", notices, []string{`notice {"kind":"refusal","text":"The model does not accept this file (larger than 5 MB). It was left out."}`})
		if text := joinedText(h.records("s")); strings.Count(text, "I cannot see it.") != 2 {
			t.Errorf("got the text %q, want both replies in it", text)
		}
		h.verifyReaders("s")
	})
}

// The executor dies behind the commit of what the refusal has taught.
func TestANewOwnerKnowsWhatWasRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int32
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			err := refuseFiles(ctx, r, say)
			if err != nil {
				refused.Add(1)
			}
			return err
		})))
		h.config.MaxCallFileBytes, h.config.FileMemory = 100, 100
		cat := h.putFile("text/x", "cat")
		h.openMortal(&death{point: worker.PointCommitted, n: 1})
		if got := h.end(h.post(withFile("look", cat))).GetOutput(); got != `"I cannot see it."` || refused.Load() != 1 {
			t.Errorf("got %s after %d refusals, want the reply after one", got, refused.Load())
		}
		h.verifyReaders("s")
	})
}
