// Package history_test checks the history of the state service. Dozens of clients work concurrently on few
// sessions, over two replicas, while replicas are killed and connections are cut. The test compares the clients'
// observations with the final state.
//
// A positive response is a promise. A refusal is one too, unless an earlier attempt of the same request was
// lost: then the request may have been written once or not at all.
package history_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// window is how long the clients work. The default meets each kind of fault; make torture has a longer window
// for rare orders of faults.
var window = flag.Duration("history.window", 8*time.Second, "how long the history is")

func TestMain(m *testing.M) { harness.Main(m, 0) }
