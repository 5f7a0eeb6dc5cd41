package mcptool

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The repetitions of a call: their number, and the pause before the first one, which doubles. They outlast a short restart
// of a server.
const (
	maxRepeats  = 3
	repeatPause = time.Second
)

// Repeating returns a tool that makes a call again, with the same idempotency key, if its server has not answered it. The
// time limit of the call includes the repetitions. It is for tools that are Repeatable by the rules of their agent: the
// server may have made the call.
func Repeating(t agent.Tool) agent.Tool {
	execute := t.Execute
	t.Execute = func(ctx context.Context, call *agent.Call) (any, error) {
		value, err := execute(ctx, call)
		for n := 0; n < maxRepeats && errors.Is(err, fault.Unavailable); n++ {
			pause := time.NewTimer(repeatPause << n)
			select {
			case <-ctx.Done():
				pause.Stop()
				return nil, err
			case <-pause.C:
			}
			value, err = execute(ctx, call)
		}
		return value, err
	}
	return t
}
