// Package human_test tests humans in the loop under races: two answers to one question, an answer against a new
// message, a deadline or a stop, restarts of every service, and connections cut after every single chunk. The
// model must see the winner's answer, and each call answered exactly once.
package human_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests and rounds run at a time. They mostly wait for other processes.
const parallel = 8

func TestMain(m *testing.M) { harness.Main(m, parallel) }
