package session

import (
	"cmp"
	"fmt"
	"slices"
)

// Wider is the error of a command that needs more rows before it can decide. Nothing was
// written. The caller repeats the command with the targets of Extend.
type Wider struct{ Targets []Target }

// Error implements error, for the log of a caller without a repeat.
func (w *Wider) Error() string {
	return fmt.Sprintf("the command needs rows of %d more sessions", len(w.Targets))
}

// Widen returns the targets for the repeat: the present ones in their order, then the new
// ones. A session in both lists keeps its place and gets the union of both needs.
func (w *Wider) Widen(had []Target) []Target {
	wanted := targetList{targets: slices.Clone(had), places: make(map[Key]int, len(had))}
	for i, t := range slices.Backward(had) {
		wanted.places[t.Key] = i
	}
	for _, t := range w.Targets {
		wanted.add(t)
	}
	return wanted.targets
}

// targetList is a list of unique targets.
type targetList struct {
	targets []Target
	places  map[Key]int
}

func (w *targetList) add(t Target) {
	if i, known := w.places[t.Key]; known {
		w.targets[i].Need = w.targets[i].Need.union(t.Need)
		return
	}
	if w.places == nil {
		w.places = map[Key]int{}
	}
	w.places[t.Key] = len(w.targets)
	w.targets = append(w.targets, t)
}

// union returns the rows of both needs. At most one names a message to go back to, and at
// most one an answer.
func (n Need) union(m Need) Need {
	n.Current = n.Current || m.Current
	n.Open = n.Open || m.Open
	n.Journal = n.Journal || m.Journal
	n.Calls = n.Calls || m.Calls
	n.Children = n.Children || m.Children
	n.State = n.State || m.State
	n.Waiting = n.Waiting || m.Waiting
	n.Busy = n.Busy || m.Busy
	n.Undo = n.Undo || m.Undo
	n.Retry = n.Retry || m.Retry
	n.BackTo = cmp.Or(m.BackTo, n.BackTo)
	n.Answer = cmp.Or(m.Answer, n.Answer)
	if m.Executor != "" {
		n.Executor, n.Tail = m.Executor, m.Tail
	}
	return n
}

// covers reports whether n includes the rows that m needs of a family member.
func (n Need) covers(m Need) bool {
	return (n.Current || !m.Current) && (n.Open || !m.Open) && (n.Journal || !m.Journal) &&
		(n.Calls || !m.Calls) && (n.Children || !m.Children)
}
