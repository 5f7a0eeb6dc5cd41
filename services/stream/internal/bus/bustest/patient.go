package bustest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// pause lies between two attempts.
const pause = 20 * time.Millisecond

// patient is a log whose callers do as the service does: what is unavailable is
// asked again, and what may have been stored is looked for.
type patient struct{ bus.Bus }

// again calls do until it does not answer Unavailable.
func again(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := do(ctx)
		if !errors.Is(err, fault.Unavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (p patient) Last(ctx context.Context, s bus.Stream) (last *chunklog.Record, err error) {
	err = again(ctx, func(ctx context.Context) error { last, err = p.Bus.Last(ctx, s); return err })
	return last, err
}

func (p patient) Append(ctx context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (sequence uint64, err error) {
	unknown := false
	err = again(ctx, func(ctx context.Context) error {
		sequence, err = p.Bus.Append(ctx, s, expected, r)
		unknown = unknown || errors.Is(err, bus.ErrUnknown)
		if !unknown || err == nil {
			return err
		}
		last, lookErr := p.Bus.Last(ctx, s)
		if lookErr != nil || last == nil || last.Prev != r.Prev || last.Number != r.Number || string(last.Payload) != string(r.Payload) {
			return err // it was not stored: once more
		}
		sequence = last.Sequence
		return nil
	})
	return sequence, err
}

func (p patient) Void(ctx context.Context, s bus.Stream, sequences []uint64) error {
	return again(ctx, func(ctx context.Context) error { return p.Bus.Void(ctx, s, sequences) })
}

func (p patient) Purge(ctx context.Context, s bus.Stream, before uint64) error {
	return again(ctx, func(ctx context.Context) error { return p.Bus.Purge(ctx, s, before) })
}

func (p patient) History(ctx context.Context, s bus.Scope, after uint64) (page bus.Page, err error) {
	err = again(ctx, func(ctx context.Context) error { page, err = p.Bus.History(ctx, s, after); return err })
	return page, err
}

func (p patient) Info(ctx context.Context, s bus.Stream) (info bus.Info, err error) {
	err = again(ctx, func(ctx context.Context) error { info, err = p.Bus.Info(ctx, s); return err })
	return info, err
}

// Renew answers true also when an attempt that answered Unavailable has done it.
func (p patient) Renew(ctx context.Context, s bus.Stream, known uint64) (renewed bool, err error) {
	before, err := p.Info(ctx, s)
	if err != nil {
		return false, err
	}
	attempts := 0
	err = again(ctx, func(ctx context.Context) error { attempts++; renewed, err = p.Bus.Renew(ctx, s, known); return err })
	if err != nil || renewed || attempts == 1 {
		return renewed, err
	}
	after, err := p.Info(ctx, s)
	return before.Began <= known && known < after.Began, err
}

// Follow tells a sink of this suite whom to ask after a gap.
func (p patient) Follow(s bus.Scope, to bus.Sink) (stop func()) {
	if own, ok := to.(*sink); ok {
		own.log, own.scope = p, s
	}
	return p.Bus.Follow(s, to)
}
