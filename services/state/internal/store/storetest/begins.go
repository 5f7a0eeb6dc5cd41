package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// begins are about what a run that has waited finds when it begins.
var begins = []test{
	{"writes that fit no more when a run that waited begins abort it", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		large := func(key string) []session.StateOp {
			return []session.StateOp{{Key: key, Kind: session.Replace, Value: fmt.Sprintf(`"%0600d"`, 1)}}
		}
		first, second := b.waitingOf(home), b.waitingOf(home)
		first.Ops, second.Ops = large("a"), append(large("b"), large("c")...)
		b.start(first)
		_, err := b.try(second)
		b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		second.Ops = large("b")
		b.start(second)
		b.finish(ref)
		next, d := b.claim(executor)
		same(b, "stop of the first", d.View.Run.Stop, (*session.Stop)(nil))
		state := d.View.Session.State
		b.finish(next)
		_, d = b.claim(executor)
		if stop := d.View.Run.Stop; d.View.Run.RunID != second.RunID || stop == nil || stop.Kind != session.StopAbort || stop.At != b.now || stop.Reason == "" {
			b.Errorf("got %+v, want it aborted", d.View.Run)
		}
		same(b, "state", d.View.Session.State, state)
		b.message(home, second.Messages[0].ID, 1)
	}},
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
