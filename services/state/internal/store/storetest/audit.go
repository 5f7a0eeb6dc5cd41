package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var audits = []suiteCase{
	{"audit events are written with their change or not at all", func(h *harness) {
		h.start(h.startOf(home))
		h.must(h.tryAudited(home, "kept", nil))
		failed := errors.New("refused")
		if err := h.tryAudited(home, "lost", failed); !errors.Is(err, failed) {
			h.Fatalf("got %v, want %v", err, failed)
		}
		h.must(h.Store.Update(h.Context(), []session.Target{{Key: home}}, weight, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{{Delete: true, Audit: []session.AuditEvent{h.auditEvent("deleted")}}}, nil
		}))
		same(h, "events", h.auditIDs(home.Tenant, store.AuditQuery{Limit: 9}), []string{"deleted", "kept"})
	}},
	{"every field of an audit event is stored", func(h *harness) {
		e := session.AuditEvent{
			ID: "e", At: h.now, SessionID: "s", Actor: "user:u", Action: "call.approved", TargetKind: "call", TargetID: "c", Outcome: "done",
			Detail: `{"a":1}`,
		}
		h.must(h.Store.RecordAudit(h.Context(), "acme", []session.AuditEvent{e}))
		got, err := h.Store.AuditEvents(h.Context(), "acme", store.AuditQuery{Limit: 2})
		h.must(err)
		same(h, "events", got, []session.AuditEvent{e})
	}},
	{"an audit event is added once for each session and tenant", func(h *harness) {
		first, second := h.auditEvent("e"), h.auditEvent("e")
		second.Actor = "user:other"
		elsewhere := second
		elsewhere.SessionID = "s9"
		h.must(h.Store.RecordAudit(h.Context(), "acme", []session.AuditEvent{first}))
		h.must(h.Store.RecordAudit(h.Context(), "acme", []session.AuditEvent{second, elsewhere}))
		h.must(h.Store.RecordAudit(h.Context(), "", []session.AuditEvent{second}))
		got, err := h.Store.AuditEvents(h.Context(), "acme", store.AuditQuery{SessionID: home.SessionID, Limit: 9})
		h.must(err)
		same(h, "events", got, []session.AuditEvent{first})
		same(h, "events of the tenant", len(h.auditIDs("acme", store.AuditQuery{Limit: 9})), 2)
		same(h, "events of no tenant", len(h.auditIDs("", store.AuditQuery{Limit: 9})), 1)
		same(h, "events of another tenant", len(h.auditIDs("other", store.AuditQuery{Limit: 9})), 0)
	}},
	{"audit events are found by any condition, in pages and both orders", func(h *harness) {
		var all []session.AuditEvent
		for i := range 60 {
			e := h.auditEvent(fmt.Sprintf("e%02d", i))
			e.At += session.Millis(i / 3) // equal times
			e.SessionID, e.Actor = fmt.Sprint("s", i%2), fmt.Sprint("user:", i%3)
			e.Action = session.AuditAction(fmt.Sprint("action.", i%5))
			all = append(all, e)
		}
		h.must(h.Store.RecordAudit(h.Context(), "acme", all))
		for _, q := range []store.AuditQuery{
			{}, {SessionID: "s1"}, {Actor: "user:2"}, {Action: "action.3"}, {From: h.now + 5, Before: h.now + 9},
			{SessionID: "s0", Actor: "user:0", Action: "action.0", From: h.now + 1},
		} {
			h.expectAudit(all, q)
			q.OldestFirst = true
			h.expectAudit(all, q)
		}
	}},
	{"old audit events are deleted in pieces, the oldest first", func(h *harness) {
		for i := range 5 {
			e := h.auditEvent(fmt.Sprint("e", i))
			e.At += session.Millis(i)
			h.must(h.Store.RecordAudit(h.Context(), []string{"acme", "other"}[i%2], []session.AuditEvent{e}))
		}
		for _, want := range []int64{2, 1, 0} {
			got, err := h.Store.ExpireAudit(h.Context(), h.now+3, 2)
			h.must(err)
			same(h, "expired", got, want)
		}
		same(h, "kept", h.auditIDs("acme", store.AuditQuery{Limit: 9}), []string{"e4"})
		same(h, "kept of the other", h.auditIDs("other", store.AuditQuery{Limit: 9}), []string{"e3"})
	}},
	{"a deletion leaves a live log to remove until it is removed after its time", func(h *harness) {
		h.deleteWithLog(home, h.now+60)
		h.deleteWithLog(session.Key{Tenant: "other", SessionID: "s2"}, h.now+50)
		first := session.LogErasure{Tenant: home.Tenant, RootID: home.SessionID, DueAt: h.now + 60}
		other := session.LogErasure{Tenant: "other", RootID: "s2", DueAt: h.now + 50}
		h.expectLogs(home.Tenant, h.now, first)
		h.expectLogs("", h.now)
		h.expectLogs("", h.now+60, other, first)
		h.deleteWithLog(home, h.now+70) // a new session with the id
		h.must(h.Store.LogsErased(h.Context(), []session.LogErasure{first, other}))
		first.DueAt = h.now + 70
		h.expectLogs("", h.now+70, first)
		h.deleteWithLog(at("s3"), h.now+70)
		h.must(h.Store.MergeLogErasures(h.Context(), home.Tenant, h.now+80))
		whole := session.LogErasure{Tenant: home.Tenant, DueAt: h.now + 80}
		h.expectLogs(home.Tenant, h.now, whole)
		h.must(h.Store.LogsErased(h.Context(), []session.LogErasure{whole}))
		h.expectLogs("", h.now+80)
	}},
	{"memories are forgotten by entity or tenant, in pieces", func(h *harness) {
		for i := range 9 {
			h.remember([]string{"acme", "acme", "other"}[i%3], session.Memory{ID: fmt.Sprint("m", i), EntityID: fmt.Sprint("u", i%2), Text: "tea"},
				true)
		}
		forget := func(entity string, limit int, want int64) {
			h.Helper()
			got, err := h.Store.ForgetMemories(h.Context(), "acme", entity, limit)
			h.must(err)
			same(h, "forgotten", got, want)
		}
		forget("u0", 2, 2)
		forget("u0", 2, 1)
		forget("u0", 2, 0)
		forget("", 9, 3)
		found, err := h.Store.Recall(h.Context(), "acme", store.MemoryQuery{Words: []string{"tea"}, Limit: 9})
		h.must(err)
		same(h, "memories left", len(found), 0)
		found, err = h.Store.Recall(h.Context(), "other", store.MemoryQuery{Words: []string{"tea"}, Limit: 9})
		h.must(err)
		same(h, "memories of the other tenant", len(found), 3)
	}},
	{"the uploads of a tenant can be ended", func(h *harness) {
		h.addFile("acme", "f1", "one")
		h.addFile("acme", "f2", "two")
		h.start(h.startWith(home, "f2"))
		h.addFile("other", "f3", "one")
		h.scheduleBlob("acme", "f4") // an upload that has not ended
		h.must(h.Store.ExpireUploads(h.Context(), "acme"))
		expired, err := h.Store.FilesWithExpiredLinks(h.Context(), "acme", h.now, 9)
		h.must(err)
		for _, key := range expired {
			_, err := h.Store.DeleteExpiredLinks(h.Context(), key, h.now)
			h.must(err)
		}
		due, err := h.Store.DueBlobDeletions(h.Context(), "acme", h.now, 9)
		h.must(err)
		slices.SortFunc(due, func(a, b session.FileKey) int { return strings.Compare(a.FileID, b.FileID) })
		same(h, "bytes to delete", due, []session.FileKey{{Tenant: "acme", FileID: "f1"}, {Tenant: "acme", FileID: "f4"}})
		expired, err = h.Store.FilesWithExpiredLinks(h.Context(), "other", h.now, 9)
		h.must(err)
		same(h, "expired files of the other tenant", len(expired), 0)
	}},
	{"a deletion sees how many rows it deletes", func(h *harness) {
		key := h.populateSession(home)
		h.populateSession(session.Key{Tenant: "other", SessionID: home.SessionID})
		rows := h.Rows(h.T, key)
		stored := h.readView(key, session.Need{Stored: true}).Stored
		for _, table := range []string{"messages", "runs", "checkpoints", "states", "calls", "usage_entries"} {
			if rows[table] == 0 || stored[table] != int64(rows[table]) {
				h.Errorf("%s: got %d rows, want %d and more than 0", table, stored[table], rows[table])
			}
		}
	}},
}

// auditEvent returns an event of home.
func (h *harness) auditEvent(id string) session.AuditEvent {
	return session.AuditEvent{ID: id, At: h.now, SessionID: home.SessionID, Actor: "user:u", Action: "call.approved", Outcome: "done"}
}

// tryAudited writes an event with a change of the session; with a failure it writes nothing.
func (h *harness) tryAudited(key session.Key, id string, failure error) error {
	return h.Store.Update(h.Context(), []session.Target{{Key: key}}, weight, func(views []*session.View) ([]*session.Change, error) {
		s := *views[0].Session
		s.Title = id
		return []*session.Change{{Session: &s, Audit: []session.AuditEvent{h.auditEvent(id)}}}, failure
	})
}

func (h *harness) auditIDs(tenant string, q store.AuditQuery) (ids []string) {
	h.Helper()
	page, err := h.Store.AuditEvents(h.Context(), tenant, q)
	h.must(err)
	for _, e := range page {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

// expectAudit compares pages of the query with the events of a reference list, which is in the order of time.
func (h *harness) expectAudit(all []session.AuditEvent, q store.AuditQuery) {
	h.Helper()
	var want, got []session.AuditEvent
	for _, e := range all {
		if (q.SessionID == "" || e.SessionID == q.SessionID) && (q.Actor == "" || e.Actor == q.Actor) &&
			(q.Action == "" || string(e.Action) == q.Action) &&
			e.At >= q.From && (q.Before == 0 || e.At < q.Before) {
			want = append(want, e)
		}
	}
	if !q.OldestFirst {
		slices.Reverse(want)
	}
	for q.Limit = 7; ; {
		page, err := h.Store.AuditEvents(h.Context(), "acme", q)
		h.must(err)
		got = append(got, page...)
		if len(page) < q.Limit {
			break
		}
		last := page[len(page)-1]
		q.After = &store.AuditPlace{At: last.At, ID: last.ID}
	}
	same(h, fmt.Sprintf("events of %+v", q), got, want)
}

// deleteWithLog creates a session and deletes it with its live log.
func (h *harness) deleteWithLog(key session.Key, due session.Millis) {
	h.Helper()
	h.start(h.startOf(key))
	h.must(h.Store.Update(h.Context(), []session.Target{{Key: key}}, weight, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{{Delete: true, LogErasure: &session.LogErasure{Tenant: key.Tenant, RootID: key.SessionID, DueAt: due}}}, nil
	}))
}

func (h *harness) expectLogs(tenant string, now session.Millis, want ...session.LogErasure) {
	h.Helper()
	got, err := h.Store.DueLogErasures(h.Context(), tenant, now, 9)
	h.must(err)
	same(h, "live logs to remove", got, want)
}
