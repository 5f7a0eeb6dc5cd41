package storetest

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// hostile are ids that mean something elsewhere: to SQL, to patterns, to
// paths, to a stream's subjects.
var hostile = []string{
	".", "..", "a.b.*.>", "*", " ", " leading and trailing ", `'; DROP TABLE sessions; --`, `"quoted"`, "%", "_", `\`, "a/b?c#d", "%00", "{}", "null",
	"日本語", "é", "e\u0301", "🪢", "A", "a", strings.Repeat("x", 256), strings.Repeat("é", 128),
}

var reads = []test{
	{"tenants do not see each other", func(b *bench) {
		mine, theirs := home, session.Key{Tenant: "other", SessionID: home.SessionID}
		c := b.startOf(mine)
		b.start(c)
		_, err := b.Store.Session(b.Context(), theirs)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = b.Store.Run(b.Context(), theirs, c.RunID)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = b.Store.Runs(b.Context(), theirs, 0, 10)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, _, err = b.Store.Messages(b.Context(), theirs, store.Page{Limit: 10, MaxBytes: 1})
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		ref, _ := b.claim(executor)
		ref.Key = theirs
		_, err = b.tryCommit(b.commitOf(ref, 1))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		if started := b.start(b.startOf(theirs)); !started.Created {
			b.Error("the other tenant got a session that exists")
		}
		_, err = b.Store.Run(b.Context(), theirs, c.RunID)
		b.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"any id works everywhere", func(b *bench) {
		for i, id := range hostile {
			c := b.startOf(session.Key{Tenant: id, SessionID: id})
			c.RequestKey, c.New.UserID, c.Messages[0].ID = id, id, id
			c.RunID = id
			b.start(c)
			if s, run := b.session(c.Key); s.Key != c.Key || s.UserID != id || run.RunID != id || run.RequestKey != id {
				b.Errorf("%q came back as %+v", id, s)
			}
			same(b, "message", b.messages(c.Key)[0].ID, id)
			ref, _ := b.claim(executor)
			b.must(b.tryPlan(ref, 1, "plan", id))
			_, err := b.tryResult(ref, 1, session.Result{CallID: id, Ops: []session.StateOp{{Key: id, Kind: session.Replace, Value: fmt.Sprint(i)}}})
			b.must(err)
			b.commit(b.commitOf(ref, 1))
			b.finish(ref)
			again := b.startOf(c.Key)
			again.Messages[0].ID = id
			_, err = b.try(again)
			b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		}
	}},
	{"messages are read in pages", func(b *bench) {
		c := b.startOf(home)
		c.Messages = nil
		for i := range 10 {
			c.Messages = append(c.Messages, session.Message{ID: fmt.Sprint(i), Role: "user", Body: make([]byte, 100)})
		}
		b.start(c)
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
			messages, total, err := b.Store.Messages(b.Context(), home, p.page)
			b.must(err)
			got := ""
			for _, m := range messages {
				got += m.ID
			}
			if got != p.want || total != 10 {
				b.Errorf("%+v: got %q of %d, want %q of 10", p.page, got, total, p.want)
			}
		}
	}},
	{"a claim shows the end of a long conversation", func(b *bench) {
		c := b.startOf(home)
		c.Messages = nil
		for i := range 10 {
			c.Messages = append(c.Messages, session.Message{ID: fmt.Sprint(i), Role: "user", Body: make([]byte, 100)})
		}
		b.start(c)
		for _, p := range []struct {
			tail session.Tail
			want string
		}{
			{session.Tail{Messages: 3, Bytes: 1000}, "789"},
			{session.Tail{Messages: 30, Bytes: 10_000}, "0123456789"},
			{session.Tail{Messages: 10, Bytes: 250}, "89"},
			{session.Tail{Messages: 10, Bytes: 1}, "9"},
			{session.Tail{}, ""},
		} {
			got := ""
			err := b.send(home, session.Need{Tail: p.tail}, func(v *session.View) (*session.Change, error) {
				got = ""
				for _, m := range v.Tail {
					got += m.ID
				}
				return nil, nil
			})
			if err != nil || got != p.want {
				b.Errorf("%+v: got %q, %v; want %q", p.tail, got, err, p.want)
			}
		}
	}},
	{"runs are read newest first", func(b *bench) {
		for range 5 {
			b.start(b.startOf(home))
			ref, _ := b.claim(executor)
			b.finish(ref)
		}
		for _, p := range []struct {
			before int32
			limit  int
			want   string
		}{{0, 2, "54"}, {4, 2, "32"}, {2, 9, "1"}, {1, 9, ""}} {
			runs, err := b.Store.Runs(b.Context(), home, p.before, p.limit)
			b.must(err)
			got := ""
			for _, r := range runs {
				got += fmt.Sprint(r.Turn)
				one, err := b.Store.Run(b.Context(), home, r.RunID)
				b.must(err)
				same(b, "output alone", one.Outcome.Output, completed.Output)
				one.Outcome.Output = ""
				same(b, "run in the list", r, *one)
			}
			if got != p.want {
				b.Errorf("before %d: got %q, want %q", p.before, got, p.want)
			}
		}
	}},
	{"agents are remembered with their newest description", func(b *bench) {
		b.must(b.Store.Announce(b.Context(), "executor-2", []session.Agent{{Type: "zeta", Description: "z"}, {Type: agent, Description: "helps more"}}, b.now))
		b.now += 5000
		b.silence()
		agents, err := b.Store.Agents(b.Context())
		b.must(err)
		same(b, "agents", agents, []session.Agent{{Type: agent, Description: "helps more"}, {Type: "zeta", Description: "z"}})
	}},
	{"bodies and texts keep every byte", func(b *bench) {
		body := make([]byte, 256<<10)
		for i := range body {
			body[i] = byte(i * 7)
		}
		c := b.startOf(home)
		c.Messages[0].Body = body
		c.New.State = `{"text":"\u0000 <b>&amp;</b> \ud83e\udea2 🪢 \\","big":` + `"` + strings.Repeat("é", 100_000) + `"}`
		b.start(c)
		s, _ := b.session(home)
		same(b, "state", s.State, c.New.State)
		if got := b.messages(home)[0].Body; string(got) != string(body) {
			b.Errorf("got a body of %d bytes that is not the one of %d bytes", len(got), len(body))
		}
	}},
}
