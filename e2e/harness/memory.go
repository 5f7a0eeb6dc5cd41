package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the kernel's unit of processor time: USER_HZ.
const tick = 10 * time.Millisecond

// CPU returns the processor time used by the process.
func (p *Process) CPU() time.Duration {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		p.t.Fatalf("read the processor time of %s: %v", p.Name, err)
	}
	// The program's name may hold spaces and ends with the last parenthesis. utime and stime are the 12th and
	// 13th fields after it (proc_pid_stat(5)).
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			p.t.Fatalf("read the processor time of %s: %v", p.Name, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// Resident returns the resident memory of the process in bytes.
func (p *Process) Resident() int64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		p.t.Fatalf("read the memory of %s: %v", p.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				p.t.Fatalf("read the memory of %s: %v", p.Name, err)
			}
			return kib << 10
		}
	}
	p.t.Fatalf("the kernel says nothing about the memory of %s", p.Name)
	return 0
}
