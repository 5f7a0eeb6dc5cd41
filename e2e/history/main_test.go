// Package history_test checks the state service by its history: dozens of
// clients do everything at once on few sessions, over two replicas that are
// killed and connections that are cut, and what they were told is compared with
// what is there in the end.
//
// What a client was told counts as follows. An answer is a promise. A refusal is
// one too, unless an earlier attempt of the same request had been lost on its
// way: then the request may have been written or not, once.
package history_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// window is how long the clients work.
var window = flag.Duration("history.window", 12*time.Second, "how long the history is")

func TestMain(m *testing.M) { harness.Main(m, 0) }
