// Package faults_test checks readers under failures: runs continue while reader connections are cut, while NATS
// servers, stream services and executors are killed or frozen, and while the log is emptied or replaced by an
// old copy. It compares the content received by every reader with the expected content.
//
// Every text is unique to its session, and every word identifies its place. A lost, doubled, swapped or
// misdirected word is therefore visible.
package faults_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

var (
	// liveSessions is the number of runs under load. The default lets every kind of fault hit some of them;
	// rare orders of events need the number of runs and the windows of make torture.
	liveSessions = flag.Int("faults.sessions", 100, "how many runs are live under faults")
	// window is how long faults are injected. The default is one round, in which each kind of fault happens.
	window = flag.Duration("faults.window", round, "how long servers are killed and frozen under load")
	// copyAge is the least age of a copy of the log that is put back under load. make torture puts back
	// copies of two minutes, which lack more of the log.
	copyAge = flag.Duration("faults.copyage", 18*time.Second, "how old copies of the log are, at least, when they are put back under load")
)

func TestMain(m *testing.M) { harness.Main(m, 0) }
