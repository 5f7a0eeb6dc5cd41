package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const (
	maxAuditEvents = 200       // of a request
	maxAuditDetail = 4 << 10   // bytes
	auditSettle    = 10 * 1000 // milliseconds; longer than a command may take from its time to its commit
	auditBatch     = 1000      // events deleted by one statement
	auditCursors   = 'a'
)

// auditService implements statev1.AuditServiceServer.
type auditService struct {
	statev1.UnimplementedAuditServiceServer
	store store.AuditLog
	clock clock
}

// newAuditID returns a unique id. It is random for all kinds of ids of the service: an event with a known id is
// skipped.
func newAuditID() string { return "aud_" + strings.ToLower(rand.Text()) }

func eventInvalid(format string, args ...any) error {
	return invalid("AUDIT_EVENT_INVALID", format, args...)
}

// RecordEvents implements statev1.AuditServiceServer.
func (s *auditService) RecordEvents(ctx context.Context, r *statev1.RecordEventsRequest) (*statev1.RecordEventsResponse, error) {
	if n := len(r.GetEvents()); n == 0 || n > maxAuditEvents {
		return nil, eventInvalid("the request has %d events; send 1 to %d", n, maxAuditEvents)
	}
	now := s.clock.millis()
	byTenant := map[string][]session.AuditEvent{}
	for _, e := range r.GetEvents() {
		event, err := auditEventIn(e)
		if err != nil {
			return nil, err
		}
		event.At = now
		byTenant[e.GetTenant()] = append(byTenant[e.GetTenant()], event)
	}
	for tenant, events := range byTenant {
		if err := s.store.RecordAudit(ctx, tenant, events); err != nil {
			return nil, err
		}
	}
	return &statev1.RecordEventsResponse{}, nil
}

// auditEventIn checks and converts an event. Invalid (ID_INVALID, AUDIT_EVENT_INVALID).
func auditEventIn(e *statev1.TenantEvent) (session.AuditEvent, error) {
	in := e.GetEvent()
	if err := cmp.Or(checkOptionalID("tenant", e.GetTenant()), checkOptionalID("session_id", in.GetSessionId()),
		checkID("id", in.GetId()), checkID("action", in.GetAction()), checkID("outcome", in.GetOutcome()),
		checkActor(in.GetActor()), checkOptionalID("target_kind", in.GetTargetKind()), checkOptionalID("target_id", in.GetTargetId())); err != nil {
		return session.AuditEvent{}, err
	}
	if in.GetActor() == "" {
		return session.AuditEvent{}, eventInvalid("the event has no actor")
	}
	var object map[string]any
	if detail := in.GetDetail(); detail != "" && (len(detail) > maxAuditDetail || json.Unmarshal([]byte(detail), &object) != nil) {
		return session.AuditEvent{}, eventInvalid("detail has %d bytes; give a JSON object of at most %d", len(detail), maxAuditDetail)
	}
	return session.AuditEvent{
		ID: in.GetId(), SessionID: in.GetSessionId(), Actor: in.GetActor(), Action: session.AuditAction(in.GetAction()),
		TargetKind: in.GetTargetKind(), TargetID: in.GetTargetId(), Outcome: in.GetOutcome(), Detail: in.GetDetail(),
	}, nil
}

// ListEvents implements statev1.AuditServiceServer.
func (s *auditService) ListEvents(ctx context.Context, r *statev1.ListEventsRequest) (*statev1.ListEventsResponse, error) {
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkOptionalID("tenant", r.GetTenant()), checkOptionalID("session_id", r.GetSessionId()),
		checkActor(r.GetActor()), checkOptionalID("action", r.GetAction())); err != nil {
		return nil, err
	}
	q := store.AuditQuery{
		SessionID: r.GetSessionId(), Actor: r.GetActor(), Action: r.GetAction(),
		From: session.Millis(r.GetFrom()), Before: session.Millis(r.GetBefore()), OldestFirst: r.GetOldestFirst(), Limit: limit + 1,
	}
	if settled := s.clock.millis() - auditSettle; q.OldestFirst && (q.Before == 0 || q.Before > settled) {
		q.Before = settled
	}
	if r.GetCursor() != "" {
		at, id, err := decodeCursor(auditCursors, r.GetCursor())
		if err != nil {
			return nil, err
		}
		q.After = &store.AuditPlace{At: at, ID: id}
	}
	rows, err := s.store.AuditEvents(ctx, r.GetTenant(), q)
	if err != nil {
		return nil, err
	}
	page, more := splitPage(rows, limit)
	answer := &statev1.ListEventsResponse{HasMore: more}
	for i := range page {
		answer.Events = append(answer.Events, auditEventOut(&page[i]))
	}
	return answer, nil
}

func auditEventOut(e *session.AuditEvent) *eventv1.AuditEvent {
	return &eventv1.AuditEvent{
		Id: e.ID, At: int64(e.At), SessionId: e.SessionID, Actor: e.Actor, Action: string(e.Action),
		TargetKind: e.TargetKind, TargetId: e.TargetID, Outcome: e.Outcome, Detail: e.Detail, Cursor: encodeCursor(auditCursors, e.At, e.ID),
	}
}

// expire deletes the events older than the retention, in pieces. 0 keeps all.
func (s *auditService) expire(ctx context.Context, retention time.Duration) error {
	if retention == 0 {
		return nil
	}
	before := s.clock.millis() - session.Millis(retention.Milliseconds())
	for {
		expired, err := s.store.ExpireAudit(ctx, before, auditBatch)
		if err != nil || expired < auditBatch {
			return err
		}
	}
}
