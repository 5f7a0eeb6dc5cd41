package session

import (
	"cmp"
	"fmt"
	"slices"
)

// IncompleteViewError is the error of a command that needs more rows before it can decide. Nothing was
// written. The caller repeats the command with the targets of Extend.
type IncompleteViewError struct{ Targets []Target }

// Error implements error, for the log of a caller without a repeat.
func (w *IncompleteViewError) Error() string {
	return fmt.Sprintf("the command needs rows of %d more sessions", len(w.Targets))
}

// Extend returns the targets for the repeat: the present ones in their order, then the new
// ones. A session in both lists keeps its place and gets the union of both needs.
func (w *IncompleteViewError) Extend(had []Target) []Target {
	wanted := targetList{targets: slices.Clone(had), indexes: make(map[Key]int, len(had))}
	for i, t := range slices.Backward(had) {
		wanted.indexes[t.Key] = i
	}
	for _, t := range w.Targets {
		wanted.add(t)
	}
	return wanted.targets
}

// targetList is a list of unique targets.
type targetList struct {
	targets []Target
	indexes map[Key]int
}

func (w *targetList) add(t Target) {
	if i, known := w.indexes[t.Key]; known {
		w.targets[i].Need = w.targets[i].Need.union(t.Need)
		w.targets[i].Owner = cmp.Or(w.targets[i].Owner, t.Owner)
		return
	}
	if w.indexes == nil {
		w.indexes = map[Key]int{}
	}
	w.indexes[t.Key] = len(w.targets)
	w.targets = append(w.targets, t)
}

// union returns the rows of both needs. At most one names a message to go back to, and at
// most one an answer.
func (n Need) union(m Need) Need {
	n.AgentType = cmp.Or(n.AgentType, m.AgentType)
	n.Definition = n.Definition || m.Definition
	n.Current = n.Current || m.Current
	n.Live = n.Live || m.Live
	n.Journal = n.Journal || m.Journal
	n.Calls = n.Calls || m.Calls
	n.Children = n.Children || m.Children
	n.LiveBelow = max(n.LiveBelow, m.LiveBelow)
	n.State = n.State || m.State
	n.Waiting = n.Waiting || m.Waiting
	n.OwnAgent = n.OwnAgent || m.OwnAgent
	n.Undo = n.Undo || m.Undo
	n.FailedStep = n.FailedStep || m.FailedStep
	n.Stored = n.Stored || m.Stored
	n.RewindToMessage = cmp.Or(m.RewindToMessage, n.RewindToMessage)
	n.AnswerID = cmp.Or(m.AnswerID, n.AnswerID)
	n.AskedFrom = cmp.Or(m.AskedFrom, n.AskedFrom)
	if len(m.StoreKeys) > 0 {
		n.StoreKeys = m.StoreKeys
	}
	if m.ExecutorID != "" {
		n.ExecutorID, n.Tail = m.ExecutorID, m.Tail
	}
	return n
}

// covers reports whether n includes the rows that m needs of a family member.
func (n Need) covers(m Need) bool {
	return (n.AgentType != "" || m.AgentType == "") && (n.Current || !m.Current) && (n.Live || !m.Live) && (n.Journal || !m.Journal) &&
		(n.Calls || !m.Calls) && (n.Children || !m.Children) && (n.Stored || !m.Stored) && n.LiveBelow >= m.LiveBelow
}
