// Package human_test puts people into the loop at the worst moments: two answers to one
// question, an answer against a new message, against a deadline, against a stop, while
// everything restarts, and connections that break behind every single chunk. Whoever
// wins, what the winner was told is what the model sees, and the model sees each call
// answered exactly once.
package human_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests and rounds run at a time. They wait for other processes
// most of the time.
const parallel = 8

func TestMain(m *testing.M) { harness.Main(m, parallel) }
