package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// begins are about what a run that has waited finds when it begins.
var begins = []test{
	{"calls that are open when a run that waited begins are abandoned", func(b *bench) {
		for name, end := range map[string]func(session.Ref){
			"stopped while it suspended": func(ref session.Ref) {
				interrupts := b.waitingOf(ref.Key)
				interrupts.OnBusy = session.BusyInterrupt
				b.start(interrupts)
				b.commit(b.suspending(ref, 1, "a of "+ref.SessionID, "b of "+ref.SessionID))
			},
			"suspended and stopped": func(ref session.Ref) {
				b.start(b.waitingOf(ref.Key))
				b.commit(b.suspending(ref, 1, "a of "+ref.SessionID, "b of "+ref.SessionID))
				b.stop(ref.Key, session.StopInterrupt, "enough")
			},
		} {
			key := at(name)
			b.start(b.startOf(key))
			ref, _ := b.claim(executor)
			end(ref)
			next, d := b.claim(executor)
			same(b, name+": calls", len(d.View.Calls), 2)
			c := b.commitOf(next, 2)
			for _, call := range d.View.Calls {
				same(b, name+": answer", call.Answer, session.AnswerAbandoned)
				same(b, name+": response", string(call.Response), "gone")
				c.Consume = append(c.Consume, session.Consume{CallID: call.CallID, Revision: 1})
			}
			same(b, name+": later answer", b.submit(b.submitOf(key, "a of "+name)).Status, session.AlreadyCompleted)
			b.commit(c)
			b.finish(next)
		}
	}},
}
