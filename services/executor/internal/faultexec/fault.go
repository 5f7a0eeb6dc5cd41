package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// faultSettings configure the death of the process.
type faultSettings struct {
	Point  string `env:"FAULT_POINT" doc:"the point to die at"`
	After  int    `env:"FAULT_AFTER" envDefault:"1" doc:"at which passing of the point"`
	Random int    `env:"FAULT_RANDOM" doc:"die at one of this many first passings of any points, by the seed; 0 for never"`
	Seed   uint64 `env:"FAULT_SEED" doc:"of FAULT_RANDOM and FAULT_LATE"`
	Trace  string `env:"FAULT_TRACE" doc:"file that gets a line with each point that is passed"`

	Late time.Duration `env:"FAULT_LATE" doc:"die up to this long behind the point, by the seed"`
}

// faults counts the points of runs, and ends the process at the configured one.
type faults struct {
	settings faultSettings

	mu        sync.Mutex
	remaining int           // passings until the death; below 1 for none
	delay     time.Duration // from the point to the death
	trace     *os.File
}

func newFaults(s faultSettings) (*faults, error) {
	f := &faults{settings: s}
	random := rand.New(rand.NewPCG(s.Seed, 0))
	if s.Late > 0 {
		f.delay = time.Duration(random.Int64N(int64(s.Late)))
	}
	switch {
	case s.Point != "":
		f.remaining = s.After
	case s.Random > 0:
		f.remaining = 1 + random.IntN(s.Random)
	}
	if s.Trace != "" {
		var err error
		if f.trace, err = os.OpenFile(s.Trace, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// passed is called at each point of a run.
func (f *faults) passed(_ context.Context, point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trace != nil {
		_, _ = fmt.Fprintln(f.trace, point) // a missing line fails the test that reads the trace
	}
	if f.remaining < 1 || f.settings.Point != "" && f.settings.Point != point {
		return
	}
	if f.remaining--; f.remaining > 0 {
		return
	}
	fmt.Fprintln(os.Stderr, "faultexec dies at", point, "or", f.delay, "later")
	if f.delay > 0 {
		time.AfterFunc(f.delay, die)
		return
	}
	die()
}

// die ends the process as a power cut does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	time.Sleep(time.Hour) // nothing follows the point
}
