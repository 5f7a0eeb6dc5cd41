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

// claim claims the oldest queued runs of the history.
func (w *world) claim(session.Key) act {
	limit, now := rapid.IntRange(1, 3).Draw(w.T, "limit"), w.now
	due := store.Queued{ExecutorID: w.name, AgentTypes: []string{w.name}, Now: now}
	return act{
		name: "claim",
		predict: func(all map[session.Key]*plain) string {
			var queued []session.Key
			for key, p := range all {
				if r := p.live(); r != nil && r.Status == session.RunQueued && r.Due <= now {
					queued = append(queued, key)
				}
			}
			slices.SortFunc(queued, func(a, b session.Key) int { return cmp.Compare(all[a].live().Created, all[b].live().Created) })
			for _, key := range queued[:min(limit, len(queued))] {
				p := all[key]
				r := p.live()
				r.Status = session.RunRunning
				w.took(key, p, r)
			}
			return ""
		},
		send: func() error {
			_, err := w.store.UpdateDue(w.t.Context(), due, session.Need{}, limit, session.Claim{ExecutorID: w.name, Now: now}.Decide)
			return err
		},
	}
}

func (w *world) took(key session.Key, p *plain, r *plainRun) {
	p.Epoch++
	r.Epoch, r.Attempt, r.Held, r.Claimed = p.Epoch, r.Attempt+1, true, w.now
	w.claims[key] = append(w.claims[key], session.Ref{Key: key, RunID: r.ID, Epoch: r.Epoch})
}

// silence lets the executor be forgotten, and queues its runs again. Runs of
// the histories before may be among them.
func (w *world) silence(session.Key) act {
	now := w.now
	return act{
		name: "silence",
		predict: func(all map[session.Key]*plain) string {
			for _, p := range all {
				if r := p.live(); r != nil && r.Status == session.RunRunning {
					r.Status, r.Held = session.RunQueued, false
					r.Losses++
				}
			}
			return ""
		},
		send: func() error {
			if _, err := w.store.Forget(w.t.Context(), now+1); err != nil {
				return err
			}
			if _, err := w.store.UpdateDue(w.t.Context(), store.Silent{}, session.Need{}, 1000, session.RequeueSilent{Now: now}.Decide); err != nil {
				return err
			}
			return w.store.Announce(w.t.Context(), w.name, []session.Agent{{Type: w.name}}, now)
		},
	}
}

// ref draws one of the last claims of the session.
func (w *world) ref(key session.Key) session.Ref {
	claims := w.claims[key]
	return claims[len(claims)-1-rapid.SampledFrom([]int{0, 0, 0, min(1, len(claims)-1)}).Draw(w.T, "claim")]
}

// inFlight is the step that the model says is next; now and then another.
func (w *world) inFlight(key session.Key) int32 {
	step := rapid.SampledFrom([]int32{1, 1, 1, 1, 1, 0, 2}).Draw(w.T, "step")
	if p := w.sessions[key]; p != nil {
		step += p.Steps
	}
	return step
}

func (w *world) plan(key session.Key) act {
	if len(w.claims[key]) == 0 {
		return act{}
	}
	c := session.Plan{Ref: w.ref(key), Step: w.inFlight(key), Body: []byte(rapid.SampledFrom([]string{"p", "p", "q"}).Draw(w.T, "body")), CallIDs: []string{"x", "y"}, Limits: limits}
	if rapid.Bool().Draw(w.T, "writes") {
		c.Ops = []session.StateOp{{Key: "p", Kind: session.Replace, Value: `1`}}
	}
	return command(w, "plan", key, c.Need(), quiet(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if reason := p.writes(c.RunID, c.Epoch, c.Step); reason != "" {
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

// result records a result that writes its step into the state, under the key
// of its call.
func (w *world) result(key session.Key) act {
	if len(w.claims[key]) == 0 {
		return act{}
	}
	id := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.T, "call")
	c := session.RecordResult{Ref: w.ref(key), Step: w.inFlight(key), Limits: limits, Result: session.Result{CallID: id, Ops: []session.StateOp{{Key: id, Kind: session.Replace, Value: `1`}}}}
	return command(w, "result "+id, key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if reason := p.writes(c.RunID, c.Epoch, c.Step); reason != "" {
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

func (w *world) commit(key session.Key) act {
	if len(w.claims[key]) == 0 {
		return act{}
	}
	c := session.Commit{
		Ref: w.ref(key), Step: w.inFlight(key), CheckpointID: w.id("cp"), Limits: limits, Now: w.now, ExpireAfter: 50,
	}
	c.Messages = []session.Message{{ID: fmt.Sprint(w.id("m"), "~", c.Step, "@", c.RunID), Role: "assistant", RunID: c.RunID, Step: c.Step}}
	for range rapid.IntRange(0, 2).Draw(w.T, "writes") {
		c.Ops = append(c.Ops, w.op())
	}
	if rapid.IntRange(0, 5).Draw(w.T, "state writes only") == 0 {
		c.Messages = nil
	}
	if p := w.sessions[key]; p != nil {
		for _, id := range p.answered() {
			c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: p.Calls[id].Revision})
		}
		for id, call := range p.Calls {
			if call.Late && !call.Told {
				c.Told = append(c.Told, id)
			}
		}
	}
	if len(c.Consume) > 0 && len(c.Messages) > 0 {
		c.Messages = append(c.Messages, session.Message{ID: fmt.Sprint(w.id("m"), "@", c.RunID, "#", c.Step), Role: "tool", RunID: c.RunID, Step: c.Step})
	}
	switch status := rapid.SampledFrom([]session.RunStatus{"", "", session.RunCompleted, session.RunFailed, session.RunInterrupted, session.RunSuspendedClientTool, session.RunSuspendedClientTool}).Draw(w.T, "outcome"); status {
	case "":
	case session.RunSuspendedClientTool:
		for range rapid.IntRange(1, 2).Draw(w.T, "calls") {
			id := w.id("call")
			w.told = append(w.told, id)
			call := session.Call{CallID: id, Kind: session.ClientTool, Input: `{}`, DeadlineAt: w.now + session.Millis(rapid.SampledFrom([]int{20, 1000}).Draw(w.T, "deadline"))}
			c.Calls = append(c.Calls, call)
		}
		c.Suspension = &session.Suspension{StepID: "s"}
		fallthrough
	default:
		c.Outcome = outcomeOf(status)
	}
	a := command(w, "commit", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		return p.commit(c, w.starts)
	})
	if len(c.Messages) > 0 {
		a.message, a.repeats = c.Messages[0].ID, true
	}
	return a
}

func outcomeOf(status session.RunStatus) *session.Outcome {
	o := &session.Outcome{Status: status}
	if text := failureOf(status); text != "" {
		o.Failure = &session.Failure{Error: text}
	}
	return o
}

// commit is what a step does. Its step is never one that was committed under
// the same claim with the same outcome, since its messages are new; but it may be
// taken for one.
func (p *plain) commit(c session.Commit, starts map[string]session.Post) string {
	stale := p.owns(c.RunID, c.Epoch)
	if p.tookBack(c) {
		return ""
	}
	if stale != "" && !p.ended(c.RunID, c.Epoch) {
		return stale
	}
	r := p.run(c.RunID)
	if n := len(p.Checkpoints); n > 0 && c.Step == p.Steps {
		last := p.Checkpoints[n-1]
		same := r.Status.Live() && c.Outcome == nil || !r.Status.Live() && c.Outcome != nil && c.Outcome.Status == r.Status && r.Finished == c.Step && r.Failure == failureOf(r.Status)
		if last.Step == c.Step && last.Epoch == c.Epoch && last.Run == c.RunID && same {
			return ""
		}
	}
	if reason := p.writes(c.RunID, c.Epoch, c.Step); reason != "" {
		return reason
	}
	p.Version++
	p.Steps++
	r.Steps++
	r.Losses = 0
	for _, m := range c.Messages {
		p.Messages = append(p.Messages, m.ID)
	}
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
	p.Plan, p.PlanWrites, p.Results = "", false, nil
	p.commitCalls(c)
	messages, version := len(p.Messages), p.StateVersion
	p.Checkpoints = append(p.Checkpoints, plainCheckpoint{ID: c.CheckpointID, Step: c.Step, Epoch: c.Epoch, Run: c.RunID, Messages: messages, StateVersion: version, State: maps.Clone(p.State)})
	if c.Outcome != nil {
		p.end(r, c.Outcome.Status, c.Step)
		if p.Status.Suspended() {
			p.suspend(c, r.Stop)
		}
		p.Checkpoints[len(p.Checkpoints)-1].Failed = p.Failed
		if p.Status != session.Active && !p.Status.Suspended() {
			p.next(r, starts)
		}
	}
	return ""
}

// tookBack reports whether the commit repeats one whose checkpoint was taken back.
func (p *plain) tookBack(c session.Commit) bool {
	if p == nil || c.Outcome == nil || slices.ContainsFunc(p.Checkpoints, func(k plainCheckpoint) bool { return k.Step == c.Step && c.Step == p.Steps }) {
		return false
	}
	r := p.run(c.RunID)
	return r != nil && (r.Undo || c.Step == p.Steps) && !r.Status.Live() && r.Epoch == c.Epoch && r.Finished == c.Step && r.Status == c.Outcome.Status && r.Failure == failureOf(r.Status)
}

func (p *plain) commitCalls(c session.Commit) {
	for _, call := range c.Calls {
		p.Calls[call.CallID] = plainCall{Run: c.RunID, Step: c.Step, Deadline: call.DeadlineAt}
	}
	for _, consume := range c.Consume {
		call := p.Calls[consume.CallID]
		call.Consumed, call.Taken = true, c.Step
		p.Calls[consume.CallID] = call
	}
	for _, id := range c.Told {
		call := p.Calls[id]
		call.Told, call.ToldAt = true, c.Step
		p.Calls[id] = call
	}
}

func (p *plain) suspend(c session.Commit, stop session.StopKind) {
	switch stop {
	case session.StopAbort:
		p.Status, p.Failed, p.Aborted = session.Failed, true, true
		p.drop("")
	case session.StopInterrupt:
		p.Status, p.Interrupted = session.Interrupted, true
	default:
		p.Expires = c.Now + c.ExpireAfter
		for _, id := range p.open() {
			p.Expires = max(p.Expires, p.Calls[id].Deadline)
		}
	}
}

func (w *world) finish(key session.Key) act {
	if len(w.claims[key]) == 0 {
		return act{}
	}
	status := rapid.SampledFrom([]session.RunStatus{session.RunCompleted, session.RunFailed, session.RunInterrupted}).Draw(w.T, "outcome")
	c := session.Finish{Ref: w.ref(key), Outcome: *outcomeOf(status), Now: w.now}
	return command(w, "finish "+string(status), key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		stale := p.owns(c.RunID, c.Epoch)
		if stale != "" && !p.ended(c.RunID, c.Epoch) {
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
		p.end(r, status, 0)
		p.next(r, w.starts)
		return ""
	})
}

func (w *world) release(key session.Key) act {
	if len(w.claims[key]) == 0 {
		return act{}
	}
	c := session.Release{Ref: w.ref(key), Delay: session.Millis(rapid.SampledFrom([]int{0, 0, 3}).Draw(w.T, "delay")), Now: w.now}
	return command(w, "release", key, c.Need(), quiet(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p != nil {
			if r := p.run(c.RunID); r != nil && r.Epoch == c.Epoch && p.Epoch == c.Epoch && r.Status == session.RunQueued {
				return ""
			}
		}
		if reason := p.owns(c.RunID, c.Epoch); reason != "" {
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
