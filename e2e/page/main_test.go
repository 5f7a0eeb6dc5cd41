// Package page_test holds the tests of the chat page in a real browser: keys in, what
// is on the screen out.
package page_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// together is how many browsers run at a time.
const together = "2"

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
