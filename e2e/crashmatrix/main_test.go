// Package crashmatrix_test kills executors between any two effects of a run. Another executor continues, and the
// final result must equal an undisturbed run except for documented differences.
package crashmatrix_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many cases run at a time. They mostly wait for the detection of dead executors.
const parallel = 14

var (
	everyPassing = flag.Bool("crashmatrix.every", false, "kill at every passing of a point instead of the first and the last")
	ledgerKills  = flag.Int("ledger.kills", 60, "how often an executor is killed over the ledger")
	ledgerWindow = flag.Duration("ledger.window", 15*time.Second, "how long executors are killed over the ledger at most; 0 for as long as it takes")
	ledgerSeed   = flag.Uint64("ledger.seed", 0, "where the executors are killed over the ledger; 0 takes one from the clock")
)

func TestMain(m *testing.M) { harness.Main(m, parallel) }
