package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// checkpointReads prove the reads of checkpoints.
var checkpointReads = []suiteCase{
	{"checkpoints are listed in pages, the newest first", func(h *harness) {
		h.runSteps(home, 7)
		for _, p := range []struct {
			before        int32
			offset, limit int
			want          string
		}{{0, 0, 3, "765"}, {5, 0, 3, "432"}, {0, 2, 3, "543"}, {5, 1, 9, "321"}, {0, 7, 3, ""}, {1, 0, 3, ""}, {0, 0, 0, ""}} {
			list, total, err := h.Store.Checkpoints(h.Context(), home, p.before, p.offset, p.limit)
			h.must(err)
			got := ""
			for _, c := range list {
				got += fmt.Sprint(c.Step)
				alone, state, err := h.Store.Checkpoint(h.Context(), home, c.ID)
				h.must(err)
				same(h, "checkpoint alone", *alone, c)
				if want := `{"log":[1,2,3,4,5,6,7`[:8+2*c.Step-1] + "]}"; state != want {
					h.Errorf("step %d: got state %s, want %s", c.Step, state, want)
				}
			}
			if got != p.want || total != 7 {
				h.Errorf("%+v: got %q of %d, want %q of 7", p, got, total, p.want)
			}
		}
		newest, _, err := h.Store.Checkpoint(h.Context(), home, "")
		h.must(err)
		same(h, "newest", newest.Step, int32(7))
		same(h, "last step's, shown to a command", h.readView(home, session.Need{CheckpointStep: 7}).Checkpoint.ID, newest.ID)
		if v := h.readView(home, session.Need{CheckpointStep: 6}); v.Checkpoint != nil {
			h.Error("the checkpoint of a step was shown that is not the last one")
		}
		same(h, "what the session says", h.snapshot(home).Session.CheckpointID, newest.ID)
	}},
	{"a session without steps has no checkpoint", func(h *harness) {
		h.create(h.createOf(home))
		for _, id := range []string{"", "cp"} {
			h.expectNoCheckpoint(id)
			_, _, err := h.Store.Checkpoint(h.Context(), at("unknown"), id)
			h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		}
		list, total, err := h.Store.Checkpoints(h.Context(), home, 0, 0, 9)
		if err != nil || len(list) != 0 || total != 0 {
			h.Errorf("got %d of %d, %v", len(list), total, err)
		}
		_, _, err = h.Store.Checkpoints(h.Context(), at("unknown"), 0, 0, 9)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"every checkpoint that remains after a rewind keeps its state", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		for step := int32(1); step <= 4; step++ {
			c := h.commitOf(ref, step)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: fmt.Sprint(step)}}
			if step > 2 {
				c.Messages = nil // the step only writes to the state
			}
			h.commit(c)
		}
		h.finish(ref)
		target := h.checkpoints(home)[2]
		_, err := h.rewind(home, target.ID)
		h.must(err)
		list := h.checkpoints(home)
		for _, c := range list {
			if _, _, err := h.Store.Checkpoint(h.Context(), home, c.ID); err != nil {
				h.Errorf("checkpoint of step %d: %v", c.Step, err)
			}
		}
		newest, state, err := h.Store.Checkpoint(h.Context(), home, "")
		h.must(err)
		if newest.ID != target.ID || state != `{"n":2}` {
			h.Errorf("got the newest checkpoint of step %d with the state %s, want the rewound one", newest.Step, state)
		}
	}},
	{"a session can be rewound any number of times", func(h *harness) {
		h.runSteps(home, 2)
		step := int32(2)
		for turn := range int32(6) {
			list := h.checkpoints(home)
			target := list[int(turn)%len(list)]
			_, want, err := h.Store.Checkpoint(h.Context(), home, target.ID)
			h.must(err)
			_, err = h.rewind(home, target.ID)
			h.must(err)
			same(h, "state", h.snapshot(home).Session.State, want)
			h.start(h.startOf(home))
			ref, d := h.claim(executor)
			same(h, "messages", d.View.Session.MessageCount, target.MessageCount+1)
			for range 2 {
				step++
				c := h.commitOf(ref, step)
				c.Ops = []session.StateOp{{Key: "log", Kind: session.OpAppend, Value: fmt.Sprintf("[%d]", step)}}
				h.commit(c)
			}
			h.finish(ref)
			for i, m := range h.messages(home) {
				same(h, "ordinal", m.Ordinal, int64(i))
			}
		}
	}},
}
