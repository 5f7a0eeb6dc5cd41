package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// answers draws answers to calls of the session, some of them twice, and one of the
// wrong kind once in a while.
func (w *world) answers(key session.Key) (list []session.Answer) {
	ids := append([]string{"none"}, slices.Sorted(maps.Keys(w.sessions[key].Calls))...)
	for range rapid.IntRange(1, 4).Draw(w.T, "answers") {
		list = append(list, session.Answer{CallID: rapid.SampledFrom(ids).Draw(w.T, "call"), Kind: session.ClientTool, Response: []byte("r")})
	}
	if rapid.IntRange(0, 9).Draw(w.T, "wrong kind") == 0 {
		list[len(list)-1].Kind = session.Approval
	}
	return list
}

func (w *world) submitAll(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	c := session.SubmitAll{Key: key, Answers: w.answers(key), NewRunID: w.id("run"), Now: w.now}
	var want []session.SubmitStatus // nil where nobody has predicted it
	a := command(w, "submit all", key, c.Need(), onOne(c.Decide), func(p *plain, all map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		after := p.clone()
		statuses := []session.SubmitStatus{}
		for _, answer := range c.Answers {
			status := after.take(answer, p.Status == session.Completed || p.Status == session.Failed)
			if status == "" {
				return "KIND_MISMATCH"
			}
			statuses = append(statuses, status)
		}
		want = statuses
		if slices.Contains(statuses, session.Accepted) && after.wake(c.NewRunID, c.Now) {
			after.Version++
		}
		all[key] = after
		return ""
	})
	send := a.send
	a.send = func() error {
		if want == nil {
			return send()
		}
		var got []session.Submitted
		f := session.Family{Now: c.Now, Limits: limits}
		if err := sendAll(w, f, c, &got); err != nil {
			return err
		}
		var statuses []session.SubmitStatus
		for _, one := range got {
			statuses = append(statuses, one.Status)
		}
		if !slices.Equal(statuses, want) {
			return fmt.Errorf("got the outcomes %v, want %v", statuses, want)
		}
		return nil
	}
	return a
}

func sendAll(w *world, f session.Family, c session.SubmitAll, got *[]session.Submitted) error {
	return send(w.t, w.store, f, c.Key, c.Need(), answered(got, c.Decide))
}

// take gives one answer to the calls of a session, which may be over, as they are by
// now; empty for one of the wrong kind to a call that is open.
func (p *plain) take(answer session.Answer, over bool) session.SubmitStatus {
	call, known := p.Calls[answer.CallID]
	wrong := answer.Kind != session.ClientTool
	switch {
	case !known:
		return session.UnknownCall
	case call.Answer == "" && over:
		return session.NotContinuable
	case call.Answer == "" && wrong:
		return ""
	case call.Answer != "" && wrong:
		return session.AlreadyCompleted
	case call.Answer == session.AnswerTimeout && call.Consumed:
		call.Late = true
		p.Calls[answer.CallID] = call
		return session.LateAnswer
	case call.Consumed, call.Answer == session.AnswerClient, call.Answer == session.AnswerAbandoned:
		return session.AlreadyCompleted
	case over:
		return session.NotContinuable
	}
	p.answer([]string{answer.CallID}, session.AnswerClient)
	return session.Accepted
}

// given takes the answers that a start brings; those that do not fit change nothing.
func (p *plain) given(answers []session.Answer) {
	for _, answer := range answers {
		p.take(answer, false)
	}
}

// takeBack starts a run at a message, most of them of users.
func (w *world) takeBack(key session.Key) act {
	p := w.sessions[key]
	if p == nil {
		return act{}
	}
	ids := append([]string{"none"}, p.Messages...)
	for _, id := range p.Messages {
		if ofUser(id) {
			ids = append(ids, id, id, id)
		}
	}
	c := w.startOf(key)
	c.TakeBack = taking(rapid.SampledFrom(ids).Draw(w.T, "message"), rapid.Bool().Draw(w.T, "keep"))
	if c.TakeBack.Keep && rapid.Bool().Draw(w.T, "nothing new") {
		c.Messages = nil
	}
	if rapid.Bool().Draw(w.T, "abandon") {
		c.Abandon = gone
	}
	a := command(w, fmt.Sprint("take back to ", c.TakeBack.MessageID, " ", c.TakeBack.Keep), key, c.Need(), c.Decide, func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		return p.takeBack(c)
	})
	a.undoes = true
	return w.starting(a, c)
}

// ofUser reports whether a message of that id was sent by a user.
func ofUser(id string) bool { return strings.HasPrefix(id, "m") && !strings.Contains(id, "@") }

// stepBefore is the step of the last message before the place that a step has said.
func (p *plain) stepBefore(at int) (step int32) {
	for _, id := range slices.Backward(p.Messages[:at]) {
		if i := strings.LastIndexAny(id, "~#"); i >= 0 {
			if _, err := fmt.Sscanf(id[i+1:], "%d", &step); err == nil {
				return step
			}
		}
	}
	return 0
}

func (p *plain) takeBack(c session.Start) string {
	at := slices.Index(p.Messages, c.TakeBack.MessageID)
	switch {
	case p.Status == session.Active, len(p.Queue) > 0:
		return "SESSION_BUSY"
	case at < 0, !ofUser(c.TakeBack.MessageID):
		return "MESSAGE_NOT_FOUND"
	}
	before := p.stepBefore(at)
	state, version := map[string]string(nil), int64(0)
	for _, k := range p.Checkpoints {
		if k.Messages <= at {
			state, version = k.State, k.StateVersion
		}
	}
	if r := p.run(p.Runner[c.TakeBack.MessageID]); r != nil {
		state, version = p.Origins[r.ID], r.FromState
	}
	if state == nil {
		return "CHECKPOINT_NOT_FOUND"
	}
	kept := []string{}
	if c.TakeBack.Keep {
		kept = append(kept, c.TakeBack.MessageID)
		p.Runner[c.TakeBack.MessageID] = c.RunID
	}
	for _, id := range p.Messages[at+1:] {
		_, step, result := strings.Cut(id, "#")
		for _, call := range p.Calls {
			if result && call.Consumed && call.Step <= before && fmt.Sprint(call.Taken) == step {
				kept = append(kept, id)
				break
			}
		}
	}
	p.cut(at)
	p.Messages = append(p.Messages, kept...)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(k plainCheckpoint) bool { return k.StateVersion > version })
	p.State, p.StateVersion = maps.Clone(state), version
	for id, call := range p.Calls {
		switch {
		case call.Step > before:
			delete(p.Calls, id)
		case call.ToldAt > before:
			call.Told, call.ToldAt = false, 0
			p.Calls[id] = call
		}
	}
	if c.Abandon != nil {
		p.answer(p.open(), session.AnswerAbandoned)
	}
	p.drop("")
	p.Interrupted = false
	p.bring(c, session.EntryStart)
	if c.TakeBack.Keep {
		p.Runs[len(p.Runs)-1].From, p.Runs[len(p.Runs)-1].FromTurn = at, at
	}
	return ""
}
