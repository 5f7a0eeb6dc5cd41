package session

import (
	"cmp"
	"fmt"
	"slices"
)

// Wider is the error of a command that has to see more sessions before it can
// decide: nothing was written; run it again with these targets behind those that
// it had.
type Wider struct{ Targets []Target }

// Error implements error. It is for the log of a caller that does not widen.
func (w *Wider) Error() string {
	return fmt.Sprintf("the command has to see %d more sessions of the family", len(w.Targets))
}

// Widen returns the targets with which the command runs again: those that it
// had, in their order, and those that it asks for. A session that is among both
// keeps its place and is shown whatever either wants to see.
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

// targetList is a list of targets, each session once.
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

// union returns the need of a command that wants to see what either wants. The
// more that is asked for names a message to go back to and an answer at most.
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

// covers reports whether the need shows what m wants to see of a family.
func (n Need) covers(m Need) bool {
	return (n.Current || !m.Current) && (n.Open || !m.Open) && (n.Journal || !m.Journal) &&
		(n.Calls || !m.Calls) && (n.Children || !m.Children)
}
