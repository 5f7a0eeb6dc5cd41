package worker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestAFailedRunIsLoggedOnceWithItsCauseAndNothingOfTheConversation(t *testing.T) {
	t.Parallel()
	const secret = "my-secret-question"
	fails := func(err error) modelFunc {
		return func(context.Context, model.Request, func(model.Event) bool) error { return err }
	}
	tests := map[string]struct {
		engine modelFunc
		want   []string
	}{
		"the key is wrong": {
			engine: fails(&model.Error{Code: model.CodeUnauthenticated, StatusCode: 401, Message: "Incorrect API key provided"}),
			want:   []string{"code=provider_unauthenticated", "Incorrect API key provided", "HTTP 401"},
		},
		"the model panics": {engine: func(context.Context, model.Request, func(model.Event) bool) error { panic("boom") }, want: []string{"code=framework_internal_error", "boom"}},
		"a step has failed, and the next one": {engine: func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			if len(r.Messages) > 1 {
				return errors.New("odd")
			}
			sendCalls(say, "nothing", `{}`)
			return nil
		}, want: []string{`code=""`, "odd"}},
		"a text is long": {engine: fails(errors.New(strings.Repeat("x", 10_000))), want: []string{`code=""`, "xxx"}},
		"the steps are used up": {engine: func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			sendCalls(say, "nothing", `{}`)
			return nil
		}, want: []string{"code=framework_max_steps", "raise the agent's maxSteps"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log lockedBuffer
				h := newSystem(t, define("demo", test.engine))
				h.logTo = &log
				h.open()
				run := h.end(h.startRun("s", "demo", secret))
				synctest.Wait()
				var found []string
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "the run has failed") || strings.Contains(line, "cannot continue") {
						found = append(found, line)
					}
				}
				if len(found) != 1 {
					t.Fatalf("got %d lines about the failure, want 1:\n%s", len(found), log.String())
				}
				for _, want := range append(test.want, "level=WARN", "session=s", "run="+run.GetRunId(), "agent=demo") {
					if !strings.Contains(found[0], want) {
						t.Errorf("got %s, want it to contain %q", found[0], want)
					}
				}
				if len(found[0]) > 4<<10 || strings.Contains(log.String(), secret) {
					t.Errorf("got %d bytes, want a short line without the conversation:\n%s", len(found[0]), log.String())
				}
			})
		})
	}
}

// lockedBuffer is a buffer for many writers.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
