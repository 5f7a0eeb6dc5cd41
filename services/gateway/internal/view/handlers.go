package view

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
)

// Handlers serves the routes. It may be used by many goroutines.
type Handlers struct {
	Sessions *conversation.Reader
	Follower *follow.Follower
	Files    *files.Files
	Now      func() time.Time // never nil
	// MaxSnapshots is the number of concurrent snapshots, each of which may hold tens of megabytes; 0 for
	// no limit.
	MaxSnapshots int

	inProgress atomic.Int64
}

// admit counts a snapshot in progress. The caller calls leave. Exhausted (TOO_MANY_SNAPSHOTS).
func (h *Handlers) admit() (leave func(), err error) {
	leave = func() { h.inProgress.Add(-1) }
	if at := h.inProgress.Add(1); h.MaxSnapshots > 0 && at > int64(h.MaxSnapshots) {
		leave()
		return nil, fault.New(fault.Exhausted, "TOO_MANY_SNAPSHOTS", "this gateway is already making %d snapshots; retry, or raise HOLDFAST_GATEWAY_MAX_SNAPSHOTS", h.MaxSnapshots)
	}
	return leave, nil
}
