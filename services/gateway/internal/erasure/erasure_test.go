package erasure_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/erasure"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// keeper deletes one session with each call of Erase, and keeps its live log until it is finished.
type keeper struct {
	statev1.ErasureServiceClient
	sessions []string
	due      []*statev1.LogErasure
}

func (k *keeper) Erase(_ context.Context, r *statev1.EraseRequest, _ ...grpc.CallOption) (*statev1.EraseResponse, error) {
	if len(k.sessions) == 0 {
		return &statev1.EraseResponse{Removed: &eventv1.Removed{}, Done: true, Logs: k.due}, nil
	}
	k.due = append(k.due, &statev1.LogErasure{Tenant: r.GetTenant(), RootSessionId: k.sessions[0]})
	k.sessions = k.sessions[1:]
	return &statev1.EraseResponse{Removed: &eventv1.Removed{Sessions: 1}, Logs: k.due}, nil
}

func (k *keeper) ListLogErasures(context.Context, *statev1.ListLogErasuresRequest, ...grpc.CallOption) (*statev1.ListLogErasuresResponse, error) {
	return &statev1.ListLogErasuresResponse{Logs: k.due}, nil
}

func (k *keeper) FinishLogErasures(_ context.Context, r *statev1.FinishLogErasuresRequest, _ ...grpc.CallOption) (*statev1.FinishLogErasuresResponse, error) {
	k.due = slices.DeleteFunc(k.due, func(d *statev1.LogErasure) bool { return slices.Contains(r.GetLogs(), d) })
	return &statev1.FinishLogErasuresResponse{}, nil
}

// liveLog holds the live logs of sessions.
type liveLog struct {
	streamv2.StreamServiceClient
	away bool
	logs map[string]bool
}

func (l *liveLog) Erase(_ context.Context, r *streamv2.EraseRequest, _ ...grpc.CallOption) (*streamv2.EraseResponse, error) {
	if l.away {
		return nil, fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "away")
	}
	for _, s := range r.GetStreams() {
		delete(l.logs, s.GetRootSessionId())
	}
	return &streamv2.EraseResponse{}, nil
}

func newEraser(k *keeper, l *liveLog) *erasure.Eraser {
	return &erasure.Eraser{
		Callers: k, State: k, Stream: l, Policy: retry.Policy{Now: time.Now}, Limit: time.Minute, NewID: func() string { return "e" }, Log: slog.New(slog.DiscardHandler),
	}
}

func TestLiveLogsAreRemovedAfterAnOutageOrACrash(t *testing.T) {
	t.Parallel()
	k, l := &keeper{sessions: []string{"a", "b"}}, &liveLog{away: true, logs: map[string]bool{"a": true, "b": true, "other": true}}
	removed, done, err := newEraser(k, l).Erase(t.Context(), "acme", "mia")
	if err != nil || done || removed.GetSessions() != 1 {
		t.Errorf("got %v, done: %t, %v; want a part while the live log is away", removed, done, err)
	}
	l.away = false
	removed, done, err = newEraser(k, l).Erase(t.Context(), "acme", "mia") // another gateway
	if err != nil || !done || removed.GetSessions() != 1 || len(l.logs) != 1 || !l.logs["other"] {
		t.Errorf("got %v, done: %t, %v; logs %v", removed, done, err, l.logs)
	}
	l.logs["a"] = true // written by an executor that had not learned of the deletion
	if err := newEraser(k, l).RemoveDue(t.Context()); err != nil || len(l.logs) != 1 || len(k.due) != 0 {
		t.Errorf("got %v, logs %v, due %v", err, l.logs, k.due)
	}
}

func TestADueLiveLogStaysDueDuringAnOutage(t *testing.T) {
	t.Parallel()
	k, l := &keeper{due: []*statev1.LogErasure{{Tenant: "acme", RootSessionId: "a"}}}, &liveLog{away: true, logs: map[string]bool{"a": true}}
	if err := newEraser(k, l).RemoveDue(t.Context()); fault.ReasonOf(err) != "LOG_UNAVAILABLE" || len(k.due) != 1 {
		t.Errorf("got %v, due %v", err, k.due)
	}
}
