// Package cpu reads the processor time of processes (Linux only).
package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the kernel's processor times (proc_pid_stat(5)). It is 100 per second on every Linux port
// of Go.
const tick = 10 * time.Millisecond

// process is a line of /proc/PID/stat.
type process struct {
	pid, parent int
	// used is the time of the process and of its reaped children.
	used time.Duration
}

// Used returns the user and kernel time of the processes and all their descendants so far. Ended children count
// once they have been reaped. A process listed twice, or is a descendant of another one, counts once.
func Used(pids ...int) (time.Duration, error) { return used(os.DirFS("/proc"), pids) }

func used(proc fs.FS, roots []int) (time.Duration, error) {
	all, err := readAll(proc)
	if err != nil {
		return 0, err
	}
	children := map[int][]int{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	var sum time.Duration
	counted := map[int]bool{}
	for open := append([]int(nil), roots...); len(open) > 0; open = open[1:] {
		pid := open[0]
		if counted[pid] {
			continue
		}
		p, ok := all[pid]
		if !ok {
			return 0, fmt.Errorf("process %d has ended", pid)
		}
		counted[pid] = true
		sum += p.used
		open = append(open, children[pid]...)
	}
	return sum, nil
}

func readAll(proc fs.FS) (map[int]process, error) {
	paths, err := fs.Glob(proc, "[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := make(map[int]process, len(paths))
	for _, path := range paths {
		text, err := fs.ReadFile(proc, path)
		if err != nil {
			continue // ended meanwhile
		}
		p, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[p.pid] = p
	}
	return all, nil
}

// Fields after the name, counted from 0: the state, the parent, and so on.
const (
	parentField = 1
	utimeField  = 11 // followed by stime, cutime and cstime
	timeFields  = 4
)

func parse(stat string) (process, error) {
	// The name is in parentheses and may hold any character, including parentheses.
	first, last := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if first < 0 || last < first {
		return process{}, errors.New("there is no name")
	}
	fields := strings.Fields(stat[last+1:])
	if len(fields) < utimeField+timeFields {
		return process{}, fmt.Errorf("there are %d fields behind the name", len(fields))
	}
	numbers := []string{strings.TrimSpace(stat[:first]), fields[parentField]}
	numbers = append(numbers, fields[utimeField:utimeField+timeFields]...)
	values := make([]int, len(numbers))
	for i, text := range numbers {
		var err error
		if values[i], err = strconv.Atoi(text); err != nil {
			return process{}, err
		}
	}
	p := process{pid: values[0], parent: values[1]}
	for _, ticks := range values[2:] {
		p.used += time.Duration(ticks) * tick
	}
	return p, nil
}
