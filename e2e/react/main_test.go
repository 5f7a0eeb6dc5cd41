// Package react_test tests apps built with useChat of @ai-sdk/react: a small app in a real browser against real
// processes.
package react_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time, in one browser.
const parallel = 3

func TestMain(m *testing.M) { harness.Main(m, parallel) }
