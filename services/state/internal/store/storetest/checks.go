package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// checks are about checkpoints that are read.
var checks = []test{
	{"checkpoints are listed in pages, the newest first", func(b *bench) {
		b.steps(home, 7)
		for _, p := range []struct {
			before        int32
			offset, limit int
			want          string
		}{{0, 0, 3, "765"}, {5, 0, 3, "432"}, {0, 2, 3, "543"}, {5, 1, 9, "321"}, {0, 7, 3, ""}, {1, 0, 3, ""}, {0, 0, 0, ""}} {
			list, total, err := b.Store.Checkpoints(b.Context(), home, p.before, p.offset, p.limit)
			b.must(err)
			got := ""
			for _, c := range list {
				got += fmt.Sprint(c.Step)
				alone, state, err := b.Store.Checkpoint(b.Context(), home, c.ID)
				b.must(err)
				same(b, "checkpoint alone", *alone, c)
				if want := `{"log":[1,2,3,4,5,6,7`[:8+2*c.Step-1] + "]}"; state != want {
					b.Errorf("step %d: got state %s, want %s", c.Step, state, want)
				}
			}
			if got != p.want || total != 7 {
				b.Errorf("%+v: got %q of %d, want %q of 7", p, got, total, p.want)
			}
		}
		newest, _, err := b.Store.Checkpoint(b.Context(), home, "")
		b.must(err)
		same(b, "newest", newest.Step, int32(7))
		same(b, "last step's, shown to a command", b.view(home, session.Need{CheckpointAt: 7}).Checkpoint.ID, newest.ID)
		if v := b.view(home, session.Need{CheckpointAt: 6}); v.Checkpoint != nil {
			b.Error("the checkpoint of a step was shown that is not the last one")
		}
		same(b, "what the session says", b.snapshot(home).Session.CheckpointID, newest.ID)
	}},
	{"a session without steps has no checkpoint", func(b *bench) {
		b.create(b.createOf(home))
		for _, id := range []string{"", "cp"} {
			b.refused(id)
			_, _, err := b.Store.Checkpoint(b.Context(), at("nobody"), id)
			b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		}
		list, total, err := b.Store.Checkpoints(b.Context(), home, 0, 0, 9)
		if err != nil || len(list) != 0 || total != 0 {
			b.Errorf("got %d of %d, %v", len(list), total, err)
		}
		_, _, err = b.Store.Checkpoints(b.Context(), at("nobody"), 0, 0, 9)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"every checkpoint that is left after going back has its state", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		for step := int32(1); step <= 4; step++ {
			c := b.commitOf(ref, step)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: fmt.Sprint(step)}}
			if step > 2 {
				c.Messages = nil // a step that only writes to the state
			}
			b.commit(c)
		}
		b.finish(ref)
		target := b.checkpoints(home)[2]
		_, err := b.rewind(home, target.ID)
		b.must(err)
		list := b.checkpoints(home)
		for _, c := range list {
			if _, _, err := b.Store.Checkpoint(b.Context(), home, c.ID); err != nil {
				b.Errorf("checkpoint of step %d: %v", c.Step, err)
			}
		}
		newest, state, err := b.Store.Checkpoint(b.Context(), home, "")
		b.must(err)
		if newest.ID != target.ID || state != `{"n":2}` {
			b.Errorf("got the newest checkpoint of step %d with the state %s, want the one that the session went back to", newest.Step, state)
		}
	}},
	{"a session goes back and forth any number of times", func(b *bench) {
		b.steps(home, 2)
		step := int32(2)
		for turn := range int32(6) {
			list := b.checkpoints(home)
			target := list[int(turn)%len(list)]
			_, want, err := b.Store.Checkpoint(b.Context(), home, target.ID)
			b.must(err)
			_, err = b.rewind(home, target.ID)
			b.must(err)
			same(b, "state", b.snapshot(home).Session.State, want)
			b.start(b.startOf(home))
			ref, d := b.claim(executor)
			same(b, "messages", d.View.Session.MessageCount, target.MessageCount+1)
			for range 2 {
				step++
				c := b.commitOf(ref, step)
				c.Ops = []session.StateOp{{Key: "log", Kind: session.Append, Value: fmt.Sprintf("[%d]", step)}}
				b.commit(c)
			}
			b.finish(ref)
			for i, m := range b.messages(home) {
				same(b, "ordinal", m.Ordinal, int64(i))
			}
		}
	}},
}
