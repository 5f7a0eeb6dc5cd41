package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// bulkAnswers prove the effects of a batch of answers, submitted or with a start.
var bulkAnswers = []suiteCase{
	{"concurrent batches of answers continue a session once", func(h *harness) {
		var ids []string
		for i := range parallelism {
			ids = append(ids, fmt.Sprint("c", i))
		}
		h.startSuspended(home, ids...)
		commands := make([]session.SubmitAll, parallelism)
		for i := range commands {
			commands[i] = h.submitAllOf(home, ids[i], ids[(i+1)%parallelism], ids[(i+2)%parallelism])
		}
		var taken, continued atomic.Int32
		concurrently(func(i int) {
			got, err := h.trySubmitAll(commands[i])
			if err != nil {
				h.Errorf("submit %d: %v", i, err)
				return
			}
			for _, one := range got {
				if one.Status == session.Accepted {
					taken.Add(1)
				}
			}
			if got[0].Continuation == session.ContinueNewRun {
				continued.Add(1)
			}
		})
		same(h, "accepted answers", taken.Load(), int32(parallelism))
		same(h, "continuations", continued.Load(), int32(1))
		same(h, "turn", h.snapshot(home).Session.Turn, int32(2))
	}},
}

// submitAllOf returns a command to answer the calls of a session.
func (h *harness) submitAllOf(key session.Key, callIDs ...string) session.SubmitAll {
	c := session.SubmitAll{Key: key, NewRunID: h.id("run"), Now: h.now}
	for _, id := range callIDs {
		c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte("answer to " + id)})
	}
	return c
}

func (h *harness) trySubmitAll(c session.SubmitAll) (got []session.Submitted, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&got, c.Decide))
	return got, err
}

func (h *harness) submitAll(c session.SubmitAll) []session.Submitted {
	h.Helper()
	got, err := h.trySubmitAll(c)
	h.must(err)
	return got
}

// abandoningStart returns a start with answers to the calls. It abandons the other calls.
func (h *harness) abandoningStart(key session.Key, callIDs ...string) session.Send {
	c := h.startOf(key)
	c.Abandon = abandonedResponse
	for _, id := range callIDs {
		c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte(id)})
	}
	return c
}
