package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var states = []suiteCase{
	{"a state is overwritten and merged", func(h *harness) {
		h.create(h.createOf(home))
		version, err := h.saveState(session.SaveState{Key: home, State: `{"a": [1], "b": 2}`, ExpectedVersion: 1, Limits: limits, Now: h.now})
		h.must(err)
		same(h, "version", version, int64(2))
		same(h, "state", h.snapshot(home).Session.State, `{"a": [1], "b": 2}`)
		merged, err := h.mergeState(session.MergeState{Key: home, ExpectedVersion: 2, Limits: limits, Now: h.now, Ops: []session.StateOp{
			{Key: "a", Kind: session.OpAppend, Value: `[2]`}, {Key: "b", Kind: session.OpAppend, Value: `[3]`},
			{Key: "c", Kind: session.OpReplace, Value: `null`},
		}})
		h.must(err)
		s := h.snapshot(home).Session
		if merged.Version != 3 || s.Version != 3 || s.State != `{"a":[1,2],"b":[3],"c":null}` {
			h.Errorf("got version %d of %d, state %s", merged.Version, s.Version, s.State)
		}
		if len(merged.Warnings) != 1 || !strings.Contains(merged.Warnings[0], `"b"`) {
			h.Errorf("got warnings %q, want one of b", merged.Warnings)
		}
		_, err = h.saveState(session.SaveState{Key: home, State: `{}`, ExpectedVersion: 2, Limits: limits, Now: h.now})
		h.refuses(err, fault.Stale, "VERSION_STALE")
		_, err = h.mergeState(session.MergeState{Key: home, ExpectedVersion: 2, Limits: limits, Now: h.now})
		h.refuses(err, fault.Stale, "VERSION_STALE")
		big := `{"big":"` + strings.Repeat("x", limits.State) + `"}`
		_, err = h.saveState(session.SaveState{Key: home, State: big, Limits: limits, Now: h.now})
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		_, err = h.mergeState(session.MergeState{Key: home, Limits: limits, Now: h.now,
			Ops: []session.StateOp{{Key: "big", Kind: session.OpReplace, Value: big}}})
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		same(h, "session after refusals", h.snapshot(home).Session, s)
	}},
	{"concurrent merges lose nothing", func(h *harness) {
		h.create(h.createOf(home))
		concurrently(func(i int) {
			_, err := h.mergeState(session.MergeState{Key: home, Limits: limits, Now: h.now, Ops: []session.StateOp{
				{Key: fmt.Sprint("k", i), Kind: session.OpReplace, Value: "true"}, {Key: "all", Kind: session.OpAppend, Value: fmt.Sprintf("[%d]", i)},
			}})
			if err != nil {
				h.Errorf("merge %d: %v", i, err)
			}
		})
		s := h.snapshot(home).Session
		var state map[string]any
		h.must(json.Unmarshal([]byte(s.State), &state))
		if all, _ := state["all"].([]any); len(state) != parallelism+1 || len(all) != parallelism || s.Version != parallelism+1 {
			h.Errorf("got version %d, %s", s.Version, s.State)
		}
	}},
	{"a small write to a large state is stored separately", func(h *harness) {
		h.growState(at("bounded by bytes"), 4000)
		h.growState(at("bounded by writes"), 24_000)
	}},
	{"a separately stored write keeps every byte", func(h *harness) {
		c := h.createOf(home)
		c.State = `{"big":"` + strings.Repeat("é", 450) + `"}`
		h.create(c)
		for i, value := range []string{`"\u0000<&>"`, `"` + "\u2028" + `"`, `{"n":1.0e+2}`, `[ 1 , 2 ]`} {
			_, err := h.mergeState(session.MergeState{Key: home, Limits: limits, Now: h.now,
				Ops: []session.StateOp{{Key: "<k>\u2028\x01'\"", Kind: session.OpReplace, Value: value}}})
			h.must(err)
			s := h.snapshot(home).Session
			if s.StateBase == s.StateVersion {
				h.Errorf("write %d was not stored separately", i)
			}
			if !strings.HasSuffix(s.State, ":"+value+"}") {
				h.Errorf("write %d: got state %q, want it to end with %q", i, s.State, value)
			}
		}
	}},
	{"a multi-column state write is read atomically", func(h *harness) {
		c := h.createOf(home)
		c.State = `{"big":"` + strings.Repeat("x", 300) + `"}`
		h.create(c)
		done := make(chan struct{})
		h.whileWatching(func() {
			for i := range 60 {
				_, err := h.mergeState(session.MergeState{Key: home, Limits: limits, Now: h.now,
					Ops: []session.StateOp{{Key: "version", Kind: session.OpReplace, Value: fmt.Sprint(i + 2)}}})
				if err != nil {
					h.Error(err)
				}
			}
			close(done)
		}, func() bool {
			s := h.snapshot(home).Session
			if want := fmt.Sprintf(`"version":%d}`, s.Version); s.Version > 1 && !strings.HasSuffix(s.State, want) {
				h.Errorf("got version %d with the state %s", s.Version, s.State[300:])
			}
			return isClosed(done)
		})
	}},
}

// growState starts a session with a state of the size, and commits 80 steps. Of these, 72
// append a small value.
func (h *harness) growState(key session.Key, size int) {
	h.Helper()
	const steps = 80
	start := h.startOf(key)
	start.NewSession.State = `{"big":"` + strings.Repeat("x", size) + `","log":[]}`
	h.start(start)
	ref := h.claimOf(key)
	var log []string
	wholes := 0
	want := map[int32]string{}
	for step := int32(1); step <= steps; step++ {
		commit := h.commitOf(ref, step)
		commit.Limits.State = 2 * size
		if step%10 != 0 {
			log = append(log, fmt.Sprintf(`"entry ö %d"`, step))
			commit.Ops = []session.StateOp{
				{Key: "log", Kind: session.OpAppend, Value: "[" + log[len(log)-1] + "]"}, {Key: "gone", Kind: session.OpDelete},
			}
		}
		h.commit(commit)
		s := h.snapshot(key).Session
		want[step] = `{"big":"` + strings.Repeat("x", size) + `","log":[` + strings.Join(log, ",") + `]}`
		if s.State != want[step] {
			h.Fatalf("step %d: got state %s", step, s.State)
		}
		if s.StateBytes > int64(len(s.State))/2 || s.StateWrites > 64 {
			h.Fatalf("step %d: %d writes of %d bytes are stored beside a state of %d", step, s.StateWrites, s.StateBytes, len(s.State))
		}
		if s.StateBase == s.Version {
			wholes++
		}
	}
	if wholes == 0 || wholes > 6 {
		h.Errorf("%d of 72 small writes wrote the whole state of %d bytes anew", wholes, size)
	}
	for _, c := range h.checkpoints(key) {
		_, state, err := h.Store.Checkpoint(h.Context(), key, c.ID)
		h.must(err)
		if state != want[c.Step] {
			h.Errorf("checkpoint of step %d has the state %s", c.Step, state)
		}
	}
	same(h, "rows of states", h.Rows(h.T, key)["states"], 73)
}

// whileWatching runs work, and calls each look repeatedly in a goroutine until it returns true
// or the test has failed. It waits for all.
func (h *harness) whileWatching(work func(), looks ...func() bool) {
	together := make(chan struct{})
	for _, look := range looks {
		go func() {
			defer func() { together <- struct{}{} }()
			for !look() && !h.Failed() {
			}
		}()
	}
	work()
	for range looks {
		<-together
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
