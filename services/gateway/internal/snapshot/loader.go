package snapshot

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// How long the log may be away before a page is answered without it: a page that
// loads waits for a restart of the stream service, and not for more.
const (
	logPatience = 3 * time.Second
	logTimeout  = 5 * time.Second // for one page of the log, with all attempts
)

// Loader serves GET /snapshot and GET /history. It may be used by many goroutines.
type Loader struct {
	Sessions *conversation.Reader
	Stream   streamv1.StreamServiceClient
	Now      func() time.Time // never nil
	// Limit is how many snapshots may be made at once, each of which may hold tens of
	// megabytes; 0 for any number.
	Limit int

	making atomic.Int64
}

// enter counts a snapshot that is made; leave must be called then. Exhausted
// (TOO_MANY_SNAPSHOTS).
func (l *Loader) enter() (leave func(), err error) {
	leave = func() { l.making.Add(-1) }
	if at := l.making.Add(1); l.Limit > 0 && at > int64(l.Limit) {
		leave()
		return nil, fault.New(fault.Exhausted, "TOO_MANY_SNAPSHOTS", "%d snapshots are being made on this gateway; HOLDFAST_GATEWAY_MAX_SNAPSHOTS is the limit", l.Limit)
	}
	return leave, nil
}

// list reads one page of the log. Unavailable (LOG_TIMEOUT): it does not answer
// within logTimeout.
func (l *Loader) list(ctx context.Context, r *streamv1.ListRequest) (*streamv1.ListResponse, error) {
	asking, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	var got *streamv1.ListResponse
	err := retry.Do(retry.Stream(asking), retry.Policy{Limit: logPatience, Now: l.Now}, func() (err error) {
		got, err = l.Stream.List(asking, r)
		return err
	})
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return nil, fault.New(fault.Unavailable, "LOG_TIMEOUT", "the stream service has not answered within %v; try again", logTimeout)
	}
	return got, err
}
