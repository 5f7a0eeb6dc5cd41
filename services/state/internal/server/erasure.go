package server

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// The bounds of one call.
const (
	eraseSessions = 50              // sessions with all below them
	eraseMemories = 1000            // memories
	eraseTime     = 5 * time.Second // for files
	eraseLogs     = 200             // live logs in an answer
)

// erasureService implements statev1.ErasureServiceServer.
type erasureService struct {
	statev1.UnimplementedErasureServiceServer
	store  store.Store
	runner *runner
	clock  clock
}

// erasure is one call of Erase.
type erasure struct {
	*erasureService
	tenant, user, id, actor string
	removed                 session.Removed
}

// Erase implements statev1.ErasureServiceServer.
func (s *erasureService) Erase(ctx context.Context, r *statev1.EraseRequest) (*statev1.EraseResponse, error) {
	x := s.runner.read(r)
	e := &erasure{
		erasureService: s, tenant: x.id("tenant", r.GetTenant()), user: x.optionalID("user_id", r.GetUserId()),
		id:    x.id("erasure_id", r.GetErasureId()),
		actor: x.by.Actor, removed: session.Removed{},
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := e.record(ctx, e.id, nil); err != nil { // before anything is removed, once for all calls
		return nil, err
	}
	done, err := e.part(ctx)
	if len(e.removed.Detail()) > 0 || done {
		detail := e.removed.Detail()
		detail["done"] = done
		err = errors.Join(err, e.record(ctx, newAuditID(), detail))
	}
	if err != nil {
		return nil, err
	}
	logs, err := e.logs(ctx)
	if err != nil {
		return nil, err
	}
	return &statev1.EraseResponse{Removed: removedOut(e.removed), Done: done, Logs: logs}, nil
}

// record writes an entry of the audit log: a request without a detail, or a removed part.
func (e *erasure) record(ctx context.Context, id string, detail map[string]any) error {
	if e.actor == "" {
		return nil
	}
	event := session.AuditEvent{
		ID: id, At: e.clock.millis(), Actor: e.actor, Action: session.ActionTenantErased, TargetKind: "tenant", TargetID: e.tenant,
		Outcome: session.OutcomeDone,
	}
	if e.user != "" {
		event.Action, event.TargetKind, event.TargetID = session.ActionUserErased, "user", e.user
	}
	if detail == nil {
		event.Outcome = session.OutcomeRequested
	} else {
		detail = maps.Clone(detail)
		detail["erasure"] = e.id
		event.Detail = session.AuditDetail(detail)
	}
	return e.store.RecordAudit(ctx, e.tenant, []session.AuditEvent{event})
}

// part removes a part of what is left: the sessions first, then all else. Until no session is left, memories
// and files may still be written.
func (e *erasure) part(ctx context.Context) (done bool, err error) {
	none, err := e.sessions(ctx)
	if err != nil || !none {
		return false, err
	}
	if e.user == "" {
		if err := e.store.ExpireUploads(ctx, e.tenant); err != nil {
			return false, err
		}
		if err := e.store.DropOutbox(ctx, e.tenant); err != nil {
			return false, err
		}
		if err := e.eraseAgents(ctx); err != nil {
			return false, err
		}
	}
	forgotten, err := e.store.ForgetMemories(ctx, e.tenant, e.user, eraseMemories)
	e.removed["memories"] += forgotten
	if err != nil || forgotten == eraseMemories {
		return false, err
	}
	return e.files(ctx)
}

// files deletes the files of the tenant that no session has, with their bytes.
func (e *erasure) files(ctx context.Context) (done bool, err error) {
	within, cancel := context.WithTimeout(ctx, eraseTime)
	defer cancel()
	unused := sweep.Files{Store: e.store, Blobs: e.store.Blobs, Tenant: e.tenant, Now: e.clock.millis}
	deleted, err := unused.Delete(within)
	e.removed["files"] += deleted
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// sessions deletes some sessions, and reports whether there was none. Roots come first: a deleted child would
// continue its parent.
func (e *erasure) sessions(ctx context.Context) (none bool, err error) {
	of := session.AllSessions
	if e.user != "" {
		of = session.UserFacet(e.user)
	}
	for _, facets := range [][]session.Facet{{of, session.ParentFacet("")}, {of}} {
		page, err := e.store.Sessions(ctx, e.tenant, store.SessionQuery{All: facets, Limit: eraseSessions})
		if err != nil {
			return false, err
		}
		for i := range page {
			if err := e.session(ctx, page[i].Key); err != nil {
				return false, err
			}
		}
		if len(page) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// session deletes a session with all below it. Of a family that is too large for one write, it deletes the
// lowest sessions.
func (e *erasure) session(ctx context.Context, key session.Key) error {
	err := e.delete(ctx, key)
	if fault.ReasonOf(err) != "FAMILY_TOO_LARGE" {
		return err
	}
	family, err := e.store.Family(ctx, key, e.runner.limits.Family)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	case len(family) == 1: // the records of its deleted children are too many
		c := deletion(e.runner.read(nil), key)
		c.Alone = true // a child that is created at the same time is a session for the next call
		return e.count(run(ctx, e.runner, c))
	}
	for i := len(family) - 1; i > 0 && i >= len(family)-eraseSessions; i-- {
		if err := e.delete(ctx, family[i]); err != nil {
			return err
		}
	}
	return nil
}

// count adds what was removed, unless another call has.
func (e *erasure) count(removed session.Removed, err error) error {
	if fault.ReasonOf(err) == "SESSION_NOT_FOUND" {
		return nil
	}
	if err == nil {
		e.removed.Add(removed)
	}
	return err
}

// delete deletes a session with all below it.
func (e *erasure) delete(ctx context.Context, key session.Key) error {
	return e.count(run(ctx, e.runner, deletion(e.runner.read(nil), key)))
}

// logs returns the live logs to remove. Those of an erased tenant are merged to one.
func (e *erasure) logs(ctx context.Context) ([]*statev1.LogErasure, error) {
	if e.user == "" {
		if err := e.store.MergeLogErasures(ctx, e.tenant, e.clock.millis()+session.LogErasureDelay); err != nil {
			return nil, err
		}
	}
	return e.list(ctx, e.tenant)
}

func (s *erasureService) list(ctx context.Context, tenant string) (logs []*statev1.LogErasure, err error) {
	due, err := s.store.DueLogErasures(ctx, tenant, s.clock.millis(), eraseLogs)
	for _, d := range due {
		logs = append(logs, &statev1.LogErasure{Tenant: d.Tenant, RootSessionId: d.RootID, SessionId: d.SessionID, DueAt: int64(d.DueAt)})
	}
	return logs, err
}

// ListLogErasures implements statev1.ErasureServiceServer.
func (s *erasureService) ListLogErasures(ctx context.Context, r *statev1.ListLogErasuresRequest) (*statev1.ListLogErasuresResponse, error) {
	x := s.runner.read(r)
	tenant := x.optionalID("tenant", r.GetTenant())
	if x.err != nil {
		return nil, x.err
	}
	logs, err := s.list(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return &statev1.ListLogErasuresResponse{Logs: logs}, nil
}

// FinishLogErasures implements statev1.ErasureServiceServer.
func (s *erasureService) FinishLogErasures(
	ctx context.Context, r *statev1.FinishLogErasuresRequest,
) (*statev1.FinishLogErasuresResponse, error) {
	x := s.runner.read(r)
	if n := len(r.GetLogs()); n > eraseLogs {
		x.refuse("ID_INVALID", "the request has %d live logs; send at most %d", n, eraseLogs)
	}
	var done []session.LogErasure
	for _, l := range r.GetLogs() {
		log := session.LogErasure{
			Tenant: x.id("tenant", l.GetTenant()), RootID: x.optionalID("root_session_id", l.GetRootSessionId()),
			SessionID: x.optionalID("session_id", l.GetSessionId()), DueAt: session.Millis(l.GetDueAt()),
		}
		if log.DueAt <= x.now {
			done = append(done, log)
		}
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.store.LogsErased(ctx, done); err != nil {
		return nil, err
	}
	return &statev1.FinishLogErasuresResponse{}, nil
}

func removedOut(r session.Removed) *eventv1.Removed {
	return &eventv1.Removed{
		Sessions: r["sessions"], Messages: r["messages"], Runs: r["runs"], Checkpoints: r["checkpoints"], States: r["states"], Calls: r["calls"],
		UsageEntries: r["usage_entries"], FileLinks: r["file_links"], Files: r["files"], Memories: r["memories"],
		StoreEntries: r["store_entries"],
		Agents:       r["agents"],
	}
}
