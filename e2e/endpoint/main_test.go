// Package endpoint_test proves that agents in Go, in TypeScript and in Python behave alike, over real processes: one table of
// scenarios (table_*_test.go) is played with the same agents in each language. testdata/goapp is an executor of its own, tsapp and pyapp
// serve their agents at an endpoint, which a stock executor calls.
//
// The agents are puppets: the scenario says what a tool does, in the arguments of its call, and what a hook or another function
// does, in the custom state. So the table knows nothing of a language, and an app needs no change for a new scenario.
//
//	suite ── client of the gateway ──► holdfast serve ──► goapp, or an executor ── endpoint ──► tsapp, pyapp
//	  ▲ ▲                                   │                                                      │
//	  │ └──────── the scripted model ◄──────┘                                                      │
//	  └────────── the ledger and the gates ◄───────────────────────────────────────────────────────┘
//
// Other tests of the package kill apps and executors and cut the network between them (crash_test.go), send the apps requests
// that they must refuse (signature_test.go), and let an executor call apps that behave badly (hostile_test.go).
package endpoint_test

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// parallel is how many scenarios run at a time. They mostly wait for processes.
const parallel = 16

// scratch is a folder of this process.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err)
	}
	var err error
	if scratch, err = os.MkdirTemp("", "holdfast-endpoint-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}
