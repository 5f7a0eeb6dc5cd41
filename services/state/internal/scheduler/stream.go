package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Executor describes an executor when it opens a claim stream.
type Executor struct {
	ID     string
	Agents []session.Agent
	// Problems are out of service at the executor.
	Problems []session.Problem
	Held     []string // the ids of its running runs
	Credits  int      // how many claims it can take
	Spare    int      // the last credits, for tenants without a running run
}

// Stream is an open claim stream. The scheduler calls one Send method at a time.
type Stream interface {
	// Credits waits until the executor grants credits, and returns how many. The error is
	// why no more will come; io.EOF when the executor has closed its side.
	Credits() (int, error)

	// SendClaim gives *OversizedError, and sends nothing, for a claim larger than a message.
	// After any other error the stream is broken.
	SendClaim(c Claim) error

	// SendStop sends a request to stop a run.
	SendStop(runID string, stop session.Stop) error
}

// Claim is a claimed run.
type Claim struct {
	store.Decided
	Used []store.UsageSum // tokens used by earlier claims of the run; empty for a first claim
}

func (c *Claim) run() *session.Run { return &c.Change.Runs[0] }

// Ref returns the run and the epoch of the claim.
func (c *Claim) Ref() session.ClaimRef {
	return session.ClaimRef{Key: c.View.Session.Key, RunID: c.run().RunID, Epoch: c.run().Epoch}
}

// OversizedError is the error of a claim larger than a message.
type OversizedError struct{ Bytes, Limit int }

// Error implements error.
func (e *OversizedError) Error() string {
	return fmt.Sprintf("the claim of the run has %d bytes; the limit is %d: give smaller inputs and answers to calls", e.Bytes, e.Limit)
}

// Serve registers the executor, requeues its lost runs, and hands out claims and stops until
// the stream ends. It returns nil when the executor has closed its side, and Unavailable
// (STOPPING) when the scheduler stops. Credits may still be called until ctx ends.
func (s *Scheduler) Serve(ctx context.Context, e Executor, stream Stream) (err error) {
	broke := false
	s.Suspects.Join(e.ID)
	defer func() { s.Suspects.Leave(e.ID, broke) }()
	if err := s.announce(ctx, e); err != nil {
		return err
	}
	c := newClaimer(s, e, stream)
	if !s.start(func() { c.credits.fill(stream) }) {
		return errStopping()
	}
	err = c.serve(ctx)
	broke = c.broke(ctx)
	return err
}

// announce registers the executor and requeues its claims, but for the held ones.
func (s *Scheduler) announce(ctx context.Context, e Executor) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	now := s.millis()
	if err := s.Store.Announce(ctx, e.ID, e.Agents, now, e.Problems...); err != nil {
		return err
	}
	// The executor knew its held runs when it opened the stream, so no claim is too fresh.
	return s.requeueLost(ctx, e.ID, e.Held, now+1)
}

// claimer hands out work on one stream.
type claimer struct {
	*Scheduler
	stream     Stream
	executorID string
	agents     []string
	credits    *credits
	box        *stopBox
	sending    sync.Mutex // held while a message is sent
	outbox     outbox     // claims made by commands
	schedule   schedule
}

func newClaimer(s *Scheduler, e Executor, stream Stream) *claimer {
	c := &claimer{Scheduler: s, stream: stream, executorID: e.ID, credits: newCredits(e.Credits, e.Spare)}
	c.outbox.more = make(chan struct{}, 1)
	for _, a := range e.Agents {
		c.agents = append(c.agents, a.Type)
	}
	return c
}

// serve hands out claims and stops until the stream ends.
func (c *claimer) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	c.box = c.stops.join(c.executorID)
	defer c.stops.leave(c.box)
	var broken error
	var senders sync.WaitGroup
	senders.Go(func() { c.sendStops(ctx) })
	senders.Go(func() {
		if broken = c.sendOutbox(ctx); broken != nil {
			cancel()
		}
	})
	err := c.loop(ctx)
	cancel()
	senders.Wait()
	if broken != nil {
		return broken
	}
	return err
}

// broke reports whether the stream has broken: neither side has ended it.
func (c *claimer) broke(ctx context.Context) bool {
	select {
	case <-c.stopping:
		return false
	default:
	}
	_, ended := c.credits.get()
	return ctx.Err() != nil && !errors.Is(ended, io.EOF)
}
