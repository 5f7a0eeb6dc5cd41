// Package console_test tests the console in a real browser, against a real system.
package console_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many browsers run at a time.
const parallel = 2

func TestMain(m *testing.M) { harness.Main(m, parallel) }
