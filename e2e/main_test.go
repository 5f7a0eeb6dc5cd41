// Package e2e holds the tests of Holdfast as a whole, from the outside: real
// processes, a real Postgres, clients that users have.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// together is how many tests run at a time. They wait for timers and other
// processes most of the time, so that it is more than there are processors.
const together = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := harness.RemoveBinaries(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the binaries:", err)
		code = 1
	}
	os.Exit(code)
}
