package log

import (
	"context"
	"errors"
	"sync"
)

// Spread returns the log that several are together, at least one, which know nothing of
// one another. A family is in one of them, chosen by its names; their order must not
// change while they hold live steps.
func Spread(logs []Log) Log {
	if len(logs) == 1 {
		return logs[0]
	}
	return spread(logs)
}

type spread []Log

func (l spread) of(s Stream) Log {
	return l[stir(hash(s))>>32%uint64(len(l))]
}

// stir makes each bit of a hash depend on all of its bits, so that the choice says
// nothing of the partition that Partition names. It is the last step of MurmurHash3
// (Appleby, 2011).
func stir(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (l spread) Last(ctx context.Context, s Stream) (*Message, error) { return l.of(s).Last(ctx, s) }

func (l spread) Append(ctx context.Context, s Stream, expected uint64, m *Message) (uint64, error) {
	return l.of(s).Append(ctx, s, expected, m)
}

func (l spread) Page(ctx context.Context, s Scope, after uint64, limit int) (Page, error) {
	return l.of(s.Stream).Page(ctx, s, after, limit)
}

func (l spread) Follow(s Scope) *Follower { return l.of(s.Stream).Follow(s) }

func (l spread) Generation(s Stream) uint64 { return l.of(s).Generation(s) }

func (l spread) Run(ctx context.Context) error {
	errs := make([]error, len(l))
	var group sync.WaitGroup
	for i, log := range l {
		group.Go(func() { errs[i] = log.Run(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (l spread) Close() error {
	errs := make([]error, len(l))
	for i, log := range l {
		errs[i] = log.Close()
	}
	return errors.Join(errs...)
}
