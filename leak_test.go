package holdfast_test

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// goroutine matches the id of a goroutine in a stack trace.
var goroutine = regexp.MustCompile(`^goroutine (\d+) `)

// goroutines returns the stack traces of all goroutines by id.
func goroutines() map[string]string {
	text := make([]byte, 1<<20)
	for {
		n := runtime.Stack(text, true)
		if n < len(text) {
			text = text[:n]
			break
		}
		text = make([]byte, 2*len(text))
	}
	stacks := map[string]string{}
	for stack := range strings.SplitSeq(string(text), "\n\n") {
		if id := goroutine.FindStringSubmatch(stack); id != nil {
			stacks[id[1]] = stack
		}
	}
	return stacks
}

// Parallel tests wait for the end of this one, so every new goroutine is of the runtime.
//
//nolint:paralleltest // see above
func TestAnEndedRuntimeLeavesNoGoroutineBehind(t *testing.T) {
	before := goroutines()
	for _, data := range []string{"", t.TempDir()} {
		o := options(t, data, nothing)
		r := start(t, o)
		approve(t, within(t, r, holdfast.Caller{}), say(t, within(t, r, holdfast.Caller{}), "s", "refund 1"))
		request(t, "POST", r.URL()+"/chat", message("http", "hello"))
		end(t, r)
		o = options(t, data, nothing)
		o.APIKeys = "none.yaml" // it fails late in its start
		if _, err := holdfast.Start(t.Context(), o); fault.ReasonOf(err) != "API_KEYS_INVALID" {
			t.Errorf("got %v, want API_KEYS_INVALID", err)
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for {
		left := goroutines()
		for id := range before {
			delete(left, id)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			for _, stack := range left {
				t.Errorf("still there: %s", stack)
			}
			return
		}
	}
}
