package memory

import (
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func copySession(s session.Session) session.Session {
	s.Tags = slices.Clone(s.Tags)
	s.Metadata = maps.Clone(s.Metadata)
	s.Failure = copyOf(s.Failure)
	s.Interruption = copyOf(s.Interruption)
	if s.Suspension != nil {
		w := *s.Suspension
		w.Children = maps.Clone(w.Children)
		w.Tracing = copyOf(w.Tracing)
		s.Suspension = &w
	}
	return s
}

// copyOf copies a value that holds no others.
func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func copyRun(r *session.Run) *session.Run {
	if r == nil {
		return nil
	}
	c := *r
	c.RequestHash = slices.Clone(r.RequestHash)
	c.Outcome.Failure = copyOf(r.Outcome.Failure)
	c.Outcome.Usage = copyOf(r.Outcome.Usage)
	c.Stop = copyOf(r.Stop)
	return &c
}

func copyMessages(messages []session.Message) []session.Message {
	copies := slices.Clone(messages)
	for i := range copies {
		copies[i].Body = slices.Clone(copies[i].Body)
	}
	return copies
}

func copyJournal(j *session.Journal) *session.Journal {
	if j == nil {
		return nil
	}
	c := *j
	c.Plan = slices.Clone(j.Plan)
	c.CallIDs = slices.Clone(j.CallIDs)
	c.Usage = slices.Clone(j.Usage)
	c.Ops = slices.Clone(j.Ops)
	c.Results = nil
	for _, r := range j.Results {
		c.Results = append(c.Results, copyResult(r))
	}
	return &c
}

func copyResult(r session.Result) session.Result {
	r.Body = slices.Clone(r.Body)
	r.Ops = slices.Clone(r.Ops)
	r.Usage = slices.Clone(r.Usage)
	return r
}

// copyCheckpoint leaves the record out.
func copyCheckpoint(c *session.Checkpoint) *session.Checkpoint {
	d := *c
	d.Warnings, d.Record = slices.Clone(c.Warnings), nil
	return &d
}

// copyCall keeps no empty bytes apart from none: the other stores cannot.
func copyCall(c session.Call) session.Call {
	c.Stash = append([]byte(nil), c.Stash...)
	c.Response = append([]byte(nil), c.Response...)
	c.Late = append([]byte(nil), c.Late...)
	return c
}

func copyHeld(h session.Held) session.Held {
	return session.Held{Messages: copyMessages(h.Messages)}
}

func copyMemory(m session.Memory) session.Memory {
	m.Metadata = maps.Clone(m.Metadata)
	return m
}
