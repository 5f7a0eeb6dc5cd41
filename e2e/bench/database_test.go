package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockTick is the unit of the kernel's processor times (proc_pid_stat(5)); 100 per second on every Linux port
// of Go.
const clockTick = 10 * time.Millisecond

// databaseCPU returns the processor time of this process's throw-away database server, including past and
// present connections. It is 0 for a given server.
func databaseCPU(b *testing.B) time.Duration {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	parents, times := map[int]int{}, map[int]time.Duration{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		pid, err := strconv.Atoi(strings.TrimSpace(string(text[:open])))
		if err != nil {
			b.Fatal(err)
		}
		// After the name: the state, the parent, and as the 12th to 15th utime and stime, of the process and of
		// its ended children.
		fields := strings.Fields(string(text[end+1:]))
		if parents[pid], err = strconv.Atoi(fields[1]); err != nil {
			b.Fatal(err)
		}
		if string(text[open+1:end]) != "postgres" {
			continue
		}
		for _, field := range fields[11:15] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				b.Fatal(fmt.Errorf("read %s: %w", path, err))
			}
			times[pid] += time.Duration(n) * clockTick
		}
	}
	var sum time.Duration
	for pid, used := range times {
		for above := pid; above > 1; above = parents[above] {
			if above == os.Getpid() {
				sum += used
				break
			}
		}
	}
	return sum
}
