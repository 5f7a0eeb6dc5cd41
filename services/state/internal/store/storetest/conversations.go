package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var conversations = []test{
	{"messages are appended at any time", func(b *bench) {
		b.create(b.createOf(home))
		b.append(home, "a", "b")
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.append(home, "c")
		b.commit(b.commitOf(ref, 1))
		b.append(home, "d")
		ids := ""
		for i, m := range b.messages(home) {
			same(b, "ordinal", m.Ordinal, int64(i))
			if len(m.ID) == 1 {
				ids += m.ID
			}
		}
		s := b.snapshot(home).Session
		if ids != "abcd" || s.MessageCount != 6 || s.Version != 6 {
			b.Errorf("got %q, %d messages, version %d; want abcd, 6, 6", ids, s.MessageCount, s.Version)
		}
		_, err := b.tryAppend(home, "e", "a")
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		_, err = b.tryAppend(home, "e", "e")
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		_, err = b.tryAppend(at("nobody"), "e")
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		same(b, "session after refusals", b.snapshot(home).Session, s)
	}},
	{"messages that are appended at once are all there, each at a place of its own", func(b *bench) {
		b.create(b.createOf(home))
		counts := make([]int64, crowd)
		together(func(i int) {
			count, err := b.tryAppend(home, fmt.Sprint(i, " a"), fmt.Sprint(i, " b"))
			if err != nil {
				b.Errorf("append %d: %v", i, err)
			}
			counts[i] = count
		})
		messages := b.messages(home)
		same(b, "messages", len(messages), 2*crowd)
		for i, count := range counts {
			if count%2 != 0 || messages[count-2].ID != fmt.Sprint(i, " a") || messages[count-1].ID != fmt.Sprint(i, " b") {
				b.Errorf("append %d was told %d, where another's message is", i, count)
			}
		}
	}},
	{"the end of a conversation is taken back", func(b *bench) {
		b.steps(home, 3) // four messages and checkpoints at 2, 3, 4
		got, err := b.truncate(home, 4)
		b.must(err)
		same(b, "count when nothing goes", got, int64(4))
		before := b.snapshot(home).Session
		_, err = b.truncate(home, 5)
		b.refuses(err, fault.Invalid, "COUNT_INVALID")
		same(b, "session when nothing goes", b.snapshot(home).Session, before)
		got, err = b.truncate(home, 3)
		b.must(err)
		messages, total, err := b.Store.Messages(b.Context(), home, store.Page{Limit: 10, MaxBytes: 1000})
		b.must(err)
		s := b.snapshot(home).Session
		if got != 3 || total != 3 || len(messages) != 3 || s.MessageCount != 3 || s.Version != before.Version+1 || s.CheckpointID != b.checkpoints(home)[0].ID || s.StepCount != 3 {
			b.Errorf("got %d, %d of %d messages, %+v", got, len(messages), total, s)
		}
		list := b.checkpoints(home)
		if len(list) != 2 || list[0].MessageCount != 3 {
			b.Errorf("got checkpoints %+v, want those that count 3 and 2", list)
		}
		latest, _, err := b.Store.Checkpoint(b.Context(), home, "")
		b.must(err)
		same(b, "newest checkpoint", latest.Step, int32(2))
		b.append(home, "new") // at the place that is free
		if messages := b.messages(home); len(messages) != 4 || messages[3].ID != "new" || messages[3].Ordinal != 3 {
			b.Errorf("got %+v", messages)
		}
		got, err = b.truncate(home, 0)
		if err != nil || got != 0 || len(b.messages(home)) != 0 || len(b.checkpoints(home)) != 0 {
			b.Errorf("got %d, %v, %d messages", got, err, len(b.messages(home)))
		}
		if v := b.view(home, session.Need{CheckpointAt: 3}); v.Checkpoint != nil {
			b.Error("a checkpoint was shown that is gone")
		}
	}},
	{"an id whose message was taken back may be used again", func(b *bench) {
		b.create(b.createOf(home))
		b.append(home, "a", "b")
		_, err := b.truncate(home, 1)
		b.must(err)
		b.append(home, "b")
		_, err = b.tryAppend(home, "a", "c")
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		count, err := b.tryAppend(home, "b", "a")
		b.must(err)
		same(b, "count after a repetition", count, int64(2))
		same(b, "messages after a repetition", len(b.messages(home)), 2)
	}},
	{"nothing is taken back while a run is live", func(b *bench) {
		b.steps(home, 1)
		id := b.checkpoints(home)[0].ID
		b.start(b.startOf(home))
		for range 2 {
			_, err := b.truncate(home, 1)
			b.refuses(err, fault.Conflict, "SESSION_BUSY")
			_, err = b.rewind(home, id)
			b.refuses(err, fault.Conflict, "SESSION_BUSY")
			b.claimAll(executor, 1)
		}
	}},
	{"a session goes back to a checkpoint", func(b *bench) {
		b.steps(home, 4)
		list := b.checkpoints(home)
		target, before := list[2], b.snapshot(home).Session // of the second step
		b.now++
		rewound, err := b.rewind(home, target.ID)
		b.must(err)
		s := b.snapshot(home).Session
		same(b, "answer", rewound, s)
		if s.Status != session.Paused || s.MessageCount != 3 || s.State != `{"log":[1,2]}` || s.StepCount != 4 || s.Version != before.Version+1 ||
			s.CheckpointID != target.ID || s.Output != "" || s.Failure != nil || s.UpdatedAt != b.now {
			b.Errorf("got %+v", s)
		}
		same(b, "messages", len(b.messages(home)), 3)
		same(b, "checkpoints", b.checkpoints(home), list[2:])
		b.refused(list[0].ID)
		b.start(b.startOf(home))
		ref, d := b.claim(executor)
		same(b, "state of the next run", d.View.Session.State, `{"log":[1,2]}`)
		commit := b.commitOf(ref, 5) // steps are never numbered twice
		commit.Ops = []session.StateOp{{Key: "log", Kind: session.Append, Value: "[5]"}}
		b.commit(commit)
		same(b, "state after", b.snapshot(home).Session.State, `{"log":[1,2,5]}`)
		_, state, err := b.Store.Checkpoint(b.Context(), home, target.ID)
		b.must(err)
		same(b, "state of the checkpoint", state, `{"log":[1,2]}`)
	}},
	{"a checkpoint of another session is not found", func(b *bench) {
		b.steps(home, 1)
		other, theirs := at("s2"), session.Key{Tenant: "other", SessionID: home.SessionID}
		b.steps(other, 1)
		b.steps(theirs, 1)
		before := b.snapshot(home).Session
		for _, key := range []session.Key{other, theirs} {
			id := b.checkpoints(key)[0].ID
			b.refused(id)
			_, err := b.rewind(home, id)
			b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
			_, err = b.branch(home, id, at("new"))
			b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		}
		same(b, "session after refusals", b.snapshot(home).Session, before)
	}},
	{"a session branches off at a checkpoint", func(b *bench) {
		b.steps(home, 3)
		b.start(b.startOf(home)) // the source may be at work
		source, messages := b.snapshot(home).Session, b.messages(home)
		target := b.checkpoints(home)[1] // of the second step
		b.start(b.startOf(at("there")))
		b.now++
		made, err := b.branch(home, target.ID, at("new"))
		b.must(err)
		same(b, "source", b.snapshot(home).Session, source)
		s := b.snapshot(at("new")).Session
		same(b, "answer", made, s)
		want := session.Session{
			Key: at("new"), AgentType: agent, RootID: "new", Status: session.Paused, Version: 1, MessageCount: 3, State: `{"log":[1,2]}`, StateVersion: 1, StateBase: 1,
			UserID: source.UserID, OrganizationID: source.OrganizationID, Tags: source.Tags, Metadata: source.Metadata, CreatedAt: b.now, UpdatedAt: b.now,
		}
		same(b, "branch", s, want)
		same(b, "messages", b.messages(at("new")), messages[:3])
		_, err = b.branch(home, target.ID, at("there"))
		b.refuses(err, fault.Conflict, "SESSION_EXISTS")
		_, err = b.branch(at("nobody"), target.ID, at("newer"))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = b.tryAppend(at("new"), messages[0].ID, "no such")
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		b.append(at("new"), "its own")
		same(b, "messages of the source", b.messages(home), messages)
		b.must(b.delete(home))
		same(b, "messages without the source", len(b.messages(at("new"))), 4)
	}},
}

// refused fails the test when home has the checkpoint.
func (b *bench) refused(id string) {
	b.Helper()
	_, _, err := b.Store.Checkpoint(b.Context(), home, id)
	b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
}

// steps runs a new session that commits so many steps and has ended.
func (b *bench) steps(key session.Key, n int32) {
	b.Helper()
	c := b.startOf(key)
	c.New.UserID, c.New.OrganizationID, c.New.Tags, c.New.Metadata = "u", "org", []string{"a"}, map[string]string{"k": "v"}
	c.New.State = `{"log":[]}`
	b.start(c)
	ref, _ := b.claim(executor)
	for step := int32(1); step <= n; step++ {
		commit := b.commitOf(ref, step)
		commit.Ops = []session.StateOp{{Key: "log", Kind: session.Append, Value: fmt.Sprintf("[%d]", step)}}
		if step == n {
			commit.Outcome = &completed
		}
		b.commit(commit)
	}
}
