package storetest

import (
	"fmt"
	"reflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// readMethod calls a method of the store for a session of a tenant.
type readMethod struct {
	method string
	call   func(*harness, session.Key) (any, error)
	absent string // the reason for a tenant without the session; empty for an empty answer
}

// readMethods lists all reading methods with a tenant.
var readMethods = []readMethod{
	{"Session", func(h *harness, k session.Key) (any, error) { return h.Store.Session(h.Context(), k) }, "SESSION_NOT_FOUND"},
	{"Run", func(h *harness, k session.Key) (any, error) { return h.Store.Run(h.Context(), k, "run") }, "SESSION_NOT_FOUND"},
	{"Runs", func(h *harness, k session.Key) (any, error) { return h.Store.Runs(h.Context(), k, 0, 9) }, "SESSION_NOT_FOUND"},
	{"Waiting", func(h *harness, k session.Key) (any, error) { return h.Store.Waiting(h.Context(), k) }, "SESSION_NOT_FOUND"},
	{"Messages", func(h *harness, k session.Key) (any, error) {
		messages, _, err := h.Store.Messages(h.Context(), k, store.Page{Limit: 9, MaxBytes: 99})
		return messages, err
	}, "SESSION_NOT_FOUND"},
	{"StoreEntries", func(h *harness, k session.Key) (any, error) {
		page, _, err := h.Store.StoreEntries(h.Context(), k, store.StoreQuery{Limit: 9, MaxBytes: 99})
		return page, err
	}, "SESSION_NOT_FOUND"},
	{"Checkpoint", func(h *harness, k session.Key) (any, error) {
		c, _, err := h.Store.Checkpoint(h.Context(), k, "checkpoint")
		return c, err
	}, "SESSION_NOT_FOUND"},
	{"Checkpoints", func(h *harness, k session.Key) (any, error) {
		list, _, err := h.Store.Checkpoints(h.Context(), k, 0, 0, 9)
		return list, err
	}, "SESSION_NOT_FOUND"},
	{"Steps", func(h *harness, k session.Key) (any, error) {
		steps, err := h.Store.Steps(h.Context(), k, store.StepPage{Limit: 9, MaxBytes: 99})
		if err != nil {
			return nil, err
		}
		return steps.Page, nil
	}, "SESSION_NOT_FOUND"},
	{"Owners", func(h *harness, k session.Key) (any, error) { return h.Store.Owners(h.Context(), k, []string{"call"}) }, "SESSION_NOT_FOUND"},
	{"Family", func(h *harness, k session.Key) (any, error) { return h.Store.Family(h.Context(), k, 9) }, "SESSION_NOT_FOUND"},
	{"Sessions", func(h *harness, k session.Key) (any, error) {
		return h.Store.Sessions(h.Context(), k.Tenant, store.SessionQuery{All: []session.Facet{session.TagFacet("tag")}, Limit: 9})
	}, ""},
	{"CountSessions", func(h *harness, k session.Key) (any, error) {
		return h.Store.CountSessions(h.Context(), k.Tenant, store.SessionQuery{Any: []session.Facet{session.TagFacet("tag")}}, 0)
	}, ""},
	{"OpenCalls", func(h *harness, k session.Key) (any, error) {
		page, _, err := h.Store.OpenCalls(h.Context(), k.Tenant, store.CallQuery{Limit: 9, MaxBytes: 99, MaxScanned: 9})
		return page, err
	}, ""},
	{"UsageEntries", func(h *harness, k session.Key) (any, error) { return h.Store.UsageEntries(h.Context(), k, nil, 0, 9) },
		"SESSION_NOT_FOUND"},
	{"UsageSums", func(h *harness, k session.Key) (any, error) {
		return h.Store.UsageSums(h.Context(), k.Tenant, store.UsageQuery{Sessions: []string{k.SessionID}}, 9)
	}, ""},
	{"Memory", func(h *harness, k session.Key) (any, error) { return h.Store.Memory(h.Context(), k.Tenant, "memory") }, "MEMORY_NOT_FOUND"},
	{"Recall", func(h *harness, k session.Key) (any, error) {
		return h.Store.Recall(h.Context(), k.Tenant, store.MemoryQuery{Words: []string{"word"}, Limit: 9})
	}, ""},
	{"Entities", func(h *harness, k session.Key) (any, error) {
		return h.Store.Entities(h.Context(), k.Tenant, store.EntityCount{}, 9)
	}, ""},
	{"PendingRuns", func(h *harness, k session.Key) (any, error) {
		return h.Store.PendingRuns(h.Context(), k.Tenant, "", 9)
	}, ""},
	{"QueuedRuns", func(h *harness, k session.Key) (any, error) {
		return h.Store.QueuedRuns(h.Context(), k.Tenant, 9)
	}, ""},
	{"RunningRuns", func(h *harness, k session.Key) (any, error) {
		return h.Store.RunningRuns(h.Context(), k.Tenant, "")
	}, ""},
	{"StoredBytes", func(h *harness, k session.Key) (any, error) {
		return h.Store.StoredBytes(h.Context(), k.Tenant)
	}, ""},
	{"FilesByID", func(h *harness, k session.Key) (any, error) {
		return h.Store.FilesByID(h.Context(), k.Tenant, []string{"file of a", "file of b"})
	}, ""},
	{"FilesOf", func(h *harness, k session.Key) (any, error) {
		return h.Store.FilesOf(h.Context(), k, []string{"file of a", "file of b"})
	}, ""},
	{"FindFile", func(h *harness, k session.Key) (any, error) {
		f := fileOf("", "photo")
		return h.Store.FindFile(h.Context(), k.Tenant, f.Digest, f.MediaType, h.now)
	}, "FILE_NOT_FOUND"},
	{"Subscription", func(h *harness, k session.Key) (any, error) {
		return h.Store.Subscription(h.Context(), k.Tenant, "w")
	}, "SUBSCRIPTION_NOT_FOUND"},
	{"Subscriptions", func(h *harness, k session.Key) (any, error) {
		return h.Store.Subscriptions(h.Context(), k.Tenant)
	}, ""},
	{"Deliveries", func(h *harness, k session.Key) (any, error) {
		return h.Store.Deliveries(h.Context(), k.Tenant, store.DeliveryQuery{Limit: 9})
	}, ""},
	{"OutboxBacklog", func(h *harness, k session.Key) (any, error) {
		b, err := h.Store.OutboxBacklog(h.Context(), k.Tenant, 9)
		return b.Pending, err
	}, ""},
}

var tenants = []suiteCase{
	{"equal ids in two tenants stay separate", func(h *harness) {
		keys := []session.Key{{Tenant: "a", SessionID: "s"}, {Tenant: "b", SessionID: "s"}}
		for i, key := range keys {
			h.createNamesake(key, fmt.Sprint("mark ", i))
		}
		before := map[string][]any{}
		for _, r := range readMethods {
			for i, key := range keys {
				got, err := r.call(h, key)
				if err != nil {
					h.Fatalf("%s: %v", r.method, err)
				}
				before[r.method] = append(before[r.method], got)
				if v := reflect.ValueOf(got); v.Kind() == reflect.Slice && v.Len() != 1 {
					h.Errorf("%s of tenant %s: got %d, want its one: %+v", r.method, key.Tenant, v.Len(), got)
				}
				if mine, other := fmt.Sprint("mark ", i), fmt.Sprint("mark ", 1-i); r.method == "Session" &&
					(got.(*store.Snapshot).Session.UserID != mine || got.(*store.Snapshot).Calls[0].ToolName == other) {
					h.Errorf("tenant %s got %+v", key.Tenant, got)
				}
			}
		}
		h.must(h.delete(keys[0]))
		had, err := h.Store.ForgetMemory(h.Context(), "a", "memory")
		if err != nil || !had {
			h.Errorf("got %v, %v of a memory", had, err)
		}
		for _, r := range readMethods {
			got, err := r.call(h, keys[1])
			h.must(err)
			same(h, r.method+" of the other tenant", got, before[r.method][1])
		}
	}},
	{"another tenant's session does not exist for any call", func(h *harness) {
		h.createNamesake(session.Key{Tenant: "a", SessionID: "s"}, "mark")
		stranger := session.Key{Tenant: "stranger", SessionID: "s"}
		for _, r := range readMethods {
			got, err := r.call(h, stranger)
			if r.absent != "" {
				h.refuses(err, fault.NotFound, r.absent)
				continue
			}
			h.must(err)
			if v := reflect.ValueOf(got); !((v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 || v.Kind() == reflect.Int64 &&
				v.Int() == 0) {
				h.Errorf("%s: a stranger got %+v", r.method, got)
			}
		}
		v := h.readView(stranger, session.Need{RunID: "run", CallIDs: []string{"call"}, MessageIDs: []string{"message"}, Children: true,
			Calls: true})
		same(h, "view of a stranger", *v, session.View{})
		had, err := h.Store.ForgetMemory(h.Context(), "stranger", "memory")
		if err != nil || had {
			h.Errorf("got %v, %v of a stranger's memory", had, err)
		}
		h.refuses(h.delete(stranger), fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a session of another user or of none does not exist for a user's reader", func(h *harness) {
		owned, free := session.Key{Tenant: "a", SessionID: "s"}, session.Key{Tenant: "b", SessionID: "s"}
		h.createNamesake(owned, "owner")
		h.createNamesake(free, "")
		all := h.Store.Reader
		for _, r := range readMethods {
			if r.absent != "SESSION_NOT_FOUND" {
				continue // for a tenant, not a session
			}
			want, err := r.call(h, owned)
			h.must(err)
			h.Store.Reader = all.OwnedBy("stranger").OwnedBy("owner")
			got, err := r.call(h, owned)
			h.must(err)
			same(h, r.method+" of the owner", got, want)
			_, err = r.call(h, free)
			h.refuses(err, fault.NotFound, r.absent)
			h.Store.Reader = all.OwnedBy("stranger")
			_, err = r.call(h, owned)
			h.refuses(err, fault.NotFound, r.absent)
			h.Store.Reader = all
		}
	}},
	{"every method with a tenant is tested with another tenant", func(h *harness) {
		known := map[string]bool{}
		for _, r := range readMethods {
			known[r.method] = true
		}
		for _, elsewhere := range []string{
			"Update", "UpdateDue", "Overdue", "Expired", "Remember", "ForgetMemory", // called in the tests
			// see files.go: a file's id is unique
			"ScheduleBlobDeletion", "AddFile", "File", "FilesWithExpiredLinks", "DeleteExpiredLinks", "DueBlobDeletions", "StartBlobDeletion",
			"BlobDeleted",
			// see stored_agents.go
			"StoreAgent", "StoredAgent", "StoredAgentsOf", "DeleteAgent", "Definition", "EraseAgents",
			// see audit.go
			"RecordAudit", "AuditEvents", "ExpireAudit", "ForgetMemories", "ExpireUploads", "DueLogErasures", "MergeLogErasures", "LogsErased",
			// see outbox.go
			"PutSubscription", "DeleteSubscription", "AddDelivery", "ClaimDeliveries", "UpdateDeliveries", "Replay", "ExpireDeliveries", "DropOutbox",
			// without a tenant
			"OwnedBy", "Backlog", "Announce", "Problems", "Heartbeat", "Stops", "UnregisterSilent", "LastSeen", "UnregisterUnseen", "Agents",
			"Executors", "Unserved", "UpdateGovernors", "Close",
		} {
			known[elsewhere] = true
		}
		methods := reflect.TypeFor[store.Store]()
		for i := range methods.NumMethod() {
			if name := methods.Method(i).Name; !known[name] {
				h.Errorf("the method %s is in no table of this file", name)
			}
		}
	}},
}

// createNamesake writes a session, a memory and a file with the same ids for every tenant.
func (h *harness) createNamesake(key session.Key, mark string) {
	h.Helper()
	photo := h.addFile(key.Tenant, "file of "+key.Tenant, "photo")
	s := session.Session{
		Key: key, AgentType: agent, RootID: key.SessionID, Status: session.SuspendedClientTool, Version: 1, Turn: 1, StepCount: 1,
		MessageCount: 1, State: `{}`, StateVersion: 1, StateBase: 1,
		CurrentRunID: "run", CheckpointID: "checkpoint", Suspension: &session.Suspension{StepID: mark}, UserID: mark, Tags: []string{"tag"},
	}
	h.write(key, &session.Change{
		Session: &s, Created: true, NewState: true,
		NewRun: &session.Run{
			RunID: "run", AgentType: agent, Turn: 1, Status: session.RunSuspendedClientTool, Entry: session.EntryStart, RequestKey: "key",
			MessageID: mark,
		},
		Messages: []session.Message{{ID: "message", Role: "user", Body: []byte(mark), FileIDs: []string{photo.ID}}},
		Checkpoint: &session.Checkpoint{
			ID: "checkpoint", RunID: "run", Step: 1, Epoch: 1, Version: 1, MessageCount: 1, Status: session.SuspendedClientTool, StateVersion: 1,
			StateBase: 1, Warnings: []string{mark},
		},
		Usage: []session.UsageEntry{
			{RunID: "run", Step: 1, At: h.now, Usage: session.Usage{Kind: session.UsageTool, Tool: mark, Source: "tool"}},
		},
		NewCalls: []session.Call{
			{CallID: "call", SessionID: key.SessionID, RunID: "run", Step: 1, ToolName: mark, Kind: session.ClientTool, Input: "{}",
				CreatedAt: h.now},
		},
		Children: []session.Child{
			{SessionID: "child", AgentType: agent, Status: session.Active, Mode: session.Ephemeral, Name: mark, Location: session.Remote},
		},
		StorePuts: []session.StoreEntry{{Key: "key", Value: fmt.Sprintf("%q", mark)}},
	})
	s.Waiting = 1
	h.write(key, &session.Change{
		Session: &s,
		NewRun: &session.Run{
			RunID: "waits", AgentType: agent, Status: session.RunWaiting, MessageID: mark, Entry: session.EntryStart, QueuePlace: 1,
		},
		WaitingInput: &session.RunInput{Messages: []session.Message{{ID: "held", Role: "user", Body: []byte(mark)}}},
	})
	h.remember(key.Tenant, session.Memory{ID: "memory", EntityID: "e", Source: "s", Text: "word " + mark, CreatedAt: 1, UpdatedAt: 1}, true)
	h.subscribe(key.Tenant, session.Subscription{ID: "w", CreatedBy: mark})
	_, err := h.Store.AddDelivery(h.Context(), key.Tenant, "w", key.SessionID, session.Event{ID: mark, Kind: "k", At: h.now})
	h.must(err)
}
