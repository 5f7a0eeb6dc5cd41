package storetest

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// hostile lists ids with a meaning in SQL, patterns, paths or a stream's subjects.
var hostile = []string{
	".", "..", "a.b.*.>", "*", " ", " leading and trailing ", `'; DROP TABLE sessions; --`, `"quoted"`, "%", "_", `\`, "a/b?c#d", "%00", "{}",
	"null",
	"日本語", "é", "e\u0301", "🪢", "A", "a", strings.Repeat("x", 256), strings.Repeat("é", 128),
}

var reads = []suiteCase{
	{"tenants do not see each other", func(h *harness) {
		mine, theirs := home, session.Key{Tenant: "other", SessionID: home.SessionID}
		c := h.startOf(mine)
		h.start(c)
		_, err := h.Store.Session(h.Context(), theirs)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = h.Store.Run(h.Context(), theirs, c.RunID)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = h.Store.Runs(h.Context(), theirs, 0, 10)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, _, err = h.Store.Messages(h.Context(), theirs, store.Page{Limit: 10, MaxBytes: 1})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		ref, _ := h.claim(executor)
		ref.Key = theirs
		_, err = h.tryCommit(h.commitOf(ref, 1))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		if started := h.start(h.startOf(theirs)); !started.Created {
			h.Error("the other tenant got a session that exists")
		}
		_, err = h.Store.Run(h.Context(), theirs, c.RunID)
		h.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"hostile ids work everywhere", func(h *harness) {
		for i, id := range hostile {
			c := h.startOf(session.Key{Tenant: id, SessionID: id})
			c.RequestKey, c.NewSession.UserID, c.Messages[0].ID = id, id, id
			c.RunID = id
			h.start(c)
			if s, run := h.session(c.Key); s.Key != c.Key || s.UserID != id || run.RunID != id || run.RequestKey != id {
				h.Errorf("%q was read as %+v", id, s)
			}
			same(h, "message", h.messages(c.Key)[0].ID, id)
			ref, _ := h.claim(executor)
			h.must(h.tryPlan(ref, 1, "plan", id))
			_, err := h.tryResult(ref, 1, session.Result{CallID: id,
				Ops: []session.StateOp{{Key: id, Kind: session.OpReplace, Value: fmt.Sprint(i)}}})
			h.must(err)
			h.commit(h.commitOf(ref, 1))
			h.finish(ref)
			repeat := h.startOf(c.Key)
			repeat.Messages[0].ID = id
			_, err = h.tryStart(repeat)
			h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		}
	}},
	{"messages are read in pages", func(h *harness) {
		c := h.startOf(home)
		c.Messages = nil
		for i := range 10 {
			c.Messages = append(c.Messages, session.Message{ID: fmt.Sprint(i), Role: "user", Body: make([]byte, 100)})
		}
		h.start(c)
		for _, p := range []struct {
			page store.Page
			want string
		}{
			{store.Page{From: 0, Limit: 3, MaxBytes: 1000}, "012"},
			{store.Page{From: 8, Limit: 3, MaxBytes: 1000}, "89"},
			{store.Page{From: 2, Limit: 100, MaxBytes: 450}, "2345"},
			{store.Page{From: 2, Limit: 100, MaxBytes: 400}, "2345"},
			{store.Page{From: 2, Limit: 100, MaxBytes: 1}, "2"},
			{store.Page{From: 10, Limit: 100, MaxBytes: 1000}, ""},
			{store.Page{From: 1 << 40, Limit: 100, MaxBytes: 1000}, ""},
		} {
			messages, total, err := h.Store.Messages(h.Context(), home, p.page)
			h.must(err)
			got := ""
			for _, m := range messages {
				got += m.ID
			}
			if got != p.want || total != 10 {
				h.Errorf("%+v: got %q of %d, want %q of 10", p.page, got, total, p.want)
			}
		}
	}},
	{"a claim carries the end of a long conversation", func(h *harness) {
		c := h.startOf(home)
		c.Messages = nil
		for i := range 10 {
			c.Messages = append(c.Messages, session.Message{ID: fmt.Sprint(i), Role: "user", Body: make([]byte, 100)})
		}
		h.start(c)
		for _, p := range []struct {
			tail session.Tail
			want string
		}{
			{session.Tail{MaxMessages: 3, MaxBytes: 1000}, "789"},
			{session.Tail{MaxMessages: 30, MaxBytes: 10_000}, "0123456789"},
			{session.Tail{MaxMessages: 10, MaxBytes: 250}, "89"},
			{session.Tail{MaxMessages: 10, MaxBytes: 1}, "9"},
			{session.Tail{}, ""},
		} {
			got := ""
			err := h.send(home, session.Need{Tail: p.tail}, func(v *session.View) (*session.Change, error) {
				got = ""
				for _, m := range v.Tail {
					got += m.ID
				}
				return nil, nil
			})
			if err != nil || got != p.want {
				h.Errorf("%+v: got %q, %v; want %q", p.tail, got, err, p.want)
			}
		}
	}},
	{"runs are listed newest first", func(h *harness) {
		for range 5 {
			h.start(h.startOf(home))
			ref, _ := h.claim(executor)
			h.finish(ref)
		}
		for _, p := range []struct {
			before int32
			limit  int
			want   string
		}{{0, 2, "54"}, {4, 2, "32"}, {2, 9, "1"}, {1, 9, ""}} {
			runs, err := h.Store.Runs(h.Context(), home, p.before, p.limit)
			h.must(err)
			got := ""
			for _, r := range runs {
				got += fmt.Sprint(r.Turn)
				one, err := h.Store.Run(h.Context(), home, r.RunID)
				h.must(err)
				same(h, "output alone", one.Outcome.Output, completed.Output)
				one.Outcome.Output = ""
				same(h, "run in the list", r, *one)
			}
			if got != p.want {
				h.Errorf("before %d: got %q, want %q", p.before, got, p.want)
			}
		}
	}},
	{"agents keep their newest description", func(h *harness) {
		h.must(h.Store.Announce(h.Context(), "executor-2",
			[]session.Agent{{Type: "zeta", Description: "z"}, {Type: agent, Description: "helps more"}}, h.now))
		h.now += 5000
		h.requeueSilent()
		agents, err := h.Store.Agents(h.Context())
		h.must(err)
		same(h, "agents", agents, []session.Agent{{Type: agent, Description: "helps more"}, {Type: "zeta", Description: "z"}})
	}},
	{"the problems of executors are listed as long as they are registered and have them", func(h *harness) {
		tool := session.Problem{Kind: "tool", Name: "s/odd", Agent: "clerk", Text: "there is no type \"int\"\u0000"}
		server := session.Problem{Kind: "mcpServer", Name: "s", Text: "connection refused"}
		expect := func(want map[string][]session.Problem) {
			h.Helper()
			got, err := h.Store.Problems(h.Context())
			h.must(err)
			same(h, "problems", got, want)
		}
		expect(map[string][]session.Problem{})
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent}}, h.now, tool, server))
		h.must(h.Store.Announce(h.Context(), "executor-2", nil, h.now, server))
		expect(map[string][]session.Problem{executor: {tool, server}, "executor-2": {server}})
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent}}, h.now))
		expect(map[string][]session.Problem{"executor-2": {server}})
		h.now += 5000
		h.requeueSilent()
		expect(map[string][]session.Problem{})
	}},
	{"a command sees what executors announce of the agents", func(h *harness) {
		own := session.Agent{Type: agent, OnBusy: session.BusyEnqueue, StateSchema: `{"type":"object"}`,
			Rules: &session.AgentRules{CallerTools: &session.CallerTools{Allow: []string{"page_*"}, Max: 3, Taken: []string{"own"}}}}
		named := session.Agent{Type: "zeta", Description: "z", Remote: true}
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{own, named}, h.now))
		h.start(h.startOf(home))
		for name, c := range map[string]struct {
			need            session.Need
			wantOwn, wantIs *session.Agent
		}{
			"none":    {session.Need{}, nil, nil},
			"own":     {session.Need{OwnAgent: true}, &own, nil},
			"named":   {session.Need{AgentType: "zeta"}, nil, &named},
			"unknown": {session.Need{AgentType: "nobody", OwnAgent: true}, &own, nil},
		} {
			seen := h.readView(home, c.need)
			same(h, name+": the session's agent", seen.OwnAgent, c.wantOwn)
			same(h, name+": the named agent", seen.Agent, c.wantIs)
		}
		agents, err := h.Store.Agents(h.Context())
		h.must(err)
		same(h, "agents", agents, []session.Agent{own, named})
	}},
	{"bodies and texts keep every byte", func(h *harness) {
		body := make([]byte, 256<<10)
		for i := range body {
			body[i] = byte(i * 7)
		}
		c := h.startOf(home)
		c.Messages[0].Body = body
		c.NewSession.State = `{"text":"\u0000 <b>&amp;</b> \ud83e\udea2 🪢 \\","big":` + `"` + strings.Repeat("é", 100_000) + `"}`
		h.start(c)
		s, _ := h.session(home)
		same(h, "state", s.State, c.NewSession.State)
		if got := h.messages(home)[0].Body; string(got) != string(body) {
			h.Errorf("got a body of %d bytes that is not the one of %d bytes", len(got), len(body))
		}
	}},
}
