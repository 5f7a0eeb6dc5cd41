// Package sharded spreads the families of sessions over several logs, which know
// nothing of one another: N systems take N times the appends and records of one.
//
// A family is in one log, so its order, its live feed and its renewal are that
// log's. What is asked of a log that cannot be reached fails; the families of the
// others do not notice. That is so of a process that is up: to come up it needs
// all of the systems, since each log has to be opened.
package sharded

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Bus is a log that is made of others.
type Bus struct{ shards []bus.Bus }

var _ bus.Bus = (*Bus)(nil)

// New returns the log that the shards are together, at least one, in an order
// that must not change while there is data.
func New(shards []bus.Bus) *Bus { return &Bus{shards} }

// Shard returns which of count shards holds the family: a stable function of
// tenant and root, which says nothing of the partition that bus.Partition names
// and so has every shard use all of its partitions.
func Shard(s bus.Stream, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Tenant))
	_, _ = h.Write([]byte{0}) // no id has a control character, so no two pairs run together
	_, _ = h.Write([]byte(s.Root))
	return int(stir(h.Sum64()) >> 32 % uint64(count)) //nolint:gosec // count is positive, the remainder is below it
}

// stir makes each bit of a hash depend on all of its bits: those of FNV that are
// high know little of the last letters of a name, and the low ones are what
// bus.Partition goes by. It is the last step of MurmurHash3 (Appleby, 2011).
func stir(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (b *Bus) of(s bus.Stream) bus.Bus { return b.shards[Shard(s, len(b.shards))] }

// Last implements bus.Writer.
func (b *Bus) Last(ctx context.Context, s bus.Stream) (*chunklog.Record, error) {
	return b.of(s).Last(ctx, s)
}

// Append implements bus.Writer.
func (b *Bus) Append(ctx context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (uint64, error) {
	return b.of(s).Append(ctx, s, expected, r)
}

// Void implements bus.Writer.
func (b *Bus) Void(ctx context.Context, s bus.Stream, sequences []uint64) error {
	return b.of(s).Void(ctx, s, sequences)
}

// Purge implements bus.Writer.
func (b *Bus) Purge(ctx context.Context, s bus.Stream, before uint64) error {
	return b.of(s).Purge(ctx, s, before)
}

// History implements bus.Reader.
func (b *Bus) History(ctx context.Context, s bus.Scope, after uint64) (bus.Page, error) {
	return b.of(s.Stream).History(ctx, s, after)
}

// Info implements bus.Reader.
func (b *Bus) Info(ctx context.Context, s bus.Stream) (bus.Info, error) {
	return b.of(s).Info(ctx, s)
}

// Follow implements bus.Live.
func (b *Bus) Follow(s bus.Scope, sink bus.Sink) (stop func()) {
	return b.of(s.Stream).Follow(s, sink)
}

// Renew implements bus.Renewer.
func (b *Bus) Renew(ctx context.Context, s bus.Stream, sequence uint64) (bool, error) {
	return b.of(s).Renew(ctx, s, sequence)
}

// Run implements bus.Bus. When one shard fails, the work of all ends.
func (b *Bus) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(b.shards))
	var group sync.WaitGroup
	for i, shard := range b.shards {
		group.Go(func() {
			if errs[i] = shard.Run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// Close implements bus.Bus.
func (b *Bus) Close() error {
	errs := make([]error, len(b.shards))
	for i, shard := range b.shards {
		errs[i] = shard.Close()
	}
	return errors.Join(errs...)
}
