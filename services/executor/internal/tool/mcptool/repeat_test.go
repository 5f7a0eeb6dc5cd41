package mcptool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestACallIsRepeatedUntilItsServerAnswersOrItsTimeEnds(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.Unavailable, "MCP_UNAVAILABLE", "the session ended")
	refused := errors.New("no such row")
	for name, test := range map[string]struct {
		ends     []error // of the attempts; the last one repeats
		limit    time.Duration
		attempts int
		want     error
		took     time.Duration
	}{
		"answered at once":           {[]error{nil}, time.Minute, 1, nil, 0},
		"refused":                    {[]error{refused}, time.Minute, 1, refused, 0},
		"lost once":                  {[]error{lost, nil}, time.Minute, 2, nil, time.Second},
		"lost, then refused":         {[]error{lost, refused}, time.Minute, 2, refused, time.Second},
		"lost three times":           {[]error{lost, lost, lost, nil}, time.Minute, 4, nil, 7 * time.Second},
		"lost each time":             {[]error{lost}, time.Minute, 4, lost, 7 * time.Second},
		"its time ends in a pause":   {[]error{lost}, 2 * time.Second, 2, lost, 2 * time.Second},
		"hidden from users and lost": {[]error{hideConnection(lost), nil}, time.Minute, 2, nil, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				attempts, keys := 0, map[string]bool{}
				repeating := Repeating(agent.Tool{Execute: func(_ context.Context, call *agent.Call) (any, error) {
					keys[call.IdempotencyKey] = true
					attempts++
					return attempts, test.ends[min(attempts, len(test.ends))-1]
				}})
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				begin := time.Now()
				_, err := repeating.Execute(ctx, &agent.Call{IdempotencyKey: "k"})
				if !errors.Is(err, test.want) || attempts != test.attempts || time.Since(begin) != test.took {
					t.Errorf("%d attempts in %v, %v; want %d in %v, %v", attempts, time.Since(begin), err, test.attempts, test.took, test.want)
				}
				if len(keys) != 1 || !keys["k"] {
					t.Errorf("the keys of the attempts are %v, want one", keys)
				}
			})
		})
	}
}
