// Package e2e tests Holdfast as a whole from the outside: real processes, a real Postgres, and the clients of
// its users.
package e2e

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time. They mostly wait for timers and other processes, so it exceeds the
// number of processors.
const parallel = 6

func TestMain(m *testing.M) { harness.Main(m, parallel) }
