package sqlite

import (
	"context"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	auditColumns      = table.Audit.All()
	logErasureColumns = table.LogErasures.All()
)

// RecordAudit implements store.AuditLog.
func (s auditLog) RecordAudit(ctx context.Context, tenant string, events []session.AuditEvent) error {
	return s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		for i := range events {
			if _, err := c.exec(ctx, insertAudit.text, auditColumns.Values(arguments(tenant, events[i].SessionID), &events[i])...); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

// auditQuery selects the events on one side of a place in the order of time.
func auditQuery(side, order string) string {
	return `SELECT a.session_id, ` + auditColumns.Select("a") + ` FROM audit a
		WHERE a.tenant = ?1 AND (?2 = '' OR a.session_id = ?2) AND (?3 = '' OR a.actor = ?3) AND (?4 = '' OR a.action = ?4)
			AND a.recorded_at >= ?5 AND a.recorded_at < ?6 AND (a.recorded_at, a.event_id) ` + side + ` (?7, ?8)
		ORDER BY a.recorded_at ` + order + `, a.event_id ` + order + ` LIMIT 0 + ?9`
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
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, query, arguments(tenant, q.SessionID, q.Actor, q.Action, int64(q.From), int64(before), int64(place.At), place.ID,
			q.Limit),
			func(row scanner) error {
				var e session.AuditEvent
				err := row.Scan(auditColumns.Destinations([]any{&e.SessionID}, &e)...)
				page = append(page, e)
				return err
			})
	})
	return page, wrap(ctx, err, "read the audit log of tenant %q", tenant)
}

// changeRows runs statements that erase content, with the same arguments in one transaction. It returns how many rows the
// last has changed.
func (s auditLog) changeRows(ctx context.Context, args []any, statements ...string) (changed int64, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		s.erased.Store(true)
		for _, statement := range statements {
			if changed, err = c.exec(ctx, statement, args...); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return changed, err
}

// ExpireAudit implements store.AuditLog.
func (s auditLog) ExpireAudit(ctx context.Context, before session.Millis, limit int) (int64, error) {
	return s.changeRows(ctx, arguments(int64(before), limit), `DELETE FROM audit WHERE (tenant, session_id, event_id) IN
		(SELECT tenant, session_id, event_id FROM audit WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT 0 + ?2)`)
}

// ForgetMemories implements store.Erasures.
func (s auditLog) ForgetMemories(ctx context.Context, tenant, entityID string, limit int) (int64, error) {
	const some = ` WHERE tenant = ?1 AND memory_id IN (SELECT memory_id FROM memories
		WHERE tenant = ?1 AND (?2 = '' OR entity_id = ?2) ORDER BY memory_id LIMIT 0 + ?3)`
	return s.changeRows(ctx, arguments(tenant, entityID, limit), `DELETE FROM memory_words`+some, `DELETE FROM memories`+some)
}

// ExpireUploads implements store.Erasures.
func (s auditLog) ExpireUploads(ctx context.Context, tenant string) error {
	_, err := s.changeRows(ctx, arguments(tenant),
		`UPDATE file_links SET lapses_at = 1 WHERE tenant = ? AND session_id = ''`,
		`UPDATE blob_deletions SET due_at = 0 WHERE tenant = ? AND NOT started`)
	return err
}

// DueLogErasures implements store.Erasures.
func (s auditLog) DueLogErasures(ctx context.Context, tenant string, now session.Millis, limit int) (due []session.LogErasure, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT e.tenant, e.root_id, `+logErasureColumns.Select("e")+` FROM log_erasures e
			WHERE CASE WHEN ?1 = '' THEN e.due_at <= ?2 ELSE e.tenant = ?1 END ORDER BY e.due_at LIMIT 0 + ?3`,
			arguments(tenant, int64(now), limit), func(row scanner) error {
				var e session.LogErasure
				err := row.Scan(logErasureColumns.Destinations([]any{&e.Tenant, &e.RootID}, &e)...)
				due = append(due, e)
				return err
			})
	})
	return due, wrap(ctx, err, "find live logs to remove")
}

// MergeLogErasures implements store.Erasures.
func (s auditLog) MergeLogErasures(ctx context.Context, tenant string, due session.Millis) error {
	_, err := s.changeRows(ctx, arguments(tenant, int64(due)), `DELETE FROM log_erasures WHERE tenant = ?1 AND ?2 = ?2`,
		`INSERT INTO log_erasures (tenant, root_id, session_id, due_at) VALUES (?1, '', '', ?2)`)
	return err
}

// LogsErased implements store.Erasures.
func (s auditLog) LogsErased(ctx context.Context, done []session.LogErasure) error {
	return s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		for _, e := range done {
			if _, err := c.exec(ctx, `DELETE FROM log_erasures WHERE tenant = ? AND root_id = ? AND session_id = ? AND due_at = ?`,
				e.Tenant, e.RootID, e.SessionID, int64(e.DueAt)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}
