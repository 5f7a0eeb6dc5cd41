// Package executor_test holds the tests of executors from the outside: how runs are
// stopped, how executors are replaced, and the programs, providers and tool servers that
// they work with.
package executor_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time, each with processes of its own.
const parallel = 4

func TestMain(m *testing.M) { harness.Main(m, parallel) }
