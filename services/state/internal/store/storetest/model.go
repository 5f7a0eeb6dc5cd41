package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// modelSession is a session of the reference model. It implements the rules of the
// specification as simply as possible, without code of package session.
type modelSession struct {
	Status       session.Status
	Version      int64
	Epoch        int64
	Turn         int32
	Steps        int32
	Resumes      int32
	Messages     []string                     // ids; a step's message ends with the run id, a result with the run id and the step
	Queue        []modelRun                   // the waiting runs, in order
	EndedWaiting map[string]modelRun          // waiting runs that ended before they began, by id
	RunByMessage map[string]string            // the runs of the users' messages, by message id
	StartStates  map[string]map[string]string // the start states of runs, by run id; not compared
	StartState   map[string]string            // the start state of the newest run; nil when the store does not keep it
	State        map[string]string
	StateVersion int64
	Runs         []modelRun // by turn
	Calls        map[string]modelCall
	Checkpoints  []modelCheckpoint // by step
	Plan         string            // empty for none
	PlanWrites   bool              // whether the plan writes to the state
	Results      []string          // the plan's calls with a result
	Expires      session.Millis
	Interrupted  bool
	Failed       bool
	Aborted      bool // the failure is an abort
	MaxSteps     bool // the failure is the limit of steps
}

type modelRun struct {
	ID        string
	Key       string
	Status    session.RunStatus
	Entry     session.Entry
	Epoch     int64
	Attempt   int32
	Held      bool
	Stop      session.StopKind
	StopAt    session.Millis
	Claimed   session.Millis
	Rollback  bool
	Policy    session.BusyPolicy
	Message   string // its own message
	From      int    // the number of messages at its start
	FromState int64  // the state version at its start
	FromTurn  int    // From of the turn's first run
	Due       session.Millis
	Losses    int32
	Steps     int32
	Finished  int32 // the step that ended it; 0 for none
	Failure   string
	Created   session.Millis
	StartedBy string
	Priority  int32
}

type modelCall struct {
	Run            string
	Step           int32
	Deadline       session.Millis
	Answer         session.AnswerKind
	Revision       int32
	Consumed       bool
	Taken          int32 // the step that consumed it
	Late           bool
	LateReported   bool
	LateReportedAt int32 // the step that reported it
}

type modelCheckpoint struct {
	ID           string
	Step         int32
	Epoch        int64
	Run          string
	Messages     int
	StateVersion int64
	Failed       bool // the step failed the run
	State        map[string]string
}

func (p *modelSession) clone() *modelSession {
	if p == nil {
		return nil
	}
	c := *p
	c.Messages, c.Runs, c.Checkpoints, c.Results = slices.Clone(p.Messages), slices.Clone(p.Runs), slices.Clone(p.Checkpoints),
		slices.Clone(p.Results)
	c.State, c.Calls, c.EndedWaiting = maps.Clone(p.State), maps.Clone(p.Calls), maps.Clone(p.EndedWaiting)
	c.Queue, c.RunByMessage, c.StartStates = slices.Clone(p.Queue), maps.Clone(p.RunByMessage), maps.Clone(p.StartStates)
	return &c
}

// liveRun returns the queued or running run; nil for none.
func (p *modelSession) liveRun() *modelRun {
	for i := range p.Runs {
		if p.Runs[i].Status.Live() {
			return &p.Runs[i]
		}
	}
	return nil
}

func (p *modelSession) run(id string) *modelRun {
	for i := range p.Runs {
		if p.Runs[i].ID == id {
			return &p.Runs[i]
		}
	}
	return nil
}

// openCalls returns the unanswered calls.
func (p *modelSession) openCalls() (ids []string) {
	for id, c := range p.Calls {
		if c.Answer == "" && !c.Consumed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// answeredCalls returns the answered calls that no step has consumed.
func (p *modelSession) answeredCalls() (ids []string) {
	for id, c := range p.Calls {
		if c.Answer != "" && !c.Consumed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (p *modelSession) dropOpenCalls(run string) {
	for _, id := range p.openCalls() {
		if run == "" || p.Calls[id].Run == run {
			delete(p.Calls, id)
		}
	}
}

// beginRun begins the next run.
func (p *modelSession) beginRun(id, key, message string, entry session.Entry, now session.Millis) {
	p.Turn++
	p.Status, p.Expires, p.Interrupted = session.Active, 0, p.Interrupted && entry == session.EntryContinuation
	p.Failed, p.Aborted, p.MaxSteps = false, false, false
	if entry != session.EntryStart {
		p.Resumes++
	}
	p.StartState = maps.Clone(p.State)
	p.StartStates[id] = p.StartState
	turn, starter, priority := len(p.Messages), "", int32(0)
	if entry == session.EntryContinuation {
		last := p.Runs[len(p.Runs)-1]
		turn, message, starter, priority = last.FromTurn, last.Message, last.StartedBy, last.Priority
	}
	p.Runs = append(p.Runs, modelRun{
		ID: id, Key: key, Status: session.RunQueued, Entry: entry, Created: now, Message: message, From: len(p.Messages),
		FromState: p.StateVersion, FromTurn: turn, StartedBy: starter, Priority: priority,
	})
}

// knowsRequest reports whether a request with the key was accepted.
func (p *modelSession) knowsRequest(key string) bool {
	is := func(r modelRun) bool { return key != "" && r.Key == key }
	return slices.ContainsFunc(p.Runs, is) || slices.ContainsFunc(p.Queue, is) ||
		slices.ContainsFunc(slices.Collect(maps.Values(p.EndedWaiting)), is)
}

// enqueue appends a start to the waiting runs, or returns the reason of the refusal.
func (p *modelSession) enqueue(c session.RunRequest) string {
	switch {
	case c.OnBusy == session.BusyReject, c.OnBusy == "" && p.Status == session.Active:
		return "SESSION_BUSY"
	case len(p.Queue) >= limits.Waiting:
		return "TOO_MANY_WAITING"
	}
	p.Version++
	policy := cmp.Or(c.OnBusy, session.BusyEnqueue)
	p.Queue = append(p.Queue, modelRun{ID: c.RunID, Key: c.RequestKey, Message: c.MessageID, Status: session.RunWaiting,
		Entry: session.EntryStart, Policy: policy, Created: c.Now, StartedBy: c.By.Actor, Priority: c.Priority})
	if r := p.liveRun(); r != nil && policy != session.BusyEnqueue {
		r.requestStop(session.StopInterrupt, policy == session.BusyRollback, c.Now)
	}
	return ""
}

func (r *modelRun) requestStop(kind session.StopKind, undo bool, now session.Millis) {
	switch {
	case r.Stop == "", r.Stop == session.StopInterrupt && kind == session.StopAbort:
		r.Stop, r.StopAt, r.Due = kind, now, 0
	case undo && !r.Rollback:
		r.Due = 0
	}
	r.Rollback = r.Rollback || undo
}

// beginWithMessages begins a run with its messages.
func (p *modelSession) beginWithMessages(c session.RunRequest, entry session.Entry) {
	p.beginRun(c.RunID, c.RequestKey, c.MessageID, entry, c.Now)
	p.Runs[len(p.Runs)-1].StartedBy = c.By.Actor
	p.Runs[len(p.Runs)-1].Priority = c.Priority
	p.Messages = append(p.Messages, idsOf(c.Messages)...)
	for _, m := range c.Messages {
		p.RunByMessage[m.ID] = m.RunID
	}
}

// applyAddition applies a continuing run's additional messages and writes.
func (p *modelSession) applyAddition(a session.Addition) {
	p.Messages = append(p.Messages, idsOf(a.Append)...)
	for _, op := range a.Ops {
		p.write(op.Key, op.Value)
	}
}

// forgetRemovedMessages drops the runs of removed messages.
func (p *modelSession) forgetRemovedMessages() {
	maps.DeleteFunc(p.RunByMessage, func(id, _ string) bool { return !slices.Contains(p.Messages, id) })
}

func idsOf(messages []session.Message) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// beginNext begins the first waiting run of an ended session. ended is the run ended by the
// same command; nil for none. starts holds all starts by run id.
func (p *modelSession) beginNext(ended *modelRun, starts map[string]session.RunRequest) {
	if len(p.Queue) == 0 || p.Status == session.Active || p.Status.Suspended() {
		return
	}
	p.Version++
	if ended != nil && ended.Rollback && slices.ContainsFunc(p.Queue, func(r modelRun) bool { return r.Policy == session.BusyRollback }) {
		p.rollBack(*ended)
	}
	p.setAnswers(p.openCalls(), session.AnswerAbandoned)
	first := p.Queue[0]
	p.Queue = p.Queue[1:]
	p.beginWithMessages(starts[first.ID], session.EntryStart)
	p.Runs[len(p.Runs)-1].Policy = first.Policy
}

// rollBack removes the run's work.
func (p *modelSession) rollBack(r modelRun) {
	before := p.Steps - r.Steps
	stays := map[string]bool{}
	for _, call := range p.Calls {
		if call.Consumed && call.Step <= before {
			stays[fmt.Sprint("#", call.Taken)] = true
		}
	}
	from := min(r.From, len(p.Messages)) // messages may have been truncated
	p.Messages = append(slices.Clone(p.Messages[:from]), slices.DeleteFunc(slices.Clone(p.Messages[from:]), func(id string) bool {
		_, of, _ := strings.Cut(id, "@")
		step, mine := strings.CutPrefix(of, r.ID)
		return mine && (step == "" || step[0] == '#' && !stays[step])
	})...)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(c modelCheckpoint) bool {
		return c.Messages > from || c.StateVersion > r.FromState || c.Run == r.ID
	})
	p.State, p.StateVersion = maps.Clone(p.StartState), r.FromState
	p.dropOpenCalls(r.ID)
	for id, call := range p.Calls {
		if call.LateReportedAt > before && call.Step <= before {
			call.LateReported, call.LateReportedAt = false, 0
			p.Calls[id] = call
		}
	}
}

// failWaiting fails the waiting runs.
func (p *modelSession) failWaiting(failure string) {
	for _, r := range p.Queue {
		p.endWaiting(r, session.RunFailed, failure)
	}
	p.Queue = nil
}

func (p *modelSession) endWaiting(r modelRun, status session.RunStatus, failure string) {
	r.Status, r.Failure = status, failure
	if p.EndedWaiting == nil {
		p.EndedWaiting = map[string]modelRun{}
	}
	p.EndedWaiting[r.ID] = r
}

// continueIfAnswered continues a suspended session without open calls.
func (p *modelSession) continueIfAnswered(id string, now session.Millis) bool {
	if !p.Status.Suspended() || len(p.openCalls()) > 0 {
		return false
	}
	p.beginRun(id, "", "", session.EntryContinuation, now)
	return true
}

// ownerRefusal returns why the claim may not write; empty if it may.
func (p *modelSession) ownerRefusal(run string, epoch int64) string {
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

// isRepeatedEnd reports whether the claim is the last one of an ended run, and so may repeat
// the run's end.
func (p *modelSession) isRepeatedEnd(run string, epoch int64) bool {
	if p == nil {
		return false
	}
	r := p.run(run)
	return r != nil && !r.Status.Live() && r.Status != session.RunWaiting && r.Epoch == epoch && epoch != 0
}

// writeRefusal is ownerRefusal for a write to the next step of a live run.
func (p *modelSession) writeRefusal(run string, epoch int64, step int32) string {
	if reason := p.ownerRefusal(run, epoch); reason != "" {
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

// endRun ends the run with a status; step is 0 outside of a step.
func (p *modelSession) endRun(r *modelRun, status session.RunStatus, step int32) {
	r.Status, r.Held, r.Finished, r.Failure = status, false, step, failureOf(status)
	p.Status = session.Status(status)
	p.Interrupted, p.Failed, p.Aborted, p.MaxSteps = status == session.RunInterrupted, status == session.RunFailed, false, false
	if p.Failed {
		p.dropOpenCalls(r.ID)
	}
}

// failureOf returns the error of a run ended by its owner.
func failureOf(status session.RunStatus) string {
	if status == session.RunFailed {
		return "it failed"
	}
	return ""
}

// forceStatus sets the session's status from outside and ends its live run. failure is the
// error if the status is failed.
func (p *modelSession) forceStatus(status session.Status, failure string) (ended *modelRun) {
	p.Version++
	p.Status, p.Interrupted, p.Failed, p.Aborted, p.MaxSteps = status, status == session.Interrupted, status == session.Failed, false, false
	if p.Failed {
		p.dropOpenCalls("")
	}
	r := p.liveRun()
	if r == nil {
		return nil
	}
	p.Epoch++
	r.Epoch = p.Epoch
	r.Held, r.Finished = false, 0
	if p.Failed {
		r.Failure = failure
	}
	r.Status = map[session.Status]session.RunStatus{session.Completed: session.RunCompleted, session.Failed: session.RunFailed}[status]
	if r.Status == "" {
		r.Status = session.RunInterrupted
	}
	p.Plan, p.PlanWrites, p.Results = "", false, nil
	return r
}

// write sets a key of the state.
func (p *modelSession) write(key, value string) {
	if p.State[key] != value {
		p.State[key] = value
		p.StateVersion = p.Version
	}
}

// truncate removes the messages after the first ones, and their checkpoints.
func (p *modelSession) truncate(messages int) {
	p.Version++
	p.Messages = p.Messages[:messages]
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(c modelCheckpoint) bool { return c.Messages > messages })
}
