package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// family returns the family's consequences of a command at the harness's time.
func (h *harness) family() session.Family {
	return session.Family{
		Now: h.now, NewID: func() string { return h.id("run") }, Abandon: abandonedResponse, ChildEnd: childEnd, MaxUnread: 1 << 20,
	}
}

// abandonedResponse returns the answer to an abandoned call.
func abandonedResponse(session.Call) []byte { return []byte("gone") }

// send runs a command on one session, with its consequences for the family.
func (h *harness) send(key session.Key, need session.Need, decide func(*session.View) (*session.Change, error)) error {
	return h.sendWidened(key, need, single(decide))
}

// sendWidened is send for a command on several sessions.
func (h *harness) sendWidened(key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error)) error {
	return send(h, h.Store, h.family(), key, need, decide)
}

// startOf returns a command to begin a run with one message.
func (h *harness) startOf(key session.Key) session.Send {
	run := h.id("run")
	return session.Send{RunRequest: session.RunRequest{
		Key: key, AgentType: agent, RunID: run, MessageID: h.id("ui"), Now: h.now, Bodies: bodies,
		Messages: []session.Message{{ID: h.id("msg"), Role: "user", RunID: run, CreatedAt: h.now, Body: []byte("hello")}},
	}, NewSession: session.Create{State: `{}`}}
}

func (h *harness) tryStart(c intent) (session.Started, error) { return h.tryStartOn(h.Store, c) }

func (h *harness) start(c intent) session.Started {
	h.Helper()
	started, err := h.tryStart(c)
	h.must(err)
	return started
}

// claim claims the only due run.
func (h *harness) claim(executorID string) (session.ClaimRef, store.Decided) {
	h.Helper()
	claimed := h.claimAll(executorID, 1)
	if len(claimed) != 1 {
		h.Fatalf("got %d claims, want 1", len(claimed))
	}
	return refOf(claimed[0]), claimed[0]
}

func refOf(d store.Decided) session.ClaimRef {
	run := d.Change.Runs[0]
	return session.ClaimRef{Key: d.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch}
}

func (h *harness) claimAll(executorID string, limit int) []store.Decided {
	h.Helper()
	due := store.Queued{ExecutorID: executorID, AgentTypes: []string{agent}, Now: h.now}
	need := session.Need{State: true, Journal: true, Calls: true, Tail: session.Tail{MaxMessages: 3, MaxBytes: 1 << 20}}
	claimed, err := h.Store.UpdateDue(h.Context(), due, need, limit, session.Claim{ExecutorID: executorID, Now: h.now}.Decide)
	h.must(err)
	return claimed
}

// requeueSilent unregisters the executors without a heartbeat for a second, and requeues their
// runs. It returns the number of runs.
func (h *harness) requeueSilent() int {
	h.Helper()
	_, err := h.Store.UnregisterSilent(h.Context(), h.now-1000)
	h.must(err)
	requeued, err := h.Store.UpdateDue(h.Context(), store.OwnerUnregistered{}, session.Need{}, 10, session.RequeueSilent{Now: h.now}.Decide)
	h.must(err)
	return len(requeued)
}

func (h *harness) tryPlan(ref session.ClaimRef, step int32, body string, calls ...string) error {
	return h.tryPlanWith(ref, step, body, nil, calls...)
}

func (h *harness) tryPlanWith(ref session.ClaimRef, step int32, body string, ops []session.StateOp, calls ...string) error {
	c := session.RecordPlan{
		ClaimRef: ref, Step: step, Body: []byte(body), CallIDs: calls, Usage: []session.Usage{modelUsage(5)}, Ops: ops, Limits: limits,
	}
	return h.send(c.Key, c.Need(), c.Decide)
}

// modelUsage returns the usage of a model call.
func modelUsage(total int64) session.Usage {
	return session.Usage{Kind: session.UsageTokens, Source: "agent", Model: "m1", TotalTokens: total}
}

func (h *harness) tryResult(ref session.ClaimRef, step int32, result session.Result) (repeated bool, err error) {
	c := session.RecordResult{ClaimRef: ref, Step: step, Result: result, Limits: limits}
	err = h.sendWidened(c.Key, c.Need(), capturing(&repeated, c.Decide))
	return repeated, err
}

var limits = session.Limits{State: 1000, Journal: 10_000, Waiting: 3, Store: 2000, StoreStep: 1000}

// commitOf returns a command to commit a step with one message.
func (h *harness) commitOf(ref session.ClaimRef, step int32) session.Commit {
	return session.Commit{
		ClaimRef: ref, Step: step, CheckpointID: h.id("cp"), Limits: limits, Now: h.now,
		Messages: []session.Message{{ID: h.id("msg"), Role: "assistant", RunID: ref.RunID, Step: step, CreatedAt: h.now, Body: []byte("answer")}},
	}
}

func (h *harness) tryCommit(c session.Commit) (checkpoint session.Checkpoint, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&checkpoint, c.Decide))
	return checkpoint, err
}

func (h *harness) commit(c session.Commit) session.Checkpoint {
	h.Helper()
	checkpoint, err := h.tryCommit(c)
	h.must(err)
	return checkpoint
}

func (h *harness) tryFinish(ref session.ClaimRef, o session.Outcome) (finished session.Finished, err error) {
	c := session.Finish{ClaimRef: ref, Outcome: o, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&finished, c.Decide))
	return finished, err
}

var completed = session.Outcome{Status: session.RunCompleted, Output: `{"a": 1}`, CompletionReason: "max_steps", FinishReason: "length"}

func (h *harness) finish(ref session.ClaimRef) {
	h.Helper()
	_, err := h.tryFinish(ref, completed)
	h.must(err)
}

func (h *harness) tryRelease(ref session.ClaimRef) error {
	c := session.Release{ClaimRef: ref, Now: h.now}
	return h.send(c.Key, c.Need(), c.Decide)
}

func (h *harness) snapshot(key session.Key) *store.Snapshot {
	h.Helper()
	snapshot, err := h.Store.Session(h.Context(), key)
	h.must(err)
	return snapshot
}

// session returns a session and its newest run.
func (h *harness) session(key session.Key) (session.Session, session.Run) {
	h.Helper()
	s := h.snapshot(key)
	if s.Current == nil {
		h.Fatalf("session %v has no run", key)
	}
	return s.Session, *s.Current
}

func (h *harness) messages(key session.Key) []session.Message {
	h.Helper()
	messages, _, err := h.Store.Messages(h.Context(), key, store.Page{Limit: 200, MaxBytes: 1 << 20})
	h.must(err)
	return messages
}

func (h *harness) checkpoints(key session.Key) []session.Checkpoint {
	h.Helper()
	list, _, err := h.Store.Checkpoints(h.Context(), key, 0, 0, 1000)
	h.must(err)
	return list
}

func (h *harness) usage(key session.Key) []session.UsageEntry {
	h.Helper()
	entries, err := h.Store.UsageEntries(h.Context(), key, nil, 0, 1000)
	h.must(err)
	return entries
}

func (h *harness) createOf(key session.Key) session.Create {
	return session.Create{Key: key, AgentType: agent, State: `{}`, Now: h.now}
}

func (h *harness) tryCreate(c session.Create) (made session.Session, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturingWide(&made, c.Decide))
	return made, err
}

func (h *harness) create(c session.Create) session.Session {
	h.Helper()
	made, err := h.tryCreate(c)
	h.must(err)
	return made
}

func (h *harness) update(c session.UpdateSession) (version int64, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&version, c.Decide))
	return version, err
}

func (h *harness) setStatus(c session.SetStatus) (set session.StatusSet, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&set, c.Decide))
	return set, err
}

func (h *harness) saveState(c session.SaveState) (version int64, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&version, c.Decide))
	return version, err
}

func (h *harness) mergeState(c session.MergeState) (merged session.Merged, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&merged, c.Decide))
	return merged, err
}

func (h *harness) tryAppend(key session.Key, ids ...string) (count int64, err error) {
	c := session.AppendMessages{Key: key, Now: h.now}
	for _, id := range ids {
		c.Messages = append(c.Messages, session.Message{ID: id, Role: "user", CreatedAt: h.now, Body: []byte(id)})
	}
	var after session.Conversation
	err = h.sendWidened(c.Key, c.Need(), capturing(&after, c.Decide))
	return after.Messages, err
}

func (h *harness) append(key session.Key, ids ...string) {
	h.Helper()
	_, err := h.tryAppend(key, ids...)
	h.must(err)
}

func (h *harness) truncate(key session.Key, messages int64) (count int64, err error) {
	c := session.Truncate{Key: key, Messages: messages, Now: h.now}
	var after session.Conversation
	err = h.sendWidened(c.Key, c.Need(), capturing(&after, c.Decide))
	return after.Messages, err
}

func (h *harness) rewind(key session.Key, checkpointID string) (rewound session.Session, err error) {
	c := session.RewindTo{Key: key, CheckpointID: checkpointID, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&rewound, c.Decide))
	return rewound, err
}

func (h *harness) branch(from session.Key, checkpointID string, key session.Key) (made session.Session, err error) {
	c := session.Branch{From: from, CheckpointID: checkpointID, Key: key, Now: h.now}
	err = h.Store.Update(h.Context(), c.Targets(), weight, func(views []*session.View) ([]*session.Change, error) {
		change, branch, err := c.Decide(views...)
		made = branch
		return []*session.Change{change, nil}, err
	})
	return made, err
}

func (h *harness) delete(key session.Key) error {
	c := session.DeleteSession{Key: key}
	return h.send(c.Key, c.Need(), c.Decide)
}

func (h *harness) submitOf(key session.Key, callID string) session.Submit {
	return session.Submit{
		Key: key, CallID: callID, Kind: session.ClientTool, Response: []byte("answer to " + callID), NewRunID: h.id("run"), Now: h.now,
	}
}

func (h *harness) trySubmit(c session.Submit) (answer session.Submitted, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&answer, c.Decide))
	return answer, err
}

func (h *harness) submit(c session.Submit) session.Submitted {
	h.Helper()
	answer, err := h.trySubmit(c)
	h.must(err)
	return answer
}

// timeout answers the overdue calls.
func (h *harness) timeout(key session.Key) []session.Call {
	h.Helper()
	var late []session.Call
	c := session.TimeoutCalls{Key: key, Response: func(session.Call) []byte { return []byte("timeout") }, NewRunID: h.id("run"), Now: h.now}
	h.must(h.sendWidened(c.Key, c.Need(), capturing(&late, c.Decide)))
	return late
}

func (h *harness) tryStop(c session.RequestStop) (stopped session.Stopped, err error) {
	c.Now = h.now
	err = h.sendWidened(c.Key, c.Need(), capturing(&stopped, c.Decide))
	return stopped, err
}

func (h *harness) stop(key session.Key, kind session.StopKind, reason string) session.Stopped {
	h.Helper()
	stopped, err := h.tryStop(session.RequestStop{Key: key, Kind: kind, Reason: reason})
	h.must(err)
	return stopped
}

func (h *harness) expire(key session.Key) (expired session.ExpiryResult, err error) {
	c := session.Expire{Key: key, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&expired, c.Decide))
	return expired, err
}

func (h *harness) recordUsage(key session.Key, runID string, usage ...session.Usage) {
	h.Helper()
	c := session.RecordUsage{Key: key, RunID: runID, Usage: usage, Now: h.now}
	h.must(h.send(c.Key, c.Need(), c.Decide))
}

func (h *harness) putChild(key session.Key, child session.Child) error {
	c := session.PutChild{Key: key, Child: child, Now: h.now}
	return h.send(c.Key, c.Need(), c.Decide)
}

// suspendingCommit returns a commit to suspend the run on the calls.
func (h *harness) suspendingCommit(ref session.ClaimRef, step int32, callIDs ...string) session.Commit {
	c := h.commitOf(ref, step)
	for _, id := range callIDs {
		c.Calls = append(c.Calls, session.Call{CallID: id, StepID: "step", ToolName: "ask", Kind: session.ClientTool, Input: `{"q":1}`})
	}
	c.Outcome = &session.Outcome{Status: session.RunSuspendedClientTool}
	c.Suspension = &session.Suspension{StepID: "step"}
	return c
}

// childEnd answers the call of a child.
func childEnd(child *session.Session, status session.Status, _ int) []byte {
	return []byte(child.SessionID + " " + string(status) + " " + child.Output)
}

// awaitingCommit returns a commit to suspend the run on existing children.
func (h *harness) awaitingCommit(ref session.ClaimRef, step int32, children ...string) session.Commit {
	c := h.suspendingCommit(ref, step)
	c.Outcome.Status = session.RunSuspendedAwaitingChildren
	for _, id := range children {
		c.Calls = append(c.Calls, session.Call{CallID: "call of " + id, StepID: "step", ToolName: "subagent__" + id, Kind: session.SubAgent,
			Input: `{}`})
	}
	return c
}

// startSuspended starts a session whose first step suspends on the calls.
func (h *harness) startSuspended(key session.Key, callIDs ...string) session.ClaimRef {
	h.Helper()
	h.start(h.startOf(key))
	ref := h.claimOf(key)
	h.commit(h.suspendingCommit(ref, 1, callIDs...))
	return ref
}

// claimOf claims the run of a session, after the runs due earlier.
func (h *harness) claimOf(key session.Key) session.ClaimRef {
	h.Helper()
	for {
		if ref, held := h.held[key]; held {
			delete(h.held, key)
			return ref
		}
		ref, _ := h.claim(executor)
		if h.held == nil {
			h.held = map[session.Key]session.ClaimRef{}
		}
		h.held[ref.Key] = ref
	}
}

// waitingOf returns a start with the policy to wait for a busy session.
func (h *harness) waitingOf(key session.Key) session.Send {
	c := h.startOf(key)
	c.OnBusy, c.Limits = session.BusyEnqueue, limits
	return c
}

// expectWaiting fails the test unless exactly these runs wait, in this order.
func (h *harness) expectWaiting(key session.Key, want ...string) {
	h.Helper()
	list, err := h.Store.Waiting(h.Context(), key)
	h.must(err)
	shot := h.snapshot(key)
	same(h, "waiting runs of the snapshot", shot.Waiting, list)
	var got []string
	for _, r := range list {
		got = append(got, r.RunID)
	}
	same(h, "waiting runs", got, want)
	same(h, "number of waiting runs", int(shot.Session.Waiting), len(want))
	same(h, "rows of held runs", h.Rows(h.T, key)["held_runs"], len(want))
}

// expectMessageCount fails the test unless the conversation has the message want times.
func (h *harness) expectMessageCount(key session.Key, id string, want int) {
	h.Helper()
	n := 0
	for _, m := range h.messages(key) {
		if m.ID == id {
			n++
		}
	}
	if n != want {
		h.Errorf("got message %q %d times, want %d", id, n, want)
	}
}

// forceStatus sets the session's status from outside.
func (h *harness) forceStatus(key session.Key, status session.Status) {
	h.Helper()
	set, err := h.setStatus(session.SetStatus{Key: key, Status: status, Failure: &session.Failure{Error: "no"}, Now: h.now})
	h.must(err)
	same(h, "set", set.OK, true)
}

// consumingCommit returns a commit to consume the answers to the calls. It has a model's message
// and a result.
func (h *harness) consumingCommit(ref session.ClaimRef, step int32, calls ...string) session.Commit {
	c := h.commitOf(ref, step)
	c.Messages = append(c.Messages, session.Message{ID: h.id("result"), Role: "tool", RunID: ref.RunID, Step: step, CreatedAt: h.now,
		Body: []byte("done")})
	for _, id := range calls {
		c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: 1})
	}
	return c
}

// rollbackOf returns a start with the policy to roll the live run back.
func (h *harness) rollbackOf(key session.Key) session.Send {
	c := h.waitingOf(key)
	c.OnBusy = session.BusyRollback
	return c
}

// branchOffOf returns a command to begin a run with one message in a branch.
func (h *harness) branchOffOf(from session.Key, checkpointID string, key session.Key) session.BranchAndStart {
	c := h.startOf(key).RunRequest
	c.Limits = limits
	return session.BranchAndStart{RunRequest: c, From: from, CheckpointID: checkpointID}
}

func (h *harness) tryBranchOff(c session.BranchAndStart) (started session.Started, err error) {
	err = h.Store.Update(h.Context(), c.Targets(), weight, func(views []*session.View) (changes []*session.Change, err error) {
		var own *session.Change
		if own, started, err = c.Decide(views...); err != nil {
			return nil, err
		}
		return []*session.Change{own, nil}, nil
	})
	return started, err
}

func (h *harness) branchOff(c session.BranchAndStart) session.Started {
	h.Helper()
	started, err := h.tryBranchOff(c)
	h.must(err)
	return started
}
