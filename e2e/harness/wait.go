package harness

import (
	"fmt"
	"testing"
	"time"
)

// pollPause is the time between two looks at the same thing.
const pollPause = 20 * time.Millisecond

// WaitFor polls until look reports true, and fails the test with what look
// said last when it does not within the limit.
func WaitFor(t testing.TB, limit time.Duration, what string, look func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		ok, seen := look()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s; saw last: %s", limit, what, seen)
		}
		time.Sleep(pollPause)
	}
}

// show prints values one a line.
func show[T any](values []T) string {
	text := ""
	for _, v := range values {
		text += fmt.Sprintf("  %v\n", v)
	}
	return text
}
