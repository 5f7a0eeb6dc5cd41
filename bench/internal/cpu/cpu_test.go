package cpu

import (
	"fmt"
	"os"
	"testing"
	"testing/fstest"
	"time"
)

// machine returns a /proc with processes of pid, parent, and utime, stime, cutime and cstime in ticks.
func machine(processes ...[6]int) fstest.MapFS {
	proc := fstest.MapFS{"uptime": {Data: []byte("1.0 2.0")}}
	for _, p := range processes {
		line := fmt.Sprintf("%d (a) b (c) S %d 1 1 0 -1 4194560 9 9 9 9 %d %d %d %d 20 0 1 0 7 8", p[0], p[1], p[2], p[3], p[4], p[5])
		proc[fmt.Sprintf("%d/stat", p[0])] = &fstest.MapFile{Data: []byte(line)}
	}
	return proc
}

func TestTheTimeOfAProcessIsThatOfItsTree(t *testing.T) {
	t.Parallel()
	proc := machine(
		[6]int{10, 1, 1, 2, 30, 40},  // counts with its reaped children
		[6]int{11, 10, 100, 0, 0, 0}, // its child
		[6]int{12, 11, 0, 1000, 0, 0},
		[6]int{20, 1, 5, 5, 5, 5}, // another parent's child
	)
	for _, roots := range [][]int{{10}, {10, 11}, {12, 10, 10}} {
		got, err := used(proc, roots)
		if want := 1173 * tick; err != nil || got != want {
			t.Errorf("the time of %v: got %v, %v, want %v", roots, got, err, want)
		}
	}
}

func TestTheTimeOfAProcessThatHasEndedIsUnknown(t *testing.T) {
	t.Parallel()
	if got, err := used(machine([6]int{10, 1, 1, 1, 1, 1}), []int{10, 11}); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestALineThatIsCutIsAnError(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "10 (a", "10 (a) S 1", "x (a) S 1 1 1 0 -1 4194560 9 9 9 9 1 1 1 1"} {
		if got, err := parse(line); err == nil {
			t.Errorf("%q: got %v, want an error", line, got)
		}
	}
}

func TestAProcessThatWorksUsesTime(t *testing.T) {
	t.Parallel()
	before, err := Used(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 10*tick; {
		if after, err := Used(os.Getpid()); err != nil || after > before {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Error("the time did not grow though the test was busy")
}
