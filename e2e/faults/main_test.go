// Package faults_test checks what readers are told while servers die: runs that
// go on all the time, readers whose connections are cut, and NATS servers,
// stream services and executors that are killed or frozen meanwhile, or a log
// that is emptied or replaced by an old copy. Whatever was told is compared by
// its content with what had to be told.
//
// Every text is one that no other session has, and every word of it says which
// it is, so that a word that was lost, doubled, swapped or told to the wrong
// reader shows.
package faults_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

var (
	// window is how long things break.
	window = flag.Duration("faults.window", round, "how long servers are killed and frozen under load")
	// copyAge is the least age of a copy of the log that is put back under load.
	copyAge = flag.Duration("faults.copyage", 30*time.Second, "how old copies of the log are, at least, when they are put back under load")
)

func TestMain(m *testing.M) { harness.Main(m, 0) }
