package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// branches prove the start of a run in a new branch.
var branches = []suiteCase{
	{"a branch starts with a run", func(h *harness) {
		h.runSteps(home, 3)
		list, all, before := h.checkpoints(home), h.messages(home), h.snapshot(home)
		c := h.branchOffOf(home, list[1].ID, at("branch"))
		c.Append = []session.Message{{ID: "note", Role: "system", CreatedAt: h.now, Body: []byte("x")}}
		c.Ops = []session.StateOp{{Key: "m", Kind: session.OpReplace, Value: "9"}}
		c.Messages[0].ID = all[3].ID // not in the branch
		started := h.branchOff(c)
		want := append(all[:3:3], atOrdinal(c.Append[0], 3), atOrdinal(c.Messages[0], 4))
		same(h, "messages", h.messages(at("branch")), want)
		s, run := h.session(at("branch"))
		if !started.Created || started.Repeated || s.Status != session.Active || s.RootID != "branch" || s.ParentID != "" || s.Turn != 1 || s.MessageCount != 5 || s.UserID != "u" || s.OrganizationID != "org" {
			h.Errorf("got %+v of %+v", started, s)
		}
		same(h, "state", s.State, `{"log":[1,2],"m":9}`)
		if run.RunID != c.RunID || run.Status != session.RunQueued || run.Entry != session.EntryResume || run.StartMessageCount != 4 || run.Turn != 1 {
			h.Errorf("got %+v", run)
		}
		same(h, "started", started.Run, run)
		same(h, "source", h.snapshot(home), before)
		ref := h.claimOf(at("branch"))
		step := h.commitOf(ref, 1)
		step.Ops, step.Outcome = []session.StateOp{{Key: "log", Kind: session.OpAppend, Value: "[5]"}}, &completed
		h.commit(step)
		same(h, "state after a step", h.snapshot(at("branch")).Session.State, `{"log":[1,2,5],"m":9}`)
		_, state, err := h.Store.Checkpoint(h.Context(), at("branch"), step.CheckpointID)
		h.must(err)
		same(h, "state of its checkpoint", state, `{"log":[1,2,5],"m":9}`)
	}},
	{"a request key starts one branch", func(h *harness) {
		h.runSteps(home, 2)
		c := h.branchOffOf(home, h.checkpoints(home)[0].ID, at("branch"))
		c.RequestKey, c.RequestHash = "k", []byte("h")
		h.branchOff(c)
		before := h.snapshot(at("branch"))
		repeat := h.branchOffOf(home, c.CheckpointID, at("branch"))
		repeat.RequestKey, repeat.RequestHash = "k", []byte("h")
		if got := h.branchOff(repeat); !got.Repeated || got.Created || got.Run.RunID != c.RunID {
			h.Errorf("got %+v, want the first run", got)
		}
		repeat.RequestHash = []byte("another")
		_, err := h.tryBranchOff(repeat)
		h.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		repeat.RequestKey = "another"
		_, err = h.tryBranchOff(repeat)
		h.refuses(err, fault.Conflict, "SESSION_EXISTS")
		same(h, "snapshot", h.snapshot(at("branch")), before)
	}},
	{"a branch without a source starts no run", func(h *harness) {
		h.runSteps(home, 2)
		known := h.checkpoints(home)[1].ID
		_, err := h.tryBranchOff(h.branchOffOf(home, "unknown", at("branch")))
		h.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		_, err = h.tryBranchOff(h.branchOffOf(at("unknown"), known, at("branch")))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		taken := h.branchOffOf(home, known, at("branch"))
		taken.Messages[0].ID = h.messageIDs(home)[0]
		_, err = h.tryBranchOff(taken)
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		large := h.branchOffOf(home, known, at("branch"))
		large.Limits.State = 12
		large.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: `"too large"`}}
		_, err = h.tryBranchOff(large)
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		_, err = h.Store.Session(h.Context(), at("branch"))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
}

// branchOffOf returns a command to begin a run with one message in a branch.
func (h *harness) branchOffOf(from session.Key, checkpointID string, key session.Key) session.BranchAndStart {
	c := h.startOf(key).RunRequest
	c.Limits = limits
	return session.BranchAndStart{RunRequest: c, From: from, CheckpointID: checkpointID}
}

func (h *harness) tryBranchOff(c session.BranchAndStart) (started session.Started, err error) {
	err = h.Store.Update(h.Context(), c.Targets(), weight, func(views []*session.View) (changes []*session.Change, err error) {
		var own *session.Change
		if own, started, err = c.Decide(views...); err != nil {
			return nil, err
		}
		return []*session.Change{own, nil}, nil
	})
	return started, err
}

func (h *harness) branchOff(c session.BranchAndStart) session.Started {
	h.Helper()
	started, err := h.tryBranchOff(c)
	h.must(err)
	return started
}
