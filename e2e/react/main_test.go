// Package react_test holds the tests of apps that are built with useChat of
// @ai-sdk/react: a small one in a real browser, against real processes.
package react_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// together is how many tests run at a time, in one browser.
const together = "3"

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
