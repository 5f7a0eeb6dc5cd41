package bench_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// spending is processor time by process. Unlike a rate, it hardly depends on other load on the machine.
type spending []share

type share struct {
	name string
	used time.Duration
}

// spendings returns the processor time so far of a system, its database, and this process's clients.
func spendings(b *testing.B, s *harness.System) spending {
	b.Helper()
	var c spending
	for _, p := range []*harness.Process{s.Gateway, s.State, s.Stream, s.Executors[0]} {
		c = append(c, share{p.Name, p.CPU()})
	}
	return append(c, share{"database", databaseCPU(b)}, share{"clients", processorTime(os.Getpid())})
}

// since returns the processor time per turn of n turns since before.
func (c spending) since(before spending, n float64) spending {
	each := make(spending, len(c))
	for i, s := range c {
		each[i] = share{s.name, time.Duration(float64(s.used-before[i].used) / max(n, 1))}
	}
	return each
}

// without leaves out the process with this name.
func (c spending) without(name string) spending {
	return slices.DeleteFunc(slices.Clone(c), func(s share) bool { return s.name == name })
}

func (c spending) sum() (sum time.Duration) {
	for _, s := range c {
		sum += s.used
	}
	return sum
}

func (c spending) String() string {
	var parts []string
	for _, s := range c {
		parts = append(parts, fmt.Sprintf("%s %.2f ms", s.name, ms(s.used)))
	}
	return fmt.Sprintf("%.2f ms: %s", ms(c.sum()), strings.Join(parts, ", "))
}
