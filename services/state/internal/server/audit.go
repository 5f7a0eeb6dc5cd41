package server

import (
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
	store  store.AuditLog
	runner *runner
	clock  clock
}

// newAuditID returns a unique id. It is random for all kinds of ids of the service: an event with a known id is
// skipped.
func newAuditID() string { return "aud_" + strings.ToLower(rand.Text()) }

func eventInvalid(x *reader, format string, args ...any) {
	x.refuse("AUDIT_EVENT_INVALID", format, args...)
}

// RecordEvents implements statev1.AuditServiceServer.
func (s *auditService) RecordEvents(ctx context.Context, r *statev1.RecordEventsRequest) (*statev1.RecordEventsResponse, error) {
	x := s.runner.read(r)
	if n := len(r.GetEvents()); n == 0 || n > maxAuditEvents {
		eventInvalid(x, "the request has %d events; send 1 to %d", n, maxAuditEvents)
	}
	byTenant := map[string][]session.AuditEvent{}
	for _, e := range r.GetEvents() {
		tenant := x.optionalID("tenant", e.GetTenant())
		byTenant[tenant] = append(byTenant[tenant], readAuditEvent(x, e.GetEvent()))
	}
	if x.err != nil {
		return nil, x.err
	}
	for tenant, events := range byTenant {
		if err := s.store.RecordAudit(ctx, tenant, events); err != nil {
			return nil, err
		}
	}
	return &statev1.RecordEventsResponse{}, nil
}

// readAuditEvent gives Invalid (ID_INVALID, AUDIT_EVENT_INVALID).
func readAuditEvent(x *reader, in *eventv1.AuditEvent) session.AuditEvent {
	event := session.AuditEvent{
		SessionID: x.optionalID("session_id", in.GetSessionId()), ID: x.id("id", in.GetId()),
		Action:  session.AuditAction(x.id("action", in.GetAction())),
		Outcome: x.id("outcome", in.GetOutcome()), Actor: x.actor(in.GetActor()), TargetKind: x.optionalID("target_kind", in.GetTargetKind()),
		TargetID: x.optionalID("target_id", in.GetTargetId()), Detail: in.GetDetail(), At: x.now,
	}
	if event.Actor == "" {
		eventInvalid(x, "the event has no actor")
	}
	var object map[string]any
	if n := len(event.Detail); n > maxAuditDetail || n > 0 && json.Unmarshal([]byte(event.Detail), &object) != nil {
		eventInvalid(x, "detail has %d bytes; give a JSON object of at most %d", n, maxAuditDetail)
	}
	return event
}

// ListEvents implements statev1.AuditServiceServer.
func (s *auditService) ListEvents(ctx context.Context, r *statev1.ListEventsRequest) (*statev1.ListEventsResponse, error) {
	x := s.runner.read(r)
	limit, tenant := x.pageLimit(r.GetLimit()), x.optionalID("tenant", r.GetTenant())
	q := store.AuditQuery{
		SessionID: x.optionalID("session_id", r.GetSessionId()), Actor: x.actor(r.GetActor()), Action: x.optionalID("action", r.GetAction()),
		From: session.Millis(r.GetFrom()), Before: session.Millis(r.GetBefore()), OldestFirst: r.GetOldestFirst(), Limit: limit + 1,
	}
	if settled := x.now - auditSettle; q.OldestFirst && (q.Before == 0 || q.Before > settled) {
		q.Before = settled
	}
	if r.GetCursor() != "" {
		at, id := readCursor(x, auditCursors, r.GetCursor())
		q.After = &store.AuditPlace{At: at, ID: id}
	}
	if x.err != nil {
		return nil, x.err
	}
	rows, err := s.store.AuditEvents(ctx, tenant, q)
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
