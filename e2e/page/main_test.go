// Package page_test tests the chat page in a real browser: keys in, screen content out.
package page_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many browsers run at a time.
const parallel = 2

func TestMain(m *testing.M) { harness.Main(m, parallel) }
