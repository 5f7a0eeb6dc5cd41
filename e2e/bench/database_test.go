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

// clockTick is the unit of the kernel's processor times (proc_pid_stat(5)); it is
// 100 a second on every platform that Linux has a Go port for.
const clockTick = 10 * time.Millisecond

// databaseCPU is how much processor time the throw-away database server of this
// process has used, with the connections that it has served and those that it serves.
// It is 0 where another server was given.
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
			continue // it has ended meanwhile
		}
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		pid, err := strconv.Atoi(strings.TrimSpace(string(text[:open])))
		if err != nil {
			b.Fatal(err)
		}
		// Behind the name: the state, the parent, and as the 12th to 15th utime, stime,
		// and both of the children that have ended.
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
