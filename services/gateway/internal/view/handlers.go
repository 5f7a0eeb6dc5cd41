package view

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
)

// Handlers serves GET /snapshot and GET /history. It may be used by many goroutines.
type Handlers struct {
	Sessions *conversation.Reader
	Follower *follow.Follower
	Now      func() time.Time // never nil
	// Limit is how many snapshots may be made at once, each of which may hold tens of
	// megabytes; 0 for any number.
	Limit int

	inProgress atomic.Int64
}

// admit counts a snapshot that is made; leave must be called then. Exhausted
// (TOO_MANY_SNAPSHOTS).
func (h *Handlers) admit() (leave func(), err error) {
	leave = func() { h.inProgress.Add(-1) }
	if at := h.inProgress.Add(1); h.Limit > 0 && at > int64(h.Limit) {
		leave()
		return nil, fault.New(fault.Exhausted, "TOO_MANY_SNAPSHOTS", "%d snapshots are being made on this gateway; HOLDFAST_GATEWAY_MAX_SNAPSHOTS is the limit", h.Limit)
	}
	return leave, nil
}
