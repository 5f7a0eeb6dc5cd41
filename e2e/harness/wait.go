package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// pollPause is the time between two polls.
const pollPause = 20 * time.Millisecond

// WaitFor polls until check reports true. After the limit it fails the test with check's last description.
func WaitFor(t testing.TB, limit time.Duration, what string, check func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		ok, seen := check()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s; saw last: %s", limit, what, seen)
		}
		time.Sleep(pollPause)
	}
}

// show prints the first and the last values and shortens each, so that a failure stays readable.
const (
	firstShown = 5
	lastShown  = 25
	widthShown = 400
)

// show prints values one a line.
func show[T any](values []T) string {
	var text strings.Builder
	for i, v := range values {
		if left := len(values) - firstShown - lastShown; left > 0 && i >= firstShown && i < firstShown+left {
			if i == firstShown {
				fmt.Fprintf(&text, "  … %d more …\n", left)
			}
			continue
		}
		line := fmt.Sprint(v)
		if len(line) > widthShown {
			line = line[:widthShown] + " …"
		}
		fmt.Fprintf(&text, "  %s\n", line)
	}
	return text.String()
}
