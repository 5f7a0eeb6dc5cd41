// Package e2e holds the tests of Holdfast as a whole, from the outside: real
// processes, a real Postgres, clients that users have.
package e2e

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time. They wait for timers and other
// processes most of the time, so that it is more than there are processors.
const parallel = 4

func TestMain(m *testing.M) { harness.Main(m, parallel) }
