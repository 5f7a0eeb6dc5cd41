package harness

import (
	"strings"
	"syscall"
)

// Goroutines ends the running process with SIGQUIT and counts the goroutines in its stack dump.
func (p *Process) Goroutines() (n int) {
	p.t.Helper()
	p.end(syscall.SIGQUIT, killLimit)
	log := p.log.last(logKept)
	at := strings.LastIndex(log, "SIGQUIT: quit")
	if at < 0 {
		p.t.Fatalf("%s has written no stacks\n%s", p.Name, p.log.last(logShown))
	}
	for line := range strings.Lines(log[at:]) {
		if strings.HasPrefix(line, "goroutine ") && strings.HasSuffix(line, "]:\n") {
			n++
		}
	}
	return n
}
