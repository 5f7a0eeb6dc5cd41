// Package erasure removes users, tenants and deleted sessions from the state service and from the live log.
//
//	Erase   state.Erase (a part) ──▶ stream.Erase (its live logs) ──▶ again, until done or out of time
//	Run     state.ListLogErasures (due) ──▶ stream.Erase ──▶ state.FinishLogErasures
//
// The state service writes which live logs have to be removed in the transaction that deletes their sessions. They
// are due a minute later, because an executor may write until it learns of the deletion. Erase removes them at
// once, and Run once more when they are due. So a crash of a gateway loses none, and several gateways may do the
// same work.
package erasure

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// pollInterval is the time between two searches for due live logs.
const pollInterval = 30 * time.Second

// fullPage is the number of live logs in an answer that may not be the last.
const fullPage = 200

// logTimeout bounds the removal of the live log of a deleted session within its request.
const logTimeout = 2 * time.Second

// Eraser erases. All fields must be set.
type Eraser struct {
	Callers statev1.ErasureServiceClient // of a connection that names callers
	State   statev1.ErasureServiceClient // of one that does not
	Stream  streamv2.StreamServiceClient
	Policy  retry.Policy
	Limit   time.Duration // of one Erase
	NewID   func() string
	Log     *slog.Logger
}

// Erase removes everything of a user, or of the whole tenant if the user is empty, until it is done or its time
// limit is reached.
func (e *Eraser) Erase(ctx context.Context, tenant, user string) (removed *eventv1.Removed, done bool, err error) {
	removed = &eventv1.Removed{}
	request := &statev1.EraseRequest{Tenant: tenant, UserId: user, ErasureId: e.NewID()}
	end := e.Policy.Now().Add(e.Limit)
	for first := true; !done && (first || e.Policy.Now().Before(end)); first = false {
		var part *statev1.EraseResponse
		if err := retry.Do(ctx, e.Policy, func() (err error) {
			part, err = e.Callers.Erase(ctx, request)
			return err
		}); err != nil {
			return nil, false, err
		}
		add(removed, part.GetRemoved())
		if err := e.remove(ctx, part.GetLogs()); err != nil { // they stay due
			e.Log.WarnContext(ctx, "live logs of erased sessions could not be removed yet", "tenant", tenant, "error", err)
			return removed, false, nil
		}
		done = part.GetDone()
	}
	return removed, done, nil
}

// add adds the counts of a part.
func add(sum, part *eventv1.Removed) {
	to, from := sum.ProtoReflect(), part.ProtoReflect()
	fields := to.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		to.Set(f, protoreflect.ValueOfInt64(to.Get(f).Int()+from.Get(f).Int()))
	}
}

// remove removes live logs.
func (e *Eraser) remove(ctx context.Context, logs []*statev1.LogErasure) error {
	if len(logs) == 0 {
		return nil
	}
	request := &streamv2.EraseRequest{}
	for _, l := range logs {
		request.Streams = append(
			request.Streams,
			&streamv2.StreamRef{Tenant: l.GetTenant(), RootSessionId: l.GetRootSessionId(), SessionId: l.GetSessionId()},
		)
	}
	_, err := e.Stream.Erase(ctx, request)
	return err
}

// SessionDeleted removes the live log of a deleted root at once. A failure is left to Run.
func (e *Eraser) SessionDeleted(ctx context.Context, tenant, sessionID string) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	if err := e.remove(ctx, []*statev1.LogErasure{{Tenant: tenant, RootSessionId: sessionID}}); err != nil {
		e.Log.WarnContext(ctx, "the live log of a deleted session could not be removed yet", "tenant", tenant, "session", sessionID, "error", err)
	}
}

// Run removes due live logs, until ctx ends.
func (e *Eraser) Run(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select { // the other services may not have started yet
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := e.RemoveDue(ctx); err != nil && ctx.Err() == nil {
			e.Log.WarnContext(ctx, "live logs of deleted sessions could not be removed yet", "error", err)
		}
	}
}

// RemoveDue removes the due live logs.
func (e *Eraser) RemoveDue(ctx context.Context) error {
	for {
		due, err := e.State.ListLogErasures(ctx, &statev1.ListLogErasuresRequest{})
		if err != nil || len(due.GetLogs()) == 0 {
			return err
		}
		if err := e.remove(ctx, due.GetLogs()); err != nil {
			return err
		}
		if _, err := e.State.FinishLogErasures(ctx, &statev1.FinishLogErasuresRequest{Logs: due.GetLogs()}); err != nil {
			return err
		}
		if len(due.GetLogs()) < fullPage {
			return nil
		}
	}
}
