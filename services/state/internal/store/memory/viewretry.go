package memory

import (
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// viewAnswer shows the newest run that has the id of the assistant's message.
func (r *rows) viewAnswer(need session.Need, v *session.View) {
	if need.Answer == "" {
		return
	}
	v.Answer = &session.AnswerRun{}
	place := -1
	for i, run := range r.runs {
		if run.Turn > 0 && run.MessageID == need.Answer && (place < 0 || run.Turn > r.runs[place].Turn) {
			place = i
		}
	}
	if place < 0 {
		return
	}
	run := copyRun(&r.runs[place])
	a := &session.AnswerRun{Run: run, Stands: true}
	from := min(run.StartMessageCount, int64(len(r.messages)))
	behind := r.messages[from:]
	if len(behind) > 0 {
		a.Stands = behind[0].RunID == run.RunID
	}
	asked := r.messages
	if n := slices.IndexFunc(behind, func(m session.Message) bool { return m.RunID != run.RunID || m.Step > 0 }); n >= 0 {
		asked = r.messages[:from+int64(n)]
	}
	for i := len(asked) - 1; i >= 0 && len(a.Asked) < session.MostAsked; i-- {
		if asked[i].Role == "user" && asked[i].Step == 0 {
			a.Asked = append(a.Asked, copyMessages(asked[i:i+1])...)
		}
	}
	v.Answer = a
}

// viewFailed shows from where the newest run can be tried again.
func (r *rows) viewFailed(need session.Need, v *session.View) {
	if !need.Retry {
		return
	}
	run := r.run(r.session.CurrentRunID)
	if run == nil {
		return
	}
	f := &session.FailedStep{}
	f.Good = r.checkpoint(func(c *session.Checkpoint) bool { return c.RunID == run.RunID && c.Status != session.Failed })
	if f.Good != nil {
		f.State, _ = r.state(f.Good.StateBase, f.Good.StateVersion) // the store may have dropped it
	}
	if run.FinishStep > 0 {
		for _, m := range r.messages[min(run.StartMessageCount, int64(len(r.messages))):] {
			if m.RunID == run.RunID && m.Step == run.FinishStep {
				f.Messages = append(f.Messages, copyMessages([]session.Message{m})...)
			}
		}
	}
	v.Failed = f
}
