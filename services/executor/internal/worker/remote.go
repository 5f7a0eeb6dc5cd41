package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/remote"
)

// codeSubAgentLost is the code of a run whose remote agent cannot be followed, as in the specification. The detail
// begins with the cause: not_found, refused:REASON or status_unreachable.
const codeSubAgentLost = "framework_subagent_lost"

// How often a run of a remote agent checks that it is still this executor's, and that its remote session goes on.
const (
	ownerInterval  = 2 * time.Second
	pausedInterval = time.Second
)

// progressKey is the key of remoteProgress in the custom state of a remote agent's session.
const progressKey = "remote"

// remoteProgress is the newest step that is committed here: its session, run and number there.
type remoteProgress struct {
	Session string `json:"session"`
	Run     string `json:"run"`
	Step    int32  `json:"step"`
	// Below has the open calls here of sub-agents there, by local id. Their results stay there.
	Below []string `json:"below,omitempty"`
}

// errEndedOutside means that the run was ended by somebody else than this executor, or has another owner.
var errEndedOutside = errors.New("the run is no longer this executor's")

// remoteRun executes a run of a remote agent: see package remote. One goroutine owns it.
type remoteRun struct {
	*runner
	client   *client.Client
	agent    agent.Remote
	session  string // there
	progress remoteProgress
	mirror   *remote.Mirror
	held     *remote.Step       // a committed step there with calls for a client: the next commit here
	consumed []loop.Consumed    // answers that the next commit consumes
	results  []agent.ToolResult // of the calls of Below among them
	usage    model.Usage
	stopped  *loop.Stop // delivered, or given up
}

// remoteEnd is the end of a run there.
type remoteEnd struct {
	paused  bool
	outcome loop.Outcome
}

// executeRemote executes the run of a remote agent.
func (r *runner) executeRemote(ctx context.Context) error {
	if err := r.loadState(); err != nil {
		return err
	}
	r.claim.Messages = slices.Clone(r.claim.GetMessages())
	definition := *r.code.agent.Remote
	m := &remoteRun{
		runner: r, agent: definition, session: remote.SessionID(r.claimed.plannerRun()),
		client: client.New(client.Config{URL: definition.URL, Key: definition.Key, HTTP: model.HTTPClient(nil), Patience: r.config.RemotePatience}),
	}
	if text, err := json.Marshal(r.writes.state[progressKey]); err == nil {
		_ = json.Unmarshal(text, &m.progress) // nothing before the first step
	}
	owned, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	go m.watchOwner(owned, lose)
	err := m.copyAll(owned)
	if errors.Is(context.Cause(owned), errEndedOutside) || isLost(err) {
		m.stopOwed(ctx)
		return fault.New(fault.Stale, "EPOCH_STALE", "%v", errEndedOutside)
	}
	return err
}

// watchOwner ends the context of the run when the session has another epoch: an owner is told of a stop, but not of
// the end of a run from outside, as by the failure of its parent.
func (m *remoteRun) watchOwner(ctx context.Context, lose context.CancelCauseFunc) {
	ticks := time.NewTicker(ownerInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		found, err := m.peers.Sessions.GetSession(call, &statev1.GetSessionRequest{Tenant: m.claimed.ref.GetTenant(), SessionId: m.claimed.ref.GetSessionId()})
		cancel()
		if fault.KindOf(err) == fault.NotFound || err == nil && found.GetSession().GetEpoch() != m.claimed.ref.GetEpoch() {
			lose(errEndedOutside)
			return
		}
	}
}

// copyAll copies the runs there until the run here has ended. A stop is delivered there, and its consequences are
// copied.
func (m *remoteRun) copyAll(ctx context.Context) error {
	run, err := m.begin(ctx)
	if err != nil {
		return m.failLost(ctx, err)
	}
	for {
		next, done, err := m.copyRun(ctx, run)
		switch {
		case done:
			return err
		case isClosed(m.draining):
			return errDraining
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case m.stopper.hasNew():
			if err := m.deliverStop(ctx); err != nil {
				return m.finishRemote(ctx, m.stopped.Outcome())
			}
		case err != nil:
			return m.failLost(ctx, err)
		default:
			run = next
		}
	}
}

// copyRun copies one run there to its end. It returns the next run, or done if the run here has ended.
func (m *remoteRun) copyRun(ctx context.Context, run string) (next string, done bool, err error) {
	cuttable, end := m.stopper.cuttable(ctx)
	defer end()
	cuttable, cut := context.WithCancelCause(cuttable)
	defer cut(nil)
	go func() {
		select {
		case <-m.draining:
			cut(errDraining)
		case <-cuttable.Done():
		}
	}()
	last, err := m.follow(cuttable, run)
	if err == nil && !last.paused && m.held != nil {
		if failed := m.commitHeld(cuttable); failed != nil {
			err = commitError{failed}
		}
	}
	if err != nil {
		return "", isCommitError(err) && cuttable.Err() == nil, err
	}
	if !last.paused {
		return "", true, m.finishRemote(ctx, last.outcome)
	}
	return m.afterPause(cuttable, run)
}

// commitError is an error of the services here. Other errors come from the other Holdfast.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

func isCommitError(err error) bool {
	_, ok := errors.AsType[commitError](err)
	return ok
}

// follow copies the chunks of a run there, and commits its steps here.
func (m *remoteRun) follow(ctx context.Context, run string) (remoteEnd, error) {
	if m.mirror != nil {
		m.void()
	}
	m.held, m.mirror = nil, remote.NewMirror(m.progress.Step, func(id string) string { return remote.CallID(m.claimed.plannerRun(), id) })
	for frame, err := range m.client.Follow(ctx, &agentv1.StreamRequest{SessionId: m.session, RunId: run}) {
		if err != nil {
			return remoteEnd{}, err
		}
		switch {
		case frame.GetChunk() != nil:
			if err := m.copyChunk(ctx, run, frame.GetChunk()); err != nil {
				return remoteEnd{}, commitError{err}
			}
		case frame.GetRewound() != nil:
			m.void()
		case frame.GetEnd() != nil:
			return m.endOf(frame.GetEnd()), nil
		case frame.GetFail() != nil:
			f := frame.GetFail()
			return remoteEnd{outcome: failedRemotely(f.GetError(), f.GetCode())}, nil
		}
	}
	return remoteEnd{}, fault.New(fault.Unavailable, "STREAM_CUT", "the stream ended without an end of its run")
}

func (m *remoteRun) copyChunk(ctx context.Context, run string, c *agentv1.Chunk) error {
	if u := c.GetChunk().GetRunCompleted().GetUsage(); u != nil {
		m.usage = model.Usage{
			PromptTokens: u.GetPromptTokens(), CompletionTokens: u.GetCompletionTokens(), ReasoningTokens: u.GetReasoningTokens(),
			CachedTokens: u.GetCachedTokens(), TotalTokens: u.GetTotalTokens(),
		}
	}
	if c.GetChunk().GetStepDiscarded() != nil {
		m.void()
		return nil
	}
	shown, committed := m.mirror.Add(c.GetChunk())
	if shown != nil {
		if err := m.view.show(ctx, m.step+1, shown); err != nil {
			return err
		}
	}
	if !committed {
		return nil
	}
	step := m.mirror.Commit()
	m.progress.Session, m.progress.Run = m.session, run
	if m.held = &step; step.Waits {
		return nil // until the pause, with the calls
	}
	return m.commitHeld(ctx)
}

// commitHeld commits the held step without a suspension.
func (m *remoteRun) commitHeld(ctx context.Context) error { return m.commitCopy(ctx, loop.Commit{}) }

// void drops the step in flight, also for readers.
func (m *remoteRun) void() {
	if m.mirror.InFlight() {
		m.mirror.Void()
		m.view.voidStep(m.writes.stored)
	}
}

// commitCopy commits a step here: the held step, the progress, and the answers that have been sent.
func (m *remoteRun) commitCopy(ctx context.Context, c loop.Commit) error {
	c.Step, c.Consumed = int(m.step)+1, m.consumed
	var step remote.Step
	if m.held != nil {
		step = *m.held
		m.progress.Step = step.Number
	}
	step.Results = slices.Concat(m.results, step.Results)
	for _, result := range m.results {
		if err := m.view.show(ctx, int32(c.Step), toolEnd(result)); err != nil {
			return err
		}
	}
	c.Decisions = m.decisions()
	m.progress.Below = slices.DeleteFunc(m.progress.Below, func(id string) bool {
		return slices.ContainsFunc(m.consumed, func(one loop.Consumed) bool { return one.CallID == id })
	})
	c.Messages = append(remote.Messages(m.claimed.plannerRun(), c.Step, step), c.Messages...)
	progress, err := json.Marshal(m.progress)
	if err != nil {
		return err
	}
	m.writes.addHook(c.Step, []agent.Op{{Key: progressKey, Kind: agent.OpReplace, Value: progress}})
	if err := m.commitStep(context.WithoutCancel(ctx), c); err != nil {
		return err
	}
	m.held, m.consumed, m.results = nil, nil, nil
	return nil
}

// decisions returns the decisions about the calls that the next commit consumes.
func (m *remoteRun) decisions() map[string]loop.Decision {
	decisions := map[string]loop.Decision{}
	for _, c := range m.claim.GetCalls() {
		if d := c.GetAnswer().GetApproval(); d != nil {
			decisions[c.GetToolCallId()] = loop.Decision{ApprovalID: c.GetApprovalId(), Approved: d.GetApproved(), Reason: d.GetReason()}
		}
	}
	return decisions
}

// endOf returns the end of a run there.
func (m *remoteRun) endOf(e *agentv1.End) remoteEnd {
	switch e.GetStatus() {
	case "paused":
		return remoteEnd{paused: true}
	case "interrupted":
		return remoteEnd{outcome: loop.Stop{Kind: loop.StopInterrupt}.Outcome()}
	}
	return remoteEnd{outcome: loop.Outcome{Status: loop.StatusCompleted, Output: toJSON(e.GetOutput()), FinishReason: model.FinishStop}}
}

func failedRemotely(text, code string) loop.Outcome {
	return loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{
		Error: text, Detail: "the remote agent has failed: " + text, Code: code,
	}}
}

// afterPause waits until the remote session continues with another run, or waits for a client. Then the run here
// waits for the client too.
func (m *remoteRun) afterPause(ctx context.Context, run string) (next string, done bool, err error) {
	deadline := m.peers.Now().Add(m.config.RemotePatience)
	for {
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		found, err := m.client.Get(call, m.session)
		cancel()
		if err == nil {
			deadline = m.peers.Now().Add(m.config.RemotePatience)
		}
		switch {
		case isRefusal(err):
			return "", false, err
		case err != nil && m.peers.Now().After(deadline):
			return "", false, err
		case err != nil:
		case found.GetRunId() != run && m.held != nil:
			if err := m.commitHeld(ctx); err != nil {
				return "", true, err
			}
			continue
		case found.GetRunId() != run:
			next, err := m.runAfter(ctx, run, found.GetRunId())
			return next, false, err
		case m.held != nil:
			own := slices.DeleteFunc(found.GetPendingCalls(), func(p *agentv1.PendingCall) bool { return p.GetSessionId() != m.session })
			if len(own) > 0 {
				return "", true, m.suspend(ctx, own)
			}
			if err := m.commitHeld(ctx); err != nil { // they are answered already
				return "", true, err
			}
			continue
		case len(found.GetPendingCalls()) > 0:
			return "", true, m.suspend(ctx, found.GetPendingCalls())
		case found.GetStatus() == "interrupted":
			return "", true, m.finishRemote(ctx, loop.Stop{Kind: loop.StopInterrupt}.Outcome())
		case found.GetStatus() == "failed":
			return "", true, m.finishRemote(ctx, failedRemotely(found.GetError(), found.GetErrorCode()))
		}
		if !sleep(ctx, pausedInterval) {
			return "", false, context.Cause(ctx)
		}
	}
}

// runAfter returns the run that continues a run there. newest may be a later one: each continuation names the run
// before it.
func (m *remoteRun) runAfter(ctx context.Context, run, newest string) (string, error) {
	for at := newest; ; {
		previous, err := m.previousRun(ctx, at)
		if err != nil || previous == run || previous == "" {
			return at, err
		}
		at = previous
	}
}

// previousRun returns the run that a run there continues; empty for none.
func (m *remoteRun) previousRun(ctx context.Context, run string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for frame, err := range m.client.Follow(ctx, &agentv1.StreamRequest{SessionId: m.session, RunId: run}) {
		if err != nil {
			return "", err
		}
		if c := frame.GetChunk(); c != nil {
			return c.GetChunk().GetRunResumed().GetPreviousRunId(), nil
		}
		if frame.GetEnd() != nil || frame.GetFail() != nil {
			break
		}
	}
	return "", nil
}

// suspend suspends the run here on the calls there.
func (m *remoteRun) suspend(ctx context.Context, pending []*agentv1.PendingCall) error {
	c := loop.Commit{Drain: true, Outcome: &loop.Outcome{Status: loop.StatusSuspendedClientTool, FinishReason: model.FinishToolCalls}}
	below := agent.Message{ID: loop.MessageID(m.claimed.plannerRun(), int(m.step)+1, "below", 0), Role: agent.RoleAssistant}
	for _, p := range pending {
		if m.isOpen(remote.CallID(m.claimed.plannerRun(), p.GetToolCallId())) { // since before an interrupt
			continue
		}
		open := loop.OpenCall{
			ToolCall: agent.ToolCall{ID: remote.CallID(m.claimed.plannerRun(), p.GetToolCallId()), Name: p.GetToolName(), Arguments: json.RawMessage(p.GetInput()), Dynamic: true},
			Approval: p.GetApprovalId() != "", ApprovalID: p.GetApprovalId(),
		}
		if at := p.GetDeadlineAt(); at > 0 { // the other Holdfast decides about it, and a little later it is decided
			open.AnswerWithin = loop.Millis(max(1, at-m.peers.Now().UnixMilli()) + pausedInterval.Milliseconds())
		}
		if err := m.view.showOpenCall(ctx, m.step+1, open); err != nil {
			return err
		}
		c.Suspend = append(c.Suspend, open)
		if p.GetSessionId() != m.session {
			m.progress.Below = append(m.progress.Below, open.ID)
			below.Parts = append(below.Parts, open.ToolCall)
			if err := m.view.show(ctx, m.step+1, toolStart(open.ToolCall, !open.Approval)); err != nil {
				return err
			}
		}
	}
	if len(below.Parts) > 0 {
		c.Messages = []agent.Message{below}
	}
	return m.commitCopy(ctx, c)
}

// isOpen reports whether the call was open at the claim.
func (m *remoteRun) isOpen(callID string) bool {
	return slices.ContainsFunc(m.claim.GetCalls(), func(c *statev1.Call) bool { return c.GetToolCallId() == callID && c.GetAnswer() == nil })
}

// finishRemote ends the run here. After a stop that was delivered, the end there is its consequence.
func (m *remoteRun) finishRemote(ctx context.Context, o loop.Outcome) error {
	if m.stopped != nil && o.Status != loop.StatusCompleted {
		o = m.stopped.Outcome()
	}
	m.runner.usage.addTokens("remote/"+m.agent.Agent, m.usage)
	return m.finish(ctx, o)
}

// failLost ends the run here because the run there cannot be followed.
func (m *remoteRun) failLost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cause := "status_unreachable"
	if isClosed(m.draining) {
		return errDraining
	}
	if isCommitError(err) {
		return err
	}
	if m.stopper.hasNew() {
		_ = m.deliverStop(ctx) // it has logged its error, and the run ends
	}
	switch {
	case m.stopped != nil:
		return m.finish(ctx, m.stopped.Outcome())
	case fault.ReasonOf(err) == "SESSION_NOT_FOUND", fault.ReasonOf(err) == "RUN_NOT_FOUND":
		cause = "not_found"
	case isRefusal(err):
		cause = "refused:" + fault.ReasonOf(err)
	}
	return m.finish(ctx, loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{
		Error: "The remote agent was lost.", Detail: fmt.Sprintf("%s: %v", cause, err), Code: codeSubAgentLost,
	}})
}

// isRefusal reports whether the other Holdfast has answered, and would answer the same again.
func isRefusal(err error) bool {
	f, ok := fault.From(err)
	return ok && f.Kind != fault.Unavailable && f.Kind != fault.Exhausted && f.Kind != fault.Internal
}

// begin starts or continues the remote session, and returns the run there to copy. All requests may be repeated.
func (m *remoteRun) begin(ctx context.Context) (run string, err error) {
	deadline := m.peers.Now().Add(m.config.RemotePatience)
	var wait backoff
	for {
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		run, err = m.request(call)
		cancel()
		if err == nil || ctx.Err() != nil || isRefusal(err) || m.peers.Now().After(deadline) || isClosed(m.draining) {
			return run, err
		}
		if err := wait.sleep(ctx); err != nil {
			return "", err
		}
	}
}

func (m *remoteRun) request(ctx context.Context) (run string, err error) {
	entry := m.claimed.run.GetEntry()
	if entry == statev1.RunEntry_RUN_ENTRY_CONTINUATION {
		return m.answer(ctx)
	}
	if entry == statev1.RunEntry_RUN_ENTRY_RESUME && m.progress.Run != "" {
		resumed, err := m.client.Resume(ctx, &agentv1.ResumeRequest{SessionId: m.session, Message: m.message(), RequestKey: m.claimed.ref.GetRunId()})
		switch fault.ReasonOf(err) {
		case "":
			return resumed.GetRunId(), nil
		case "SESSION_COMPLETED", "SESSION_BUSY", "SESSION_SUSPENDED": // the stop came too late there
			return m.answer(ctx)
		}
		return "", err
	}
	started, err := m.client.Start(ctx, &agentv1.StartRequest{
		SessionId: m.session, AgentType: m.agent.Agent, Message: m.message(), RequestKey: m.claimed.ref.GetRunId(),
		TimeoutMs: m.recorder.remaining(m.peers.Now()),
	})
	return started.GetRunId(), err
}

// message returns the texts of the users' messages that the run answers.
func (m *remoteRun) message() string {
	var texts []string
	stored := m.claim.GetMessages()
	for i := len(stored) - 1; i >= 0 && isUserMessage(stored[i]); i-- {
		texts = append(texts, textOf(stored[i]))
	}
	slices.Reverse(texts)
	return strings.Join(texts, "\n\n")
}

func isUserMessage(s *statev1.StoredMessage) bool {
	message, err := toMessage(s.GetMessage())
	return err == nil && message.Role == agent.RoleUser
}

func textOf(s *statev1.StoredMessage) string {
	message, err := toMessage(s.GetMessage())
	if err != nil {
		return ""
	}
	return message.Text()
}

// answer sends the answers to calls there, and returns the run that goes on. Calls that do not wait any more have
// been answered there: by this run before, or by their deadline.
func (m *remoteRun) answer(ctx context.Context) (run string, err error) {
	found, err := m.client.Get(ctx, m.session)
	if err != nil {
		return "", err
	}
	m.consumed, m.results = nil, nil
	for _, c := range m.claim.GetCalls() {
		if c.GetAnswer() == nil || c.GetConsumedAt() != 0 {
			continue
		}
		m.consumed = append(m.consumed, loop.Consumed{CallID: c.GetToolCallId(), Revision: int(c.GetRevision())})
		if i := slices.Index(m.progress.Below, c.GetToolCallId()); i >= 0 {
			m.results = append(m.results, resultBelow(c))
		}
		i := slices.IndexFunc(found.GetPendingCalls(), func(p *agentv1.PendingCall) bool {
			return remote.CallID(m.claimed.plannerRun(), p.GetToolCallId()) == c.GetToolCallId()
		})
		if i < 0 {
			continue
		}
		if err := m.submit(ctx, found.GetPendingCalls()[i], c.GetAnswer()); err != nil {
			return "", err
		}
	}
	if m.progress.Run != "" {
		return m.progress.Run, nil // its end leads to the run that continues it
	}
	return found.GetRunId(), nil
}

// resultBelow returns the result here of an answered call of a sub-agent there.
func resultBelow(c *statev1.Call) agent.ToolResult {
	answer := toAnswer(c, c.GetAnswer())
	result := agent.ToolResult{CallID: c.GetToolCallId(), Name: c.GetToolName(), Result: answer.Result, Success: answer.Error == "", Error: answer.Error}
	if decision := c.GetAnswer().GetApproval(); decision != nil {
		result.Success, result.Result = decision.GetApproved(), json.RawMessage(`null`)
		if !decision.GetApproved() {
			result.Error = "it was not approved"
		}
	}
	return result
}

func (m *remoteRun) submit(ctx context.Context, p *agentv1.PendingCall, a *statev1.CallAnswer) (err error) {
	call := client.Call{Session: m.session, ID: p.GetToolCallId(), Approval: p.GetApprovalId()}
	switch decision := a.GetApproval(); {
	case decision.GetApproved():
		_, err = m.client.Approve(ctx, call, decision.GetReason())
	case decision != nil:
		_, err = m.client.Deny(ctx, call, decision.GetReason())
	case a.GetError() != "":
		_, err = m.client.SubmitError(ctx, call, a.GetError())
	default:
		_, err = m.client.SubmitResult(ctx, call, json.RawMessage(a.GetResult()))
	}
	if fault.ReasonOf(err) == "UNKNOWN_TOOL_CALL" { // answered meanwhile
		return nil
	}
	return err
}

// deliverStop sends a new stop to the remote session until it is confirmed. The run here does not end before, so a
// new owner of the run delivers it if this executor is lost. It returns an error when it gives up.
func (m *remoteRun) deliverStop(ctx context.Context) error {
	stop, _ := m.stopper.takeNew()
	m.stopped = &stop
	err := m.sendStop(ctx, stop)
	if err != nil {
		m.log.ErrorContext(ctx, "the remote agent could not be stopped; it may go on", "url", m.agent.URL, "session", m.session, "error", err)
	}
	return err
}

// stopOwed stops the remote session of a run that was ended from outside. If another executor has the run, it goes on.
func (m *remoteRun) stopOwed(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
	found, err := m.peers.Sessions.GetSession(call, &statev1.GetSessionRequest{Tenant: m.claimed.ref.GetTenant(), SessionId: m.claimed.ref.GetSessionId()})
	cancel()
	status := found.GetCurrentRun().GetStatus()
	sameRun := found.GetCurrentRun().GetRunId() == m.claimed.ref.GetRunId()
	gone := fault.KindOf(err) == fault.NotFound
	if !gone && (err != nil || !sameRun || status != statev1.RunStatus_RUN_STATUS_FAILED && status != statev1.RunStatus_RUN_STATUS_INTERRUPTED) {
		return
	}
	if err := m.sendStop(ctx, loop.Stop{Kind: loop.StopAbort, Reason: "the session of the caller has ended"}); err != nil {
		m.log.ErrorContext(ctx, "the remote agent could not be stopped; it may go on", "url", m.agent.URL, "session", m.session, "error", err)
	}
}

// sendStop repeats the stop until it is confirmed, for RemoteStopPatience.
func (m *remoteRun) sendStop(ctx context.Context, stop loop.Stop) error {
	deadline := m.peers.Now().Add(m.config.RemoteStopPatience)
	var wait backoff
	for {
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		var err error
		if stop.Kind == loop.StopInterrupt {
			_, err = m.client.Interrupt(call, &agentv1.InterruptRequest{SessionId: m.session, Reason: stop.Reason})
		} else {
			_, err = m.client.Abort(call, &agentv1.AbortRequest{SessionId: m.session, Reason: stop.Reason})
		}
		cancel()
		if err == nil || fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if isRefusal(err) || m.peers.Now().After(deadline) || isClosed(m.draining) {
			return err
		}
		if err := wait.sleep(ctx); err != nil {
			return err
		}
	}
}

// sleep reports whether the time has passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
