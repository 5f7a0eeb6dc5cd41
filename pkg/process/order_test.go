package process_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/process"
)

// limit bounds the wait of a test.
const limit = 3 * time.Minute

func TestCallersEndBeforeTheServicesThatTheyCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	callerEnded := make(chan struct{})
	task := func(f func(context.Context)) []process.Task {
		return []process.Task{{Name: "task", Run: func(ctx context.Context) error { <-ctx.Done(); f(ctx); return nil }}}
	}
	cancel()
	err := process.RunInOrder(ctx, limit, task(func(context.Context) {
		select {
		case <-callerEnded:
		default:
			t.Error("the called service was told to end before its caller had ended")
		}
	}), task(func(context.Context) { close(callerEnded) }))
	if err != nil {
		t.Error(err)
	}
}
