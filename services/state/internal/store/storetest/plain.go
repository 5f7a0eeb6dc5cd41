package storetest

import (
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// plain is a session as the machine knows it: the rules of the specification
// said once more, in the simplest way, without a line of the heart.
type plain struct {
	Status       session.Status
	Version      int64
	Epoch        int64
	Turn         int32
	Steps        int32
	Resumes      int32
	Messages     []string
	State        map[string]string
	StateVersion int64
	Runs         []plainRun // by turn
	Calls        map[string]plainCall
	Checkpoints  []plainCheckpoint // by step
	Plan         string            // empty for none
	Results      []string          // the calls of the plan that have one
	Expires      session.Millis
	Interrupted  bool
	Failed       bool
}

type plainRun struct {
	ID       string
	Key      string
	Status   session.RunStatus
	Entry    session.Entry
	Epoch    int64
	Attempt  int32
	Held     bool
	Settled  bool
	Stop     session.StopKind
	Due      session.Millis
	Losses   int32
	Steps    int32
	Finished int32 // the step that finished it
	Failure  string
	Created  session.Millis
}

type plainCall struct {
	Run      string
	Step     int32
	Deadline session.Millis
	Answer   session.AnswerKind
	Revision int32
	Consumed bool
	Late     bool
	Told     bool
}

type plainCheckpoint struct {
	ID           string
	Step         int32
	Epoch        int64
	Run          string
	Messages     int
	StateVersion int64
	State        map[string]string
}

func (p *plain) clone() *plain {
	if p == nil {
		return nil
	}
	c := *p
	c.Messages, c.Runs, c.Checkpoints, c.Results = slices.Clone(p.Messages), slices.Clone(p.Runs), slices.Clone(p.Checkpoints), slices.Clone(p.Results)
	c.State, c.Calls = maps.Clone(p.State), maps.Clone(p.Calls)
	return &c
}

// live returns the run that is queued or running; nil for none.
func (p *plain) live() *plainRun {
	for i := range p.Runs {
		if p.Runs[i].Status.Live() {
			return &p.Runs[i]
		}
	}
	return nil
}

func (p *plain) unsettled() bool {
	return slices.ContainsFunc(p.Runs, func(r plainRun) bool { return !r.Status.Live() && !r.Settled })
}

func (p *plain) run(id string) *plainRun {
	for i := range p.Runs {
		if p.Runs[i].ID == id {
			return &p.Runs[i]
		}
	}
	return nil
}

// open returns the calls without an answer.
func (p *plain) open() (ids []string) {
	for id, c := range p.Calls {
		if c.Answer == "" && !c.Consumed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// answered returns the calls whose answers no step has taken.
func (p *plain) answered() (ids []string) {
	for id, c := range p.Calls {
		if c.Answer != "" && !c.Consumed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (p *plain) drop(run string) {
	for _, id := range p.open() {
		if run == "" || p.Calls[id].Run == run {
			delete(p.Calls, id)
		}
	}
}

// begin makes the next run.
func (p *plain) begin(id, key string, entry session.Entry, now session.Millis) {
	p.Turn++
	p.Status, p.Expires, p.Interrupted, p.Failed = session.Active, 0, p.Interrupted && entry == session.EntryContinuation, false
	if entry != session.EntryStart {
		p.Resumes++
	}
	p.Runs = append(p.Runs, plainRun{ID: id, Key: key, Status: session.RunQueued, Entry: entry, Created: now})
}

// wake continues a suspended session that waits for nothing any more.
func (p *plain) wake(id string, now session.Millis) bool {
	if !p.Status.Suspended() || len(p.open()) > 0 {
		return false
	}
	p.begin(id, "", session.EntryContinuation, now)
	return true
}

// owns gives the reason for which the claim may not write; empty for none.
func (p *plain) owns(run string, epoch int64) string {
	if p == nil {
		return "SESSION_NOT_FOUND"
	}
	switch r := p.run(run); {
	case r == nil:
		return "RUN_NOT_FOUND"
	case epoch != p.Epoch, epoch != r.Epoch, r.Status == session.RunQueued:
		return "EPOCH_STALE"
	default:
		return ""
	}
}

// settled reports whether the claim was the last one of a run that is settled,
// whose end it may repeat.
func (p *plain) settled(run string, epoch int64) bool {
	if p == nil {
		return false
	}
	r := p.run(run)
	return r != nil && r.Settled && r.Epoch == epoch
}

// writes is owns for a run that must be live, in the step in flight.
func (p *plain) writes(run string, epoch int64, step int32) string {
	if reason := p.owns(run, epoch); reason != "" {
		return reason
	}
	switch {
	case !p.run(run).Status.Live():
		return "RUN_FINISHED"
	case step != p.Steps+1:
		return "STEP_STALE"
	}
	return ""
}

// end ends the run with a status; step is 0 outside of a step.
func (p *plain) end(r *plainRun, status session.RunStatus, step int32) {
	r.Status, r.Finished, r.Failure = status, step, failureOf(status)
	p.Status = session.Status(status)
	p.Interrupted, p.Failed = status == session.RunInterrupted, status == session.RunFailed
	if p.Failed {
		p.drop(r.ID)
	}
}

// failureOf is the error of a run that an owner ends.
func failureOf(status session.RunStatus) string {
	if status == session.RunFailed {
		return "it failed"
	}
	return ""
}

// force ends what the session does from outside. The failure is that of a
// session that fails.
func (p *plain) force(status session.Status, failure string) {
	p.Version++
	p.Status, p.Interrupted, p.Failed = status, status == session.Interrupted, status == session.Failed
	if p.Failed {
		p.drop("")
	}
	r := p.live()
	if r == nil {
		return
	}
	if p.unsettled() {
		r.Settled = true
	} else {
		p.Epoch++
	}
	r.Held, r.Finished = false, 0
	if p.Failed {
		r.Failure = failure
	}
	r.Status = map[session.Status]session.RunStatus{session.Completed: session.RunCompleted, session.Failed: session.RunFailed}[status]
	if r.Status == "" {
		r.Status = session.RunInterrupted
	}
	p.Plan, p.Results = "", nil
}

// write puts a value into the state.
func (p *plain) write(key, value string) {
	if p.State[key] != value {
		p.State[key] = value
		p.StateVersion = p.Version
	}
}

// cut takes messages back, and the checkpoints that counted them.
func (p *plain) cut(messages int) {
	p.Version++
	p.Messages = p.Messages[:messages]
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(c plainCheckpoint) bool { return c.Messages > messages })
}
