package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// batches prove isolation: commands of one batch behave as if written one by one.
var batches = []suiteCase{
	{"each of many concurrent commands gets its own result", func(h *harness) {
		const n = 60
		refusal := fault.New(fault.Conflict, "REFUSED", "by its own rules")
		plain := errors.New("no fault at all")
		var wg sync.WaitGroup
		for i := range n {
			h.create(h.createOf(at(fmt.Sprint(i))))
		}
		for i := range n {
			wg.Go(func() {
				key := at(fmt.Sprint(i))
				err := h.Store.Update(h.Context(), []session.Target{{Key: key}}, weight, func(views []*session.View) ([]*session.Change, error) {
					s := *views[0].Session
					s.Version++
					switch i % 6 {
					case 1:
						return nil, refusal
					case 2: // an id in use; commands of the heart check this
						return []*session.Change{{Session: &s, Created: true, NewState: true}}, nil
					case 3:
						return nil, nil
					case 4:
						return nil, plain
					case 5:
						return []*session.Change{nil}, nil
					}
					return []*session.Change{{Session: &s}}, nil
				})
				switch want := []error{nil, refusal, nil, nil, plain, nil}[i%6]; {
				case i%6 == 2:
					if err == nil || errors.Is(err, fault.Unavailable) {
						h.Errorf("command %d wrote what must not be: got %v", i, err)
					}
				case want != nil && !errors.Is(err, want), want == nil && err != nil:
					h.Errorf("command %d: got %v, want %v", i, err, want)
				}
			})
		}
		wg.Wait()
		for i := range n {
			want := []int64{2, 1, 1, 1, 1, 1}[i%6]
			same(h, fmt.Sprint("version after command ", i), h.snapshot(at(fmt.Sprint(i))).Session.Version, want)
		}
	}},
	{"a change with an invalid last row writes no row", func(h *harness) {
		h.create(h.createOf(home))
		h.create(h.createOf(at("s2")))
		h.append(home, "a")
		one, two := h.snapshot(home).Session, h.snapshot(at("s2")).Session
		one.Version, two.Version = 9, 9
		err := h.Store.Update(h.Context(), []session.Target{{Key: at("s2")}, {Key: home}}, weight,
			func([]*session.View) ([]*session.Change, error) {
				return []*session.Change{
					{Session: &two, Messages: []session.Message{{ID: "new"}}},
					{Session: &one, Messages: []session.Message{{ID: "b", Ordinal: 1}, {ID: "a", Ordinal: 2}}},
				}, nil
			})
		if err == nil {
			h.Error("two messages of one id were written")
		}
		same(h, "messages", len(h.messages(home)), 1)
		same(h, "messages of the other session", len(h.messages(at("s2"))), 0)
		same(h, "versions", []int64{h.snapshot(home).Session.Version, h.snapshot(at("s2")).Session.Version}, []int64{2, 1})
	}},
	{"the schema enforces the invariants of the heart", func(h *harness) {
		h.start(h.startOf(home))
		before := h.snapshot(home)
		s := before.Session
		for what, change := range map[string]*session.Change{
			"two live runs": {NewRun: &session.Run{RunID: "r2", AgentType: agent, Turn: 2, Status: session.RunQueued,
				Entry: session.EntryStart}},
			"a run twice": {NewRun: &session.Run{RunID: s.CurrentRunID, AgentType: agent, Turn: 2, Status: session.RunFailed,
				Entry: session.EntryStart}},
			"a message at a place twice": {Messages: []session.Message{{ID: "new", Ordinal: 0}}},
			"a message id twice":         {Messages: []session.Message{{ID: h.messages(home)[0].ID, Ordinal: 1}}},
			"a call twice": {NewCalls: []session.Call{{CallID: "c", SessionID: home.SessionID, Kind: session.ClientTool},
				{CallID: "c", SessionID: home.SessionID, Kind: session.ClientTool}}},
			"a session twice":               {Session: &s, Created: true, NewState: true},
			"a session of unknown status":   {Session: func() *session.Session { s := s; s.Status = "nonsense"; return &s }()},
			"a run of unknown status":       {Runs: []session.Run{func() session.Run { r := *before.Current; r.Status = "nonsense"; return r }()}},
			"a call of unknown kind":        {NewCalls: []session.Call{{CallID: "c", SessionID: home.SessionID, Kind: "nonsense"}}},
			"a child of unknown location":   {Children: []session.Child{{SessionID: "x", Mode: session.Ephemeral, Location: "nonsense"}}},
			"a state as of a version twice": {Session: &s, NewState: true},
			"a run that waits in a turn": {NewRun: &session.Run{RunID: "r2", AgentType: agent, Turn: 2, Status: session.RunWaiting,
				Entry: session.EntryStart, QueuePlace: 1}},
			"a run that waits at no place": {NewRun: &session.Run{RunID: "r2", AgentType: agent, Status: session.RunWaiting,
				Entry: session.EntryStart}},
			"a run that began in no turn": {NewRun: &session.Run{RunID: "r2", AgentType: agent, Status: session.RunQueued,
				Entry: session.EntryStart}},
			"an unknown policy": {NewRun: &session.Run{RunID: "r2", AgentType: agent, Turn: 2, Status: session.RunFailed,
				Entry: session.EntryStart, OnBusy: "nonsense"}},
			"fewer than none that wait": {Session: func() *session.Session { s := s; s.Waiting = -1; return &s }()},
		} {
			if err := h.tryWrite(home, change); err == nil {
				h.Errorf("%s could be written", what)
			}
		}
		same(h, "snapshot", h.snapshot(home), before)
	}},
	{"concurrent commands on one session are applied one after the other", func(h *harness) {
		h.create(h.createOf(home))
		const n = 40
		seen := make([]int64, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				err := h.Store.Update(h.Context(), []session.Target{{Key: home}}, weight, func(views []*session.View) ([]*session.Change, error) {
					s := *views[0].Session
					seen[i] = s.Version
					s.Version++
					return []*session.Change{{Session: &s}}, nil
				})
				if err != nil {
					h.Errorf("command %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		at := map[int64]bool{}
		for _, version := range seen {
			at[version] = true
		}
		if version := h.snapshot(home).Session.Version; len(at) != n || version != n+1 {
			h.Errorf("%d commands saw %d versions, the last wrote %d", n, len(at), version)
		}
	}},
	{"commands on several sessions never deadlock and never interleave", func(h *harness) {
		const n = 5
		for i := range n {
			h.create(h.createOf(at(fmt.Sprint(i))))
		}
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				from, to := i%n, (i+1+i/n%(n-1))%n
				targets := []session.Target{{Key: at(fmt.Sprint(from))}, {Key: at(fmt.Sprint(to))}}
				err := h.Store.Update(h.Context(), targets, weight, func(views []*session.View) ([]*session.Change, error) {
					one, two := *views[0].Session, *views[1].Session
					one.ResumeCount, two.ResumeCount = one.ResumeCount+1, two.ResumeCount+1
					one.UsageCount, two.UsageCount = one.UsageCount+int32(i), two.UsageCount+int32(i)
					return []*session.Change{{Session: &one}, {Session: &two}}, nil
				})
				if err != nil {
					h.Errorf("command %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		var commands, weights int64
		for i := range n {
			s := h.snapshot(at(fmt.Sprint(i))).Session
			commands, weights = commands+int64(s.ResumeCount), weights+int64(s.UsageCount)
		}
		if commands != 120 || weights != 59*60 {
			h.Errorf("got %d halves of commands of the weight %d, want 120 of %d", commands, weights, 59*60)
		}
	}},
	{"a command with a cancelled caller is written completely or not at all", func(h *harness) {
		h.create(h.createOf(home))
		h.create(h.createOf(at("s2")))
		var answered atomic.Int64
		var wg sync.WaitGroup
		for i := range 60 {
			ctx, leave := context.WithCancel(h.Context())
			if i%3 == 0 {
				leave()
			}
			wg.Go(func() {
				defer leave()
				err := h.Store.Update(ctx, []session.Target{{Key: home}, {Key: at("s2")}}, weight,
					func(views []*session.View) ([]*session.Change, error) {
						if i%3 == 1 {
							leave()
						}
						one, two := *views[0].Session, *views[1].Session
						one.Version, two.Version = one.Version+1, two.Version+1
						m := session.Message{ID: fmt.Sprint(i), Ordinal: one.MessageCount}
						one.MessageCount++
						return []*session.Change{{Session: &one, Messages: []session.Message{m}}, {Session: &two}}, nil
					})
				switch {
				case err == nil && i%3 == 0:
					h.Errorf("command %d was written although its caller had cancelled it before", i)
				case err == nil:
					answered.Add(1)
				case i%3 == 2:
					h.Errorf("command %d: %v", i, err)
				case fault.KindOf(err) != fault.Unavailable:
					h.Errorf("command %d: got %v for a cancelled caller", i, err)
				}
			})
		}
		wg.Wait()
		one, two := h.snapshot(home).Session, h.snapshot(at("s2")).Session
		if one.Version != two.Version || one.MessageCount != one.Version-1 || int64(len(h.messages(home))) != one.MessageCount ||
			one.MessageCount < answered.Load() || one.MessageCount > 40 {
			h.Errorf("got versions %d and %d, %d of %d messages, %d answers", one.Version, two.Version, len(h.messages(home)), one.MessageCount,
				answered.Load())
		}
	}},
	{"claims run concurrently with commands on the same sessions", func(h *harness) {
		const n = 20
		for i := range n {
			h.start(h.startOf(at(fmt.Sprint(i))))
		}
		var claimed atomic.Int64
		concurrently(func(i int) {
			for claimed.Load() < n && !h.Failed() {
				if i%2 == 0 {
					claimed.Add(int64(len(h.claimAll(executor, 3))))
				} else if _, err := h.tryAppend(at(fmt.Sprint(i)), h.id("msg")); err != nil {
					h.Errorf("append: %v", err)
				}
			}
		})
		for i := range n {
			if s, run := h.session(at(fmt.Sprint(i))); run.Status != session.RunRunning || s.Epoch != 1 ||
				int64(len(h.messages(s.Key))) != min(s.MessageCount, 200) {
				h.Errorf("got %+v,\n%+v", s, run)
			}
		}
	}},
	{"a closed store reports that it is unavailable", func(h *harness) {
		h.create(h.createOf(home))
		h.must(h.Store.Close())
		_, err := h.tryAppend(home, "a")
		if !errors.Is(err, fault.Unavailable) {
			h.Errorf("got %v, want a fault of the kind %v", err, fault.Unavailable)
		}
	}},
}
