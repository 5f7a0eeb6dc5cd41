package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// waitingStarts are about what a run that has waited finds when it begins.
var waitingStarts = []suiteCase{
	{"calls that are open when a run that waited begins are abandoned", func(h *harness) {
		for name, end := range map[string]func(session.Ref){
			"stopped while it suspended": func(ref session.Ref) {
				interrupts := h.waitingOf(ref.Key)
				interrupts.OnBusy = session.BusyInterrupt
				h.start(interrupts)
				h.commit(h.suspendingCommit(ref, 1, "a of "+ref.SessionID, "b of "+ref.SessionID))
			},
			"suspended and stopped": func(ref session.Ref) {
				h.start(h.waitingOf(ref.Key))
				h.commit(h.suspendingCommit(ref, 1, "a of "+ref.SessionID, "b of "+ref.SessionID))
				h.stop(ref.Key, session.StopInterrupt, "enough")
			},
		} {
			key := at(name)
			h.start(h.startOf(key))
			ref, _ := h.claim(executor)
			end(ref)
			next, d := h.claim(executor)
			same(h, name+": calls", len(d.View.Calls), 2)
			c := h.commitOf(next, 2)
			for _, call := range d.View.Calls {
				same(h, name+": answer", call.Answer, session.AnswerAbandoned)
				same(h, name+": response", string(call.Response), "gone")
				c.Consume = append(c.Consume, session.Consume{CallID: call.CallID, Revision: 1})
			}
			same(h, name+": later answer", h.submit(h.submitOf(key, "a of "+name)).Status, session.AlreadyCompleted)
			h.commit(c)
			h.finish(next)
		}
	}},
}
