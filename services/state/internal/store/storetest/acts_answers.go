package storetest

import (
	"fmt"
	"maps"
	"slices"

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
		f := session.Family{Now: c.Now}
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
