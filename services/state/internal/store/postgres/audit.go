package postgres

import (
	"context"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// RecordAudit implements store.AuditLog.
func (s auditLog) RecordAudit(ctx context.Context, tenant string, events []session.AuditEvent) error {
	if len(events) == 0 {
		return nil
	}
	err := s.execute(ctx, func(p *pipeline) {
		var list rows
		for i := range events {
			addRow(&list, &session.Key{Tenant: tenant, SessionID: events[i].SessionID}, auditColumns, &events[i])
		}
		p.each(writes[auditInsert], &list, nil)
	})
	return wrap(ctx, err, "record %d audit events", len(events))
}

// auditQuery selects the events on one side of a place in the order of time.
func auditQuery(side, order string) *statement {
	return prepared(`SELECT a.session_id, ` + auditColumns.Select("a") + ` FROM audit a
		WHERE a.tenant = $1::text AND ($2::text = '' OR a.session_id = $2) AND ($3::text = '' OR a.actor = $3)
			AND ($4::text = '' OR a.action = $4)
			AND a.recorded_at >= $5::bigint AND a.recorded_at < $6::bigint AND (a.recorded_at, a.event_id) ` + side + ` ($7::bigint, $8::text)
		ORDER BY a.recorded_at ` + order + `, a.event_id ` + order + ` LIMIT $9::bigint`)
}

var readAuditNewest, readAuditOldest = auditQuery("<", "DESC"), auditQuery(">", "ASC")

// AuditEvents implements store.AuditLog.
func (s auditLog) AuditEvents(ctx context.Context, tenant string, q store.AuditQuery) (page []session.AuditEvent, err error) {
	query, place := readAuditNewest, store.AuditPlace{At: math.MaxInt64}
	if q.OldestFirst {
		query, place = readAuditOldest, store.AuditPlace{At: math.MinInt64}
	}
	if q.After != nil {
		place = *q.After
	}
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	err = s.query(ctx, query, scanEach(func(to []any, e *session.AuditEvent) []any {
		return auditColumns.Destinations(append(to, &e.SessionID), e)
	}, func(e *session.AuditEvent) { page = append(page, *e) }),
		tenant, q.SessionID, q.Actor, q.Action, int64(q.From), int64(before), int64(place.At), place.ID, q.Limit)
	return page, wrap(ctx, err, "read the audit log of tenant %q", tenant)
}

var expireAudit = prepared(`DELETE FROM audit a USING (SELECT tenant, session_id, event_id FROM audit WHERE recorded_at < $1::bigint
		ORDER BY recorded_at LIMIT $2::bigint) old
	WHERE a.tenant = old.tenant AND a.session_id = old.session_id AND a.event_id = old.event_id`)

// ExpireAudit implements store.AuditLog.
func (s auditLog) ExpireAudit(ctx context.Context, before session.Millis, limit int) (expired int64, err error) {
	err = s.execute(ctx, func(p *pipeline) { p.count(expireAudit, &expired, int64(before), limit) })
	return expired, wrap(ctx, err, "expire audit events")
}

var (
	someMemories = `SELECT memory_id FROM memories WHERE tenant = $1::text AND ($2::text = '' OR entity_id = $2)
		ORDER BY memory_id LIMIT $3::bigint`
	// The lock keeps a concurrent write of a record from adding words.
	forgetMemories = prepared(`WITH chosen AS (` + someMemories + ` FOR UPDATE),
		words AS (DELETE FROM memory_words w USING chosen WHERE w.tenant = $1 AND w.memory_id = chosen.memory_id)
		DELETE FROM memories m USING chosen WHERE m.tenant = $1 AND m.memory_id = chosen.memory_id`)
	expireHolds    = prepared(`UPDATE file_links SET lapses_at = 1 WHERE tenant = $1::text AND session_id = ''`)
	hurryDeletions = prepared(`UPDATE blob_deletions SET due_at = 0 WHERE tenant = $1::text AND NOT started`)

	logErasureColumns = table.LogErasures.All()
	readLogErasures   = prepared(`SELECT e.tenant, e.root_id, ` + logErasureColumns.Select("e") + ` FROM log_erasures e
		WHERE CASE WHEN $1::text = '' THEN e.due_at <= $2::bigint ELSE e.tenant = $1 END ORDER BY e.due_at LIMIT $3::bigint`)
	dropTenantErasures = prepared(`DELETE FROM log_erasures WHERE tenant = $1::text`)
	addTenantErasure   = prepared(`INSERT INTO log_erasures (tenant, root_id, session_id, due_at) VALUES ($1::text, '', '', $2::bigint)
		ON CONFLICT (tenant, root_id, session_id) DO UPDATE SET due_at = excluded.due_at`)
	dropLogErasures = forRows(logErasureInput, func(v string) string {
		return `DELETE FROM log_erasures t USING ` + v + ` WHERE t.tenant = v.tenant AND t.root_id = v.root_id AND t.session_id = v.session_id
			AND t.due_at = v.due_at`
	})
)

// ForgetMemories implements store.Erasures.
func (s auditLog) ForgetMemories(ctx context.Context, tenant, entityID string, limit int) (forgotten int64, err error) {
	err = s.execute(ctx, func(p *pipeline) { p.count(forgetMemories, &forgotten, tenant, entityID, limit) })
	return forgotten, wrap(ctx, err, "forget memories of tenant %q", tenant)
}

// ExpireUploads implements store.Erasures.
func (s auditLog) ExpireUploads(ctx context.Context, tenant string) error {
	err := s.execute(ctx, func(p *pipeline) {
		p.exec(expireHolds, tenant)
		p.exec(hurryDeletions, tenant)
	})
	return wrap(ctx, err, "end the uploads of tenant %q", tenant)
}

// DueLogErasures implements store.Erasures.
func (s auditLog) DueLogErasures(ctx context.Context, tenant string, now session.Millis, limit int) (due []session.LogErasure, err error) {
	err = s.query(ctx, readLogErasures, scanEach(func(to []any, e *session.LogErasure) []any {
		return logErasureColumns.Destinations(append(to, &e.Tenant, &e.RootID), e)
	}, func(e *session.LogErasure) { due = append(due, *e) }), tenant, int64(now), limit)
	return due, wrap(ctx, err, "find live logs to remove")
}

// MergeLogErasures implements store.Erasures.
func (s auditLog) MergeLogErasures(ctx context.Context, tenant string, due session.Millis) error {
	err := s.execute(ctx, func(p *pipeline) {
		p.exec(dropTenantErasures, tenant)
		p.exec(addTenantErasure, tenant, int64(due))
	})
	return wrap(ctx, err, "merge the live logs to remove of tenant %q", tenant)
}

// LogsErased implements store.Erasures.
func (s auditLog) LogsErased(ctx context.Context, done []session.LogErasure) error {
	if len(done) == 0 {
		return nil
	}
	err := s.execute(ctx, func(p *pipeline) {
		var list rows
		for i := range done {
			list.add(&done[i].Tenant, &done[i].RootID)
			list.values = logErasureColumns.Fields(list.values, &done[i])
		}
		p.each(dropLogErasures, &list, nil)
	})
	return wrap(ctx, err, "forget %d removed live logs", len(done))
}
