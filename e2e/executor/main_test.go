// Package executor_test tests executors from the outside: stopping runs, replacing executors, and the programs,
// providers and tool servers around them.
package executor_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time, each with processes of its own.
const parallel = 4

func TestMain(m *testing.M) { harness.Main(m, parallel) }
