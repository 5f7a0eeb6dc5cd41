package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// duplicates is JetStream's window for message ids, which records do not have:
// as short as the server allows.
const duplicates = 100 * time.Millisecond

// openLimit is how many partitions are opened at once.
const openLimit = 4

// What a stream says of itself in its metadata. Streams of a former version say
// nothing of shards: there was one.
const (
	partitionsKey = "holdfast-partitions"
	shardsKey     = "holdfast-shards"
	shardKey      = "holdfast-shard"
	beganKey      = "holdfast-began" // missing until the partition was begun anew
)

// partition is one stream and its live feed.
type partition struct {
	number  int
	tail    *tail
	doubts  chan struct{} // has room for one doubt at a time, see settle
	probe   uint64        // the last one that this process wrote; of whoever is in doubts
	probed  time.Time     // when; of whoever is in doubts
	renewed bool          // Options.Renew was obeyed
	began   atomic.Uint64 // the highest beginning that was seen
	freeing atomic.Bool   // somebody has it choose another leader, see freeInFlight
	freed   atomic.Int64  // when it was last told to, in nanoseconds since 1970
}

// rise notes that the partition was seen to begin at the sequence, and returns
// the highest that was.
func (p *partition) rise(began uint64) uint64 {
	for {
		highest := p.began.Load()
		if began <= highest {
			return highest
		}
		if p.began.CompareAndSwap(highest, began) {
			return began
		}
	}
}

func (b *Bus) openPartitions(ctx context.Context) error {
	b.partitions = make([]*partition, b.options.Partitions)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(openLimit)
	for i := range b.partitions {
		group.Go(func() error {
			p, err := b.openPartition(ctx, i)
			b.partitions[i] = p
			return err
		})
	}
	return group.Wait()
}

func (b *Bus) openPartition(ctx context.Context, number int) (*partition, error) {
	p := &partition{number: number, doubts: make(chan struct{}, 1)}
	for {
		err := b.openOnce(ctx, p)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, fault.Invalid) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, bus.Unavailable("open "+b.names.stream(number), err)
		case <-time.After(reconnectPause):
		}
	}
}

func (b *Bus) openOnce(ctx context.Context, p *partition) error {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	// What follows asks its leader once, and hears nothing where that one is dead.
	if _, err := b.look(ctx, p.number, ""); err != nil && !isCode(err, apiNoStream) {
		return err
	}
	if err := b.ensure(ctx, p); err != nil {
		return err
	}
	if p.tail == nil {
		var err error
		if p.tail, err = followPartition(b.nc, b.names.live(p.number)); err != nil {
			return err
		}
	}
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	state, err := b.lookWhole(ctx, p, "")
	if err != nil {
		return err
	}
	if b.options.Renew && !p.renewed {
		if state, err = b.beginAnew(ctx, p, max(state.Last, state.began)); err != nil {
			return err
		}
		p.renewed = true
	}
	// Whatever was stored before this answer is no news; the rest is heard.
	p.tail.begin(state.Last)
	return nil
}

// ensure makes the stream, or gives it the configuration that is wanted now.
// Of several processes that make it at once one wins, and the others find it.
func (b *Bus) ensure(ctx context.Context, p *partition) error {
	want := b.streamConfig(p.number)
	stream, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = b.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = b.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return err
	}
	have := stream.CachedInfo().Config
	if err := sameLayout(want.Name, have.Metadata, want.Metadata); err != nil {
		return err
	}
	want.FirstSeq = have.FirstSeq // set when it was made
	if began := p.rise(max(have.FirstSeq, beganOf(have.Metadata))); began > have.FirstSeq {
		want.Metadata[beganKey] = strconv.FormatUint(began, 10)
	}
	if same(have, want) {
		return nil
	}
	if _, err = b.js.UpdateStream(ctx, want); err != nil {
		return err
	}
	return b.mend(ctx, p, stream.CachedInfo().State.LastSeq)
}

// mend looks whether another process has begun the partition anew between the
// look at its configuration, when it ended with last, and the writing, which has
// then taken the note back. What shows it is a jump over the end; who began it
// notes it again as well, if it lives (lookWhole).
func (b *Bus) mend(ctx context.Context, p *partition, last uint64) error {
	s, err := b.look(ctx, p.number, "")
	if err != nil || s.First <= last+1 || s.began >= s.First {
		return err
	}
	return b.noteBegan(ctx, p, s.First)
}

// sameLayout refuses a configuration by which sessions would look for their
// records in the wrong partition: Invalid (CONFIG_INVALID).
func sameLayout(name string, have, want map[string]string) error {
	for _, c := range []struct{ key, former, what string }{
		{partitionsKey, "", "how many partitions there are"},
		{shardsKey, "1", "how many systems share the families"},
		{shardKey, "0", "which of these systems this is, counted from 0"},
	} {
		if value := cmp.Or(have[c.key], c.former); value != want[c.key] {
			return fault.New(fault.Invalid, "CONFIG_INVALID",
				"the log %s was made with another layout (%s: it says %q, the configuration %q): sessions would look for their records in the wrong place",
				name, c.what, value, want[c.key])
		}
	}
	return nil
}

func (b *Bus) streamConfig(number int) jetstream.StreamConfig {
	stored := b.names.stored(number) + ">"
	perSession := b.options.SessionRecords
	if perSession == 0 {
		perSession = -1
	}
	return jetstream.StreamConfig{
		Name:        b.names.stream(number),
		Description: "holdfast: what readers of sessions are told",
		Subjects:    []string{stored},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		MaxAge:      b.options.MaxAge,
		MaxBytes:    b.options.PartitionBytes,
		Replicas:    b.options.Replicas,
		Duplicates:  duplicates,
		AllowDirect: true,

		MaxMsgsPerSubject: perSession,
		FirstSeq:          bus.FirstSequence(b.options.Now()),
		RePublish:         &jetstream.RePublish{Source: stored, Destination: b.names.live(number) + ">"},
		Metadata: map[string]string{
			partitionsKey: strconv.Itoa(b.options.Partitions),
			shardsKey:     strconv.Itoa(b.options.Shards),
			shardKey:      strconv.Itoa(b.options.Shard),
		},
	}
}

// same reports whether have is what is wanted, in the fields that we set.
func same(have, want jetstream.StreamConfig) bool {
	return slices.Equal(have.Subjects, want.Subjects) &&
		have.Description == want.Description &&
		have.Retention == want.Retention &&
		have.Discard == want.Discard &&
		have.MaxAge == want.MaxAge &&
		have.MaxBytes == want.MaxBytes &&
		have.MaxMsgsPerSubject == want.MaxMsgsPerSubject &&
		have.Replicas == want.Replicas &&
		have.Duplicates == want.Duplicates &&
		have.AllowDirect == want.AllowDirect &&
		have.RePublish != nil && *have.RePublish == *want.RePublish &&
		contains(have.Metadata, want.Metadata)
}

// contains reports whether all pairs of want are in have; the server adds some
// of its own.
func contains(have, want map[string]string) bool {
	for key := range maps.Keys(want) {
		if have[key] != want[key] {
			return false
		}
	}
	return true
}

// Info implements bus.Reader.
func (b *Bus) Info(ctx context.Context, s bus.Stream) (bus.Info, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	p := b.partitionOf(s)
	subject := b.names.subject(p.number, s)
	state, err := b.lookWhole(ctx, p, subject)
	if err != nil {
		return bus.Info{}, err
	}
	answer := bus.Info{
		Floor: max(state.First, 1) - 1, Top: state.Last, Began: state.began, Count: state.Subjects[subject],
	}
	if answer.Count == 0 {
		return answer, nil
	}
	first, err := b.first(ctx, p, subject, state.First)
	if err != nil {
		return bus.Info{}, err
	}
	last, err := b.last(ctx, p, subject)
	if err != nil {
		return bus.Info{}, err
	}
	if first == nil || last == nil { // they have gone meanwhile
		return bus.Info{Floor: answer.Floor, Top: answer.Top, Began: answer.Began}, nil
	}
	answer.First, answer.Last = first.Sequence, last.Sequence
	return answer, nil
}

// voidLimit is how many records are removed at once. A lost step leaves tens
// of chunks, and each removal is a round trip.
const voidLimit = 8

// Void implements bus.Writer.
func (b *Bus) Void(ctx context.Context, s bus.Stream, sequences []uint64) error {
	p := b.partitionOf(s)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(voidLimit)
	for _, sequence := range sequences {
		group.Go(func() error { return b.remove(ctx, p.number, sequence) })
	}
	return group.Wait()
}
