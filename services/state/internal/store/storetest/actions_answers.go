package storetest

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// drawAnswers draws answers to calls of the session. A call may get several answers, and
// sometimes the last answer has the wrong kind.
func (h *history) drawAnswers(key session.Key) (list []session.Answer) {
	ids := append([]string{"none"}, slices.Sorted(maps.Keys(h.sessions[key].Calls))...)
	for range rapid.IntRange(1, 4).Draw(h.T, "answers") {
		list = append(list, session.Answer{CallID: rapid.SampledFrom(ids).Draw(h.T, "call"), Kind: session.ClientTool, Response: []byte("r")})
	}
	if rapid.IntRange(0, 9).Draw(h.T, "wrong kind") == 0 {
		list[len(list)-1].Kind = session.Approval
	}
	return list
}

func (h *history) submitAll(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	c := session.SubmitAll{Key: key, Answers: h.drawAnswers(key), NewRunID: h.id("run"), Now: h.now}
	var want []session.SubmitStatus // nil without a prediction
	a := newAction(h, "submit all", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, all map[session.Key]*modelSession) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		after := p.clone()
		statuses := after.answerAll(c.Answers, c.Now)
		if slices.Contains(statuses, "") {
			return "KIND_MISMATCH"
		}
		want = statuses
		if slices.Contains(statuses, session.Accepted) && after.continueIfAnswered(c.NewRunID, c.Now) {
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
		if err := sendAll(h, f, c, &got); err != nil {
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

func sendAll(h *history, f session.Family, c session.SubmitAll, got *[]session.Submitted) error {
	return send(h.t, h.store, f, c.Key, c.Need(), capturing(got, c.Decide))
}

// answerCall applies one answer and returns its outcome; empty for an answer of the wrong
// kind to an open call. ended is true for an ended session.
func (p *modelSession) answerCall(answer session.Answer, ended bool) session.SubmitStatus {
	call, known := p.Calls[answer.CallID]
	wrong := answer.Kind != session.ClientTool
	switch {
	case !known:
		return session.UnknownCall
	case call.Answer == "" && ended:
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
	case ended:
		return session.NotContinuable
	}
	p.setAnswers([]string{answer.CallID}, session.AnswerClient)
	return session.Accepted
}

// answerAll applies answers in order and returns their outcomes.
func (p *modelSession) answerAll(answers []session.Answer, now session.Millis) []session.SubmitStatus {
	ended := p.hasEnded(now)
	statuses := []session.SubmitStatus{}
	for _, answer := range answers {
		statuses = append(statuses, p.answerCall(answer, ended))
	}
	return statuses
}

// hasEnded reports whether the session takes no answers: it has ended, or its time is over.
func (p *modelSession) hasEnded(now session.Millis) bool {
	return p.Status == session.Completed || p.Status == session.Failed || p.Expires != 0 && p.Expires <= now
}

// applyAnswers applies the answers of a start. Invalid answers change nothing.
func (p *modelSession) applyAnswers(answers []session.Answer) {
	for _, answer := range answers {
		p.answerCall(answer, false)
	}
}
