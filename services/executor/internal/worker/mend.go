package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// mend writes the tale again whenever the writer is lossy, until ctx ends or
// nobody can write under this epoch any more.
func (r *runner) mend(ctx context.Context) {
	var wait backoff
	var mended time.Time
	for {
		away, err := r.writer.Lost(ctx)
		if err == nil && time.Since(mended) < lastWait {
			err = wait.sleep(ctx) // a log that loses what it is told at once is not told in a busy loop
		} else {
			wait = backoff{}
		}
		if err == nil {
			err = r.cease(ctx, away)
		}
		if err == nil {
			err = r.guard(ctx, r.mendOnce)
		}
		mended = time.Now()
		if err != nil && r.giveUp(ctx, err) {
			return
		}
	}
}

// cease makes the tale one that is not live. While a step is committed that
// stands, the mender waits.
func (r *runner) cease(ctx context.Context, away bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		if !r.pinned {
			if r.live {
				r.mends++
			}
			r.live, r.away = false, r.away || away
			r.announce()
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// giveUp reports whether the error ends the mender. After any other the writer is
// lossy, even if a rewind has made it whole before: the mender tries again.
func (r *runner) giveUp(ctx context.Context, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.announce()
	r.away = true
	if ctx.Err() != nil || errors.Is(err, writer.ErrFenced) || errors.Is(err, writer.ErrBroken) {
		r.given = err
		return true
	}
	r.writer.Lose()
	if !errors.Is(err, writer.ErrAway) {
		r.log.WarnContext(ctx, "the stream cannot be made whole, which is tried again", "error", err)
	}
	return false
}

// mendOnce makes the stream hold what the tale says, as far as it waits to be
// written: the writer may lose it again.
func (r *runner) mendOnce(ctx context.Context) error {
	told, err := r.regain(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.rewrite(ctx, told); err != nil {
		return err
	}
	r.live, r.away, r.reason = true, false, reasonStepRetried
	r.announce()
	return nil
}

// regain takes the stream back to the last step that stands whole in it, which is
// the safe one from then on, and gives what stands behind the base.
func (r *runner) regain(ctx context.Context) (told, error) {
	r.mu.Lock()
	step, base := r.step, r.base
	r.mu.Unlock()
	for {
		found, told, err := r.rewind(ctx, base, step, r.worker.config.StreamPatience)
		if err != nil {
			return told, err
		}
		anew, err := r.begunAnew(ctx, found, told)
		if err != nil {
			return told, err
		}
		if anew {
			if err := r.forgetSafe(ctx); err != nil {
				return told, err
			}
		}
		stands := r.trust(told)
		if stands >= step || len(found.Kept) == 0 {
			return told, nil
		}
		step = stands
	}
}

// rewind voids what stands in the stream above the step, and reads what stands
// behind the sequence.
func (r *runner) rewind(ctx context.Context, from int64, step int32, patience time.Duration) (writer.Rewound, told, error) {
	found, err := r.writer.Rewind(ctx, &streamv1.RewindRequest{
		RunId: r.started.GetRunId(), FromSequence: from, Step: step, Reason: r.reason,
	}, patience)
	if err == nil && found.At < from {
		r.anew = true // the next rewind does not show it any more
	}
	return found, read(r.started.GetRunId(), found.Kept), err
}

// begunAnew reports whether the log does not have the run's steps up to the safe
// one any more, because it was begun anew or the stream was reset: now, before this
// owner, or under a former owner, which may have told the run again from its start.
//
// What retention has taken is no such loss: readers know it, or load it.
func (r *runner) begunAnew(ctx context.Context, found writer.Rewound, t told) (bool, error) {
	r.mu.Lock()
	safe, base, first := r.safe, r.base, r.first
	r.mu.Unlock()
	switch {
	case safe <= first:
		r.anew = false // the tale begins with run_started anyway
		return false, nil
	case r.anew, t.started:
		return true, nil
	case t.commits(safe), found.At == found.Former:
		return false, nil
	}
	// Its committer was lost before it said so, retention has taken it, or the
	// stream was begun anew and a former owner was lost before it told anything.
	ctx, cancel := context.WithTimeoutCause(ctx, r.worker.config.StreamPatience, writer.ErrAway)
	defer cancel()
	return r.voided(ctx, base)
}

// voided reports whether the record of the base does not stand any more, for
// another reason than retention: it was in a log that is lost, or a former owner
// has reset the stream.
func (r *runner) voided(ctx context.Context, base int64) (bool, error) {
	info, err := call(ctx, r, func(ctx context.Context) (*streamv1.GetInfoResponse, error) {
		return r.worker.peers.Stream.GetInfo(ctx, &streamv1.GetInfoRequest{Stream: r.stream})
	})
	if err != nil {
		return false, fmt.Errorf("ask where the log was begun: %w", err)
	}
	if base < info.GetBegan() {
		return true, nil
	}
	page, err := call(ctx, r, func(ctx context.Context) (*streamv1.ListResponse, error) {
		return r.worker.peers.Stream.List(ctx, &streamv1.ListRequest{Stream: r.stream, FromSequence: base, Limit: 1})
	})
	if err != nil {
		return false, fmt.Errorf("ask what follows the safe step: %w", err)
	}
	return slices.ContainsFunc(page.GetRecords(), func(record *streamv1.Record) bool {
		return record.GetRewound() != nil && record.GetRewound().GetAt() < base
	}), nil
}

// forgetSafe makes every committed step of the run one that may have to be told,
// from the conversation.
func (r *runner) forgetSafe(ctx context.Context) error {
	r.mu.Lock()
	safe, messages := r.safe, r.messages
	r.mu.Unlock()
	lost, err := r.committed(ctx, r.first, safe, messages)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.anew = false
	r.untold = append(lost, r.untold...)
	r.safe, r.head = r.first, r.opening(r.first)
	return nil
}

// trust makes the last step of those behind the safe one that stand whole the safe
// one, and gives it. That a step was committed is told only behind all of it, so
// where that stands, so does the step. The base rises with it.
func (r *runner) trust(t told) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.untold) > 0 && t.commits(r.untold[0].step) {
		r.base = max(r.base, t.committed[r.untold[0].step])
		r.safe, r.head = r.untold[0].step, r.stamp(r.untold[0].step, stepCommitted(r.untold[0].checkpointID))
		r.untold = r.untold[1:]
	}
	return r.safe
}

// rewrite writes what of the tale does not stand. The caller holds mu, so that
// nobody tells anything meanwhile.
func (r *runner) rewrite(ctx context.Context, t told) error {
	if !t.has(r.head) {
		if err := r.writer.Write(ctx, proto.CloneOf(r.head)); err != nil {
			return err
		}
	}
	if err := r.writeUntold(ctx); err != nil {
		return err
	}
	for _, chunk := range r.current {
		if t.ended && last(chunk) {
			continue
		}
		if err := r.writer.Write(ctx, proto.CloneOf(chunk)); err != nil {
			return err
		}
	}
	return nil
}

// writeUntold writes the committed steps. Once they stand, the last of them is the
// safe one: what is lost from then on is not that much again.
func (r *runner) writeUntold(ctx context.Context) error {
	if len(r.untold) == 0 {
		return nil
	}
	var head *eventv1.Chunk
	for _, u := range r.untold {
		if head != nil {
			if err := r.writer.Write(ctx, head); err != nil {
				return err
			}
		}
		var left []loop.OpenCall
		if u.step == r.step {
			left = r.left
		}
		for _, chunk := range u.chunks(left) {
			if !beside(chunk) {
				r.stamp(u.step, chunk)
			}
			if err := r.writer.Write(ctx, chunk); err != nil {
				return err
			}
		}
		head = r.stamp(u.step, stepCommitted(u.checkpointID))
	}
	sequence, err := r.writer.Flush(ctx)
	if err != nil || r.writer.Lossy() {
		return err
	}
	r.safe, r.base, r.head, r.untold = r.step, max(r.base, sequence), head, nil
	return r.writer.Write(ctx, proto.CloneOf(head))
}

// opening is the chunk that ends the step, where nobody knows its checkpoint any
// more.
func (r *runner) opening(step int32) *eventv1.Chunk {
	if step <= r.first && r.goesOn() {
		return r.stamp(step, runResumed(r.previous, r.started.GetTurn(), r.started.GetMessageId()))
	}
	if step <= r.first {
		return r.stamp(step, runStarted(r.started.GetTurn(), r.started.GetMessageId()))
	}
	return r.stamp(step, stepCommitted(""))
}

// goesOn reports whether the run goes on where another one has stopped.
func (r *runner) goesOn() bool {
	entry := r.started.GetEntry()
	return entry == statev1.RunEntry_RUN_ENTRY_RESUME || entry == statev1.RunEntry_RUN_ENTRY_CONTINUATION
}
