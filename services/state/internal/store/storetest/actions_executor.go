package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// claim claims queued runs of the history, by turns of its tenants.
func (h *history) claim(after session.Key) action {
	limit, now := rapid.IntRange(1, 3).Draw(h.T, "limit"), h.now
	due := store.Queued{ExecutorID: h.name, AgentTypes: []string{h.name}, Now: now, After: after.Tenant}
	if most := rapid.Int64Range(0, 2).Draw(h.T, "cap"); most > 0 {
		due.Caps = &store.Caps{Tenant: most}
	}
	return action{
		name: "claim",
		predict: func(all map[session.Key]*modelSession) string {
			var queued []session.Key
			room := map[string]int64{}
			for key, p := range all {
				if r := p.liveRun(); r != nil && r.Status == session.RunQueued && r.Due <= now {
					queued = append(queued, key)
				} else if r != nil && r.Status == session.RunRunning {
					room[key.Tenant]--
				}
			}
			sortByTurns(queued, after.Tenant, func(k session.Key) *modelRun { return all[k].liveRun() })
			if due.Caps != nil {
				queued = slices.DeleteFunc(queued, func(k session.Key) bool {
					room[k.Tenant]--
					return room[k.Tenant] < -due.Caps.Tenant
				})
			}
			for _, key := range queued[:min(limit, len(queued))] {
				p := all[key]
				r := p.liveRun()
				r.Status = session.RunRunning
				h.recordClaim(key, p, r)
			}
			return ""
		},
		send: func() error {
			_, err := h.store.UpdateDue(h.t.Context(), due, session.Need{}, limit, session.Claim{ExecutorID: h.name, Now: now}.Decide)
			return err
		},
	}
}

// sortByTurns sorts the keys of queued runs: first that of the highest priority, then the oldest, of each tenant,
// beginning with the tenant behind after,
// then the second ones.
func sortByTurns(queued []session.Key, after string, run func(session.Key) *modelRun) {
	slices.SortFunc(queued, func(a, b session.Key) int {
		return cmp.Or(cmp.Compare(run(b).Priority, run(a).Priority), cmp.Compare(run(a).Created, run(b).Created))
	})
	type place struct {
		turn  int
		wraps string
	}
	places, runs := map[session.Key]place{}, map[string]int{}
	for _, key := range queued {
		lap := "behind "
		if key.Tenant <= after {
			lap = "wraps "
		}
		places[key] = place{runs[key.Tenant], lap + key.Tenant}
		runs[key.Tenant]++
	}
	slices.SortFunc(queued, func(a, b session.Key) int {
		return cmp.Or(cmp.Compare(places[a].turn, places[b].turn), cmp.Compare(places[a].wraps, places[b].wraps))
	})
}

func (h *history) recordClaim(key session.Key, p *modelSession, r *modelRun) {
	p.Epoch++
	r.Epoch, r.Attempt, r.Held, r.Claimed = p.Epoch, r.Attempt+1, true, h.now
	h.claims[key] = append(h.claims[key], session.ClaimRef{Key: key, RunID: r.ID, Epoch: r.Epoch})
}

// silence unregisters the executor and requeues its runs. Runs of earlier histories may be
// among them.
func (h *history) silence(session.Key) action {
	now := h.now
	return action{
		name: "silence",
		predict: func(all map[session.Key]*modelSession) string {
			for _, p := range all {
				if r := p.liveRun(); r != nil && r.Status == session.RunRunning {
					r.Status, r.Held = session.RunQueued, false
					r.Losses++
				}
			}
			return ""
		},
		send: func() error {
			if _, err := h.store.UnregisterSilent(h.t.Context(), now+1); err != nil {
				return err
			}
			if _, err := h.store.UpdateDue(h.t.Context(), store.OwnerUnregistered{}, session.Need{}, 1000,
				session.RequeueSilent{Now: now}.Decide); err != nil {
				return err
			}
			return h.store.Announce(h.t.Context(), h.name, []session.Agent{{Type: h.name}}, now)
		},
	}
}

// drawClaim draws one of the session's last claims.
func (h *history) drawClaim(key session.Key) session.ClaimRef {
	claims := h.claims[key]
	return claims[len(claims)-1-rapid.SampledFrom([]int{0, 0, 0, min(1, len(claims)-1)}).Draw(h.T, "claim")]
}

// drawStep draws a step: usually the next one.
func (h *history) drawStep(key session.Key) int32 {
	step := rapid.SampledFrom([]int32{1, 1, 1, 1, 1, 0, 2}).Draw(h.T, "step")
	if p := h.sessions[key]; p != nil {
		step += p.Steps
	}
	return step
}

func (h *history) plan(key session.Key) action {
	if len(h.claims[key]) == 0 {
		return action{}
	}
	c := session.RecordPlan{
		ClaimRef: h.drawClaim(key), Step: h.drawStep(key), Body: []byte(rapid.SampledFrom([]string{"p", "p", "q"}).Draw(h.T, "body")),
		CallIDs: []string{"x", "y"}, Limits: limits,
	}
	if rapid.Bool().Draw(h.T, "writes") {
		c.Ops = []session.StateOp{{Key: "p", Kind: session.OpReplace, Value: `1`}}
	}
	return newAction(h, "plan", key, c.Need(), withoutAnswer(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		if reason := p.writeRefusal(c.RunID, c.Epoch, c.Step); reason != "" {
			return reason
		}
		if p.Plan != "" && p.Plan != string(c.Body) {
			return "PLAN_EXISTS"
		}
		if p.Plan == "" {
			p.Plan, p.PlanWrites = string(c.Body), len(c.Ops) > 0
		}
		return ""
	})
}

// result records a result. It writes its step to the state under the key of its call.
func (h *history) result(key session.Key) action {
	if len(h.claims[key]) == 0 {
		return action{}
	}
	id := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(h.T, "call")
	c := session.RecordResult{
		ClaimRef: h.drawClaim(key), Step: h.drawStep(key), Limits: limits,
		Result: session.Result{CallID: id, Ops: []session.StateOp{{Key: id, Kind: session.OpReplace, Value: `1`}}},
	}
	return newAction(h, "result "+id, key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		if reason := p.writeRefusal(c.RunID, c.Epoch, c.Step); reason != "" {
			return reason
		}
		if p.Plan == "" || id == "z" {
			return "CALL_UNKNOWN"
		}
		if !slices.Contains(p.Results, id) {
			p.Results = append(p.Results, id)
		}
		return ""
	})
}

func (h *history) commit(key session.Key) action {
	if len(h.claims[key]) == 0 {
		return action{}
	}
	c := h.drawCommit(key)
	a := newAction(h, "commit", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		return p.commitStep(c, h.starts)
	})
	if len(c.Messages) > 0 {
		a.message, a.repeats = c.Messages[0].ID, true
	}
	return a
}

// drawCommit draws a commit, which consumes all answers.
func (h *history) drawCommit(key session.Key) session.Commit {
	c := session.Commit{
		ClaimRef: h.drawClaim(key), Step: h.drawStep(key), CheckpointID: h.id("cp"), Limits: limits, Now: h.now, ExpireAfter: 50,
	}
	c.Messages = []session.Message{{ID: fmt.Sprint(h.id("m"), "~", c.Step, "@", c.RunID), Role: "assistant", RunID: c.RunID, Step: c.Step}}
	for range rapid.IntRange(0, 2).Draw(h.T, "writes") {
		c.Ops = append(c.Ops, h.drawWrite())
	}
	if rapid.IntRange(0, 5).Draw(h.T, "state writes only") == 0 {
		c.Messages = nil
	}
	if p := h.sessions[key]; p != nil {
		for _, id := range p.answeredCalls() {
			c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: p.Calls[id].Revision})
		}
		for id, call := range p.Calls {
			if call.Late && !call.LateReported {
				c.LateReported = append(c.LateReported, id)
			}
		}
	}
	if len(c.Consume) > 0 && len(c.Messages) > 0 {
		c.Messages = append(c.Messages, session.Message{ID: fmt.Sprint(h.id("m"), "@", c.RunID, "#", c.Step), Role: "tool", RunID: c.RunID,
			Step: c.Step})
	}
	switch status := rapid.SampledFrom([]session.RunStatus{"", "", session.RunCompleted, session.RunFailed, session.RunInterrupted,
		session.RunSuspendedClientTool, session.RunSuspendedClientTool}).Draw(h.T, "outcome"); status {
	case "":
	case session.RunSuspendedClientTool:
		for range rapid.IntRange(1, 2).Draw(h.T, "calls") {
			id := h.id("call")
			h.callIDs = append(h.callIDs, id)
			call := session.Call{
				CallID: id, Kind: session.ClientTool, Input: `{}`,
				DeadlineAt: h.now + session.Millis(rapid.SampledFrom([]int{20, 1000}).Draw(h.T, "deadline")),
			}
			c.Calls = append(c.Calls, call)
		}
		c.Suspension = &session.Suspension{StepID: "s"}
		fallthrough
	default:
		c.Outcome = outcomeOf(status)
	}
	return c
}

func outcomeOf(status session.RunStatus) *session.Outcome {
	o := &session.Outcome{Status: status}
	if text := failureOf(status); text != "" {
		o.Failure = &session.Failure{Error: text}
	}
	return o
}

// commitStep predicts a commit. The commit never repeats an earlier one of the same claim,
// since its messages are new, but the store may treat it as a repetition.
func (p *modelSession) commitStep(c session.Commit, starts map[string]session.RunRequest) string {
	stale := p.ownerRefusal(c.RunID, c.Epoch)
	if p.isRolledBack(c) {
		return ""
	}
	if stale != "" && !p.isRepeatedEnd(c.RunID, c.Epoch) {
		return stale
	}
	r := p.run(c.RunID)
	if p.isRepeated(c, r) {
		return ""
	}
	if reason := p.writeRefusal(c.RunID, c.Epoch, c.Step); reason != "" {
		return reason
	}
	p.Version++
	p.Steps++
	r.Steps++
	r.Losses = 0
	for _, m := range c.Messages {
		p.Messages = append(p.Messages, m.ID)
	}
	p.commitState(c)
	p.Plan, p.PlanWrites, p.Results = "", false, nil
	p.commitCalls(c)
	messages, version := len(p.Messages), p.StateVersion
	p.Checkpoints = append(p.Checkpoints, modelCheckpoint{ID: c.CheckpointID, Step: c.Step, Epoch: c.Epoch, Run: c.RunID, Messages: messages,
		StateVersion: version, State: maps.Clone(p.State)})
	if c.Outcome != nil {
		p.endRun(r, c.Outcome.Status, c.Step)
		if p.Status.Suspended() {
			p.suspend(c, r.Stop)
		}
		p.Checkpoints[len(p.Checkpoints)-1].Failed = p.Failed
		if p.Status != session.Active && !p.Status.Suspended() {
			p.beginNext(r, starts)
		}
	}
	return ""
}

// isRepeated reports whether the commit repeats the newest one.
func (p *modelSession) isRepeated(c session.Commit, r *modelRun) bool {
	if len(p.Checkpoints) == 0 || c.Step != p.Steps {
		return false
	}
	same := c.Outcome == nil
	if !r.Status.Live() {
		same = c.Outcome != nil && c.Outcome.Status == r.Status && r.Finished == c.Step && r.Failure == failureOf(r.Status)
	}
	last := p.Checkpoints[len(p.Checkpoints)-1]
	return last.Step == c.Step && last.Epoch == c.Epoch && last.Run == c.RunID && same
}

// commitState applies the writes of the step's results, then those of the commit.
func (p *modelSession) commitState(c session.Commit) {
	state := maps.Clone(p.State)
	for _, id := range []string{"x", "y"} {
		if slices.Contains(p.Results, id) {
			state[id] = "1"
		}
	}
	for _, op := range c.Ops {
		state[op.Key] = op.Value
	}
	if !maps.Equal(state, p.State) {
		p.State, p.StateVersion = state, p.Version
	}
}

// isRolledBack reports whether the commit repeats one whose checkpoint was removed.
func (p *modelSession) isRolledBack(c session.Commit) bool {
	if p == nil || c.Outcome == nil || slices.ContainsFunc(p.Checkpoints,
		func(k modelCheckpoint) bool { return k.Step == c.Step && c.Step == p.Steps }) {
		return false
	}
	r := p.run(c.RunID)
	return r != nil && (r.Rollback || c.Step == p.Steps) && !r.Status.Live() && r.Epoch == c.Epoch && r.Finished == c.Step &&
		r.Status == c.Outcome.Status && r.Failure == failureOf(r.Status)
}

func (p *modelSession) commitCalls(c session.Commit) {
	for _, call := range c.Calls {
		p.Calls[call.CallID] = modelCall{Run: c.RunID, Step: c.Step, Deadline: call.DeadlineAt}
	}
	for _, consume := range c.Consume {
		call := p.Calls[consume.CallID]
		call.Consumed, call.Taken = true, c.Step
		p.Calls[consume.CallID] = call
	}
	for _, id := range c.LateReported {
		call := p.Calls[id]
		call.LateReported, call.LateReportedAt = true, c.Step
		p.Calls[id] = call
	}
}

func (p *modelSession) suspend(c session.Commit, stop session.StopKind) {
	switch stop {
	case session.StopAbort:
		p.Status, p.Failed, p.Aborted = session.Failed, true, true
		p.dropOpenCalls("")
	case session.StopInterrupt:
		p.Status, p.Interrupted = session.Interrupted, true
	default:
		p.Expires = c.Now + c.ExpireAfter
		for _, id := range p.openCalls() {
			p.Expires = max(p.Expires, p.Calls[id].Deadline)
		}
	}
}

func (h *history) finish(key session.Key) action {
	if len(h.claims[key]) == 0 {
		return action{}
	}
	status := rapid.SampledFrom([]session.RunStatus{session.RunCompleted, session.RunFailed, session.RunInterrupted}).Draw(h.T, "outcome")
	c := session.Finish{ClaimRef: h.drawClaim(key), Outcome: *outcomeOf(status), Now: h.now}
	return newAction(h, "finish "+string(status), key, c.Need(), ofOneView(c.Decide),
		func(p *modelSession, _ map[session.Key]*modelSession) string {
			stale := p.ownerRefusal(c.RunID, c.Epoch)
			if stale != "" && !p.isRepeatedEnd(c.RunID, c.Epoch) {
				return stale
			}
			r := p.run(c.RunID)
			switch {
			case r.Status.Live():
			case r.Finished == 0 && r.Status == status && r.Failure == failureOf(status):
				return ""
			case stale != "":
				return stale
			default:
				return "RUN_FINISHED"
			}
			p.Version++
			p.Plan, p.PlanWrites, p.Results = "", false, nil
			p.endRun(r, status, 0)
			p.beginNext(r, h.starts)
			return ""
		})
}

func (h *history) release(key session.Key) action {
	if len(h.claims[key]) == 0 {
		return action{}
	}
	c := session.Release{ClaimRef: h.drawClaim(key), Delay: session.Millis(rapid.SampledFrom([]int{0, 0, 3}).Draw(h.T, "delay")), Now: h.now}
	return newAction(h, "release", key, c.Need(), withoutAnswer(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		if p != nil {
			if r := p.run(c.RunID); r != nil && r.Epoch == c.Epoch && p.Epoch == c.Epoch && r.Status == session.RunQueued {
				return ""
			}
		}
		if reason := p.ownerRefusal(c.RunID, c.Epoch); reason != "" {
			return reason
		}
		r := p.run(c.RunID)
		if !r.Status.Live() {
			return "RUN_FINISHED"
		}
		r.Held, r.Due = false, 0
		if c.Delay > 0 && (r.Stop == "" || r.StopAt < r.Claimed) {
			r.Due = c.Now + c.Delay
		}
		if r.Status == session.RunRunning {
			r.Status = session.RunQueued
		}
		return ""
	})
}
