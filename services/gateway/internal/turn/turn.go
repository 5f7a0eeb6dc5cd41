// Package turn waits for the turn of a run that waits behind the live one.
//
// Nobody tells that a run has been queued: the stream says nothing of it before its
// first chunk, and nothing ever when the run is given up. So both services are asked.
// The stream, which every reader of the session shares, says at once that the run has
// begun; the state service is asked every second, and says what became of a run of
// which nothing is heard.
package turn

import (
	"context"
	"errors"
	"sync"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// poll is how often the state service is asked.
const poll = time.Second

// Waiter waits for runs. It may be used by many goroutines.
type Waiter struct {
	Sessions *conversation.Reader
	Feed     *feed.Feed
}

// Await gives the run as it is when it waits no more: it has its turn, or was given
// up (conversation.GivenUp). A run that does not wait is given back at once. beat is
// called after each Feed.Beat, from the caller's goroutine. Await returns ctx's error,
// that of beat, and the state service's when it does not pass.
func (w *Waiter) Await(ctx context.Context, s *statev1.Session, run *statev1.Run, beat func() error) (*statev1.Run, error) {
	if !conversation.Waiting(run) {
		return run, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	begun := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		if w.listen(ctx, s, run) {
			close(begun)
		}
	})
	defer listening.Wait()
	defer cancel()
	polls, beats := time.NewTicker(poll), time.NewTicker(w.Feed.Beat)
	defer polls.Stop()
	defer beats.Stop()
	pause := patience{Policy: w.Sessions.Policy}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-beats.C:
			if err := beat(); err != nil {
				return nil, err
			}
			continue
		case <-begun:
			begun = nil
		case <-polls.C:
		}
		now, err := w.Sessions.Run(ctx, s.GetTenant(), run)
		if err := pause.after(err); err != nil {
			return nil, err
		}
		if err == nil && !conversation.Waiting(now) {
			return now, nil
		}
	}
}

// listen reports whether the run has begun; false says that nobody can tell any more.
func (w *Waiter) listen(ctx context.Context, s *statev1.Session, run *statev1.Run) bool {
	err := w.Feed.Follow(ctx, &streamv1.ReadRequest{
		Stream: conversation.Stream(s), RunId: run.GetRunId(), FromSequence: s.GetStreamSequence(), RecordedSequence: s.GetStreamSequence(),
	}, first{run.GetRunId()})
	return errors.Is(err, errBegun)
}

var errBegun = errors.New("the run has begun")

// first ends a read with the first record of the run.
type first struct{ run string }

func (f first) Frame(frame *feed.Frame) error {
	if frame.GetChunk().GetChunk().GetAgentId() == f.run || frame.GetEnd() != nil || frame.GetFail() != nil {
		return errBegun
	}
	return nil
}

func (first) Flush() error { return nil }
func (first) Beat() error  { return nil }

// patience gives up on a service that has failed for too long.
type patience struct {
	retry.Policy
	since time.Time // of the first failure in a row
}

func (p *patience) after(err error) error {
	if err == nil {
		p.since = time.Time{}
		return nil
	}
	if p.since.IsZero() {
		p.since = p.Now()
	}
	if !retry.Passing(err) || p.Now().Sub(p.since) >= p.Limit {
		return err
	}
	return nil
}
