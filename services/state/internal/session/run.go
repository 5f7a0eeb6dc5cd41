package session

import (
	"cmp"

	"github.com/holdfast-run/holdfast/pkg/position"
)

// RunStatus is the status of a run.
type RunStatus string

// The statuses of a run. A suspended run has ended, and another run continues the session. A
// waiting run is neither live nor ended.
const (
	RunWaiting                   RunStatus = "waiting"
	RunQueued                    RunStatus = "queued"
	RunRunning                   RunStatus = "running"
	RunCompleted                 RunStatus = "completed"
	RunFailed                    RunStatus = "failed"
	RunInterrupted               RunStatus = "interrupted"
	RunSuspendedClientTool       RunStatus = "suspended_client_tool"
	RunSuspendedAwaitingChildren RunStatus = "suspended_awaiting_children"
	RunSuspendedStepPartial      RunStatus = "suspended_step_partial"
)

// inheritAuthor notes the author of the message for a run that answers it anew, in place of another run; nil if
// unknown.
func (r *Run) inheritAuthor(of *Run) {
	if of == nil {
		return
	}
	if author := cmp.Or(of.Author, of.StartedBy); author != r.StartedBy {
		r.Author = author
	}
}

// Live reports whether the run is queued or running.
func (s RunStatus) Live() bool { return s == RunQueued || s == RunRunning }

// Ended reports whether the run has ended.
func (s RunStatus) Ended() bool { return !s.Live() && s != RunWaiting }

// Run is one execution of a session.
type Run struct {
	RunID         string
	AgentType     string // what an executor must announce to claim it: the type of its agent, or StoredAgents
	StoredAgent   string // the type of the agent if it is stored; else empty
	Definition    string // the hash of the stored definition that the newest claim runs; empty for none
	Turn          int32  // 0 for a run that never began
	Status        RunStatus
	RequestKey    string // empty for none
	RequestHash   []byte // a repeat of the key must have the same hash; nil without a key
	MessageID     string
	StartPosition int64 // the session's when the run began; output of the run lies behind it
	EndPosition   int64 // of the run's end; 0 before. A run that never began ends where it starts
	StepCount     int32 // committed steps of this run
	Outcome       Outcome
	Attempt       int32 // number of claims
	Entry         Entry
	Priority      int32  // among the queued runs of its tenant; higher ones are claimed first
	UserID        string // the session's user when the run was made, whose quotas it counts for; empty for none
	Stop          *Stop  // nil unless a stop was requested
	DueAt         Millis // not claimed before; 0 for at once
	Losses        int32  // losses of its executor since the last committed step
	DeadlineAt    Millis // its executor ends it at this time; 0 for never
	Traceparent   string
	Tracestate    string
	StartedBy     string // the actor of the request that began it, or of the run that it continues; empty if unknown
	Author        string // the actor of the request with the turn's message, if another one started the run anew; else empty
	CreatedAt     Millis
	StartedAt     Millis // first claim
	CompletedAt   Millis

	Epoch         int64  // of the newest claim; 0 before the first
	ExecutorID    string // the owner; empty for none. A secret: see ExecutorName
	ClaimedAt     Millis // newest claim
	FinishStep    int32  // its commit ended the run; 0 if Finish did
	FinishVersion int64  // the session's version at the end of the run; 0 before

	OnBusy     BusyPolicy // the policy that made it wait; empty for a run that never waited
	QueuePlace int64      // order of waiting runs, lowest first: the session's version when it began to wait; 0 for a run that never waited

	// The session when the run began. The state versions are 0 before.
	StartMessageCount int64 // without the run's own first messages
	StartStateVersion int64 // as Session.StateVersion
	StartStateBase    int64

	TurnMessageCount int64 // StartMessageCount of the turn's first run; continuations belong to the same turn
}

// Agent returns the type of the run's agent.
func (r *Run) Agent() string { return cmp.Or(r.StoredAgent, r.AgentType) }

// stepBefore returns the last step before the run began. Run.StepCount does not tell, because the session may have
// skipped numbers since. counted is the answer for a run that began before sessions had positions.
func (r *Run) stepBefore(counted int32) int32 {
	if r.StartPosition == 0 && r.Turn > 1 {
		return counted
	}
	return position.LastStep(r.StartPosition)
}

// StepBefore returns the last step of the session before its newest run began.
func (s *Session) StepBefore(newest *Run) int32 {
	return newest.stepBefore(s.StepCount - newest.StepCount)
}

// Entry is the reason for a run.
type Entry string

// The reasons for runs.
const (
	EntryStart        Entry = "start"        // new messages
	EntryResume       Entry = "resume"       // a request to continue
	EntryContinuation Entry = "continuation" // the awaited calls and children have ended
)

// BusyPolicy tells how a new run treats a live one.
type BusyPolicy string

// The policies.
const (
	BusyReject    BusyPolicy = "reject"
	BusyEnqueue   BusyPolicy = "enqueue"   // wait for the live run
	BusyInterrupt BusyPolicy = "interrupt" // wait, and interrupt the live run
	BusyRollback  BusyPolicy = "rollback"  // wait, interrupt the live run, and undo it when it has ended
)

// Stop is a request to end a run early. It stays with the run.
type Stop struct {
	Kind   StopKind `json:"kind"`
	Reason string   `json:"reason,omitempty"`
	At     Millis   `json:"at,omitempty"`
	Undo   bool     `json:"undo,omitempty"` // undo the run when a waiting run begins
}

// StopKind is the kind of a stop.
type StopKind string

// The kinds. An abort outranks an interrupt. Only the service requests StopAgentGone.
const (
	StopInterrupt StopKind = "interrupt"  // the session can be resumed
	StopAbort     StopKind = "abort"      // the run fails
	StopAgentGone StopKind = "agent_gone" // the run fails, because its agent is gone: see ClaimUnserved
)

// Outcome is the end of a run. Status is empty while the run is live.
type Outcome struct {
	Status           RunStatus
	Output           string // JSON, or empty
	Failure          *Failure
	CompletionReason string
	FinishReason     string  // of the last model call; empty for none
	Usage            *Tokens // of the run; nil if unknown
}

// equal reports whether both are the same end. It ignores FinishReason and Usage, since an
// older release may have written the first outcome without them.
func (o Outcome) equal(p Outcome) bool {
	if (o.Failure == nil) != (p.Failure == nil) || o.Failure != nil && *o.Failure != *p.Failure {
		return false
	}
	return o.Status == p.Status && o.Output == p.Output && o.CompletionReason == p.CompletionReason
}

// Tokens are the tokens of model calls.
type Tokens struct {
	Prompt     int64 `json:"prompt,omitempty"`
	Completion int64 `json:"completion,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	Cached     int64 `json:"cached,omitempty"`
	Total      int64 `json:"total,omitempty"`
}

// beginRun activates the session in its next turn, with the run as its newest.
func (s *Session) beginRun(r *Run) {
	s.Status = Active
	s.Turn++
	s.CurrentRunID = r.RunID
	s.Output, s.Failure = "", nil
	s.Suspension, s.Interruption = nil, nil
	s.ExpiresAt = 0
	r.Status, r.Turn, r.StartPosition = RunQueued, s.Turn, s.Position
	r.StartMessageCount, r.TurnMessageCount = s.MessageCount, s.MessageCount
	r.StartStateVersion, r.StartStateBase = s.StateVersion, s.StateBase
}

// ExecutorName returns the beginning of an executor's id, for logs. Who knows the whole id can take the executor's claims.
func ExecutorName(id string) string { return id[:len(id)/4] }
