package storetest

import (
	"fmt"
	"reflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// reading is a method of the interface, called for a session of a tenant.
type reading struct {
	method string
	call   func(*bench, session.Key) (any, error)
	absent string // the reason for a tenant that has nothing; empty for an empty answer
}

// readings are all methods that take a tenant and only read.
var readings = []reading{
	{"Session", func(b *bench, k session.Key) (any, error) { return b.Store.Session(b.Context(), k) }, "SESSION_NOT_FOUND"},
	{"Run", func(b *bench, k session.Key) (any, error) { return b.Store.Run(b.Context(), k, "run") }, "SESSION_NOT_FOUND"},
	{"Runs", func(b *bench, k session.Key) (any, error) { return b.Store.Runs(b.Context(), k, 0, 9) }, "SESSION_NOT_FOUND"},
	{"Waiting", func(b *bench, k session.Key) (any, error) { return b.Store.Waiting(b.Context(), k) }, "SESSION_NOT_FOUND"},
	{"Messages", func(b *bench, k session.Key) (any, error) {
		messages, _, err := b.Store.Messages(b.Context(), k, store.Page{Limit: 9, MaxBytes: 99})
		return messages, err
	}, "SESSION_NOT_FOUND"},
	{"Checkpoint", func(b *bench, k session.Key) (any, error) {
		c, _, err := b.Store.Checkpoint(b.Context(), k, "checkpoint")
		return c, err
	}, "SESSION_NOT_FOUND"},
	{"Checkpoints", func(b *bench, k session.Key) (any, error) {
		list, _, err := b.Store.Checkpoints(b.Context(), k, 0, 0, 9)
		return list, err
	}, "SESSION_NOT_FOUND"},
	{"Steps", func(b *bench, k session.Key) (any, error) {
		steps, err := b.Store.Steps(b.Context(), k, store.StepPage{Limit: 9, MaxBytes: 99})
		if err != nil {
			return nil, err
		}
		return steps.Page, nil
	}, "SESSION_NOT_FOUND"},
	{"Owners", func(b *bench, k session.Key) (any, error) { return b.Store.Owners(b.Context(), k, []string{"call"}) }, "SESSION_NOT_FOUND"},
	{"Family", func(b *bench, k session.Key) (any, error) { return b.Store.Family(b.Context(), k, 9) }, "SESSION_NOT_FOUND"},
	{"Sessions", func(b *bench, k session.Key) (any, error) {
		return b.Store.Sessions(b.Context(), k.Tenant, store.SessionQuery{All: []session.Facet{session.OfTag("tag")}, Limit: 9})
	}, ""},
	{"CountSessions", func(b *bench, k session.Key) (any, error) {
		return b.Store.CountSessions(b.Context(), k.Tenant, store.SessionQuery{Any: []session.Facet{session.OfTag("tag")}}, 0)
	}, ""},
	{"UsageEntries", func(b *bench, k session.Key) (any, error) { return b.Store.UsageEntries(b.Context(), k, nil, 0, 9) }, "SESSION_NOT_FOUND"},
	{"UsageSums", func(b *bench, k session.Key) (any, error) {
		return b.Store.UsageSums(b.Context(), k.Tenant, store.UsageQuery{Sessions: []string{k.SessionID}}, 9)
	}, ""},
	{"Memory", func(b *bench, k session.Key) (any, error) { return b.Store.Memory(b.Context(), k.Tenant, "memory") }, "MEMORY_NOT_FOUND"},
	{"Recall", func(b *bench, k session.Key) (any, error) {
		return b.Store.Recall(b.Context(), k.Tenant, store.MemoryQuery{Words: []string{"word"}, Limit: 9})
	}, ""},
	{"Entities", func(b *bench, k session.Key) (any, error) {
		return b.Store.Entities(b.Context(), k.Tenant, store.EntityCount{}, 9)
	}, ""},
}

var tenants = []test{
	{"the same ids in two tenants never meet", func(b *bench) {
		keys := []session.Key{{Tenant: "a", SessionID: "s"}, {Tenant: "b", SessionID: "s"}}
		for i, key := range keys {
			b.namesake(key, fmt.Sprint("mark ", i))
		}
		before := map[string][]any{}
		for _, r := range readings {
			for i, key := range keys {
				got, err := r.call(b, key)
				if err != nil {
					b.Fatalf("%s: %v", r.method, err)
				}
				before[r.method] = append(before[r.method], got)
				if v := reflect.ValueOf(got); v.Kind() == reflect.Slice && v.Len() != 1 {
					b.Errorf("%s of tenant %s: got %d, want its one: %+v", r.method, key.Tenant, v.Len(), got)
				}
				if mine, other := fmt.Sprint("mark ", i), fmt.Sprint("mark ", 1-i); r.method == "Session" && (got.(*store.Snapshot).Session.UserID != mine || got.(*store.Snapshot).Calls[0].ToolName == other) {
					b.Errorf("tenant %s got %+v", key.Tenant, got)
				}
			}
		}
		b.must(b.delete(keys[0]))
		had, err := b.Store.ForgetMemory(b.Context(), "a", "memory")
		if err != nil || !had {
			b.Errorf("got %v, %v of a memory", had, err)
		}
		for _, r := range readings {
			got, err := r.call(b, keys[1])
			b.must(err)
			same(b, r.method+" of the other tenant", got, before[r.method][1])
		}
	}},
	{"another tenant's session does not exist, whatever the call", func(b *bench) {
		b.namesake(session.Key{Tenant: "a", SessionID: "s"}, "mark")
		stranger := session.Key{Tenant: "stranger", SessionID: "s"}
		for _, r := range readings {
			got, err := r.call(b, stranger)
			if r.absent != "" {
				b.refuses(err, fault.NotFound, r.absent)
				continue
			}
			b.must(err)
			if v := reflect.ValueOf(got); !(v.Kind() == reflect.Slice && v.Len() == 0 || v.Kind() == reflect.Int64 && v.Int() == 0) {
				b.Errorf("%s: a stranger got %+v", r.method, got)
			}
		}
		v := b.view(stranger, session.Need{RunID: "run", CallIDs: []string{"call"}, MessageIDs: []string{"message"}, Children: true, Calls: true})
		same(b, "view of a stranger", *v, session.View{})
		had, err := b.Store.ForgetMemory(b.Context(), "stranger", "memory")
		if err != nil || had {
			b.Errorf("got %v, %v of a stranger's memory", had, err)
		}
		b.refuses(b.delete(stranger), fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"every method that takes a tenant is held against a stranger", func(b *bench) {
		known := map[string]bool{}
		for _, r := range readings {
			known[r.method] = true
		}
		for _, elsewhere := range []string{
			"Update", "UpdateDue", "Overdue", "Expired", "Remember", "ForgetMemory", // written out in the tests
			"Announce", "Beat", "Stops", "Forget", "Heard", "ForgetUnheard", "Agents", "Close", // of no tenant
		} {
			known[elsewhere] = true
		}
		methods := reflect.TypeFor[store.Store]()
		for i := range methods.NumMethod() {
			if name := methods.Method(i).Name; !known[name] {
				b.Errorf("the method %s is in no table of this file", name)
			}
		}
	}},
}

// namesake writes a session and a memory whose ids every tenant has.
func (b *bench) namesake(key session.Key, mark string) {
	b.Helper()
	s := session.Session{
		Key: key, AgentType: agent, RootID: key.SessionID, Status: session.SuspendedClientTool, Version: 1, Turn: 1, StepCount: 1, MessageCount: 1, State: `{}`, StateVersion: 1, StateBase: 1,
		CurrentRunID: "run", CheckpointID: "checkpoint", Suspension: &session.Suspension{StepID: mark}, UserID: mark, Tags: []string{"tag"},
	}
	b.write(key, &session.Change{
		Session: &s, Created: true, NewState: true,
		NewRun:     &session.Run{RunID: "run", AgentType: agent, Turn: 1, Status: session.RunSuspendedClientTool, Entry: session.EntryStart, RequestKey: "key", MessageID: mark},
		Messages:   []session.Message{{ID: "message", Role: "user", Body: []byte(mark)}},
		Checkpoint: &session.Checkpoint{ID: "checkpoint", RunID: "run", Step: 1, Epoch: 1, Version: 1, MessageCount: 1, Status: session.SuspendedClientTool, StateVersion: 1, StateBase: 1, Warnings: []string{mark}},
		Usage:      []session.UsageEntry{{RunID: "run", Step: 1, At: b.now, Usage: session.Usage{Kind: session.UsageTool, Tool: mark, Source: "tool"}}},
		NewCalls:   []session.Call{{CallID: "call", SessionID: key.SessionID, RunID: "run", Step: 1, ToolName: mark, Kind: session.ClientTool, Input: "{}", CreatedAt: b.now}},
		Children:   []session.Child{{SessionID: "child", AgentType: agent, Status: session.Active, Mode: session.Ephemeral, Name: mark, Location: session.Remote}},
	})
	s.Waiting = 1
	b.write(key, &session.Change{
		Session: &s,
		NewRun:  &session.Run{RunID: "waits", AgentType: agent, Status: session.RunWaiting, MessageID: mark, Entry: session.EntryStart, Place: 1},
		Held:    &session.Held{Messages: []session.Message{{ID: "held", Role: "user", Body: []byte(mark)}}},
	})
	b.remember(key.Tenant, session.Memory{ID: "memory", EntityID: "e", Source: "s", Text: "word " + mark, CreatedAt: 1, UpdatedAt: 1}, true)
}
