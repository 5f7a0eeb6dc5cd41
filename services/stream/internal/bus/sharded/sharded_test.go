package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/sharded"
)

func TestAShardIsStableAndSharedByTheFamily(t *testing.T) {
	t.Parallel()
	// Written down, because records are looked for where it says.
	for root, want := range map[string][3]int{
		"a": {1, 2, 63}, "session-1": {0, 1, 12}, "session-2": {1, 3, 23}, "日本語": {1, 3, 31}, "a.b c": {1, 4, 23},
	} {
		for _, session := range []string{root, "child"} {
			s := bus.Stream{Tenant: "acme", Root: root, Session: session}
			if got := [3]int{sharded.Shard(s, 2), sharded.Shard(s, 5), sharded.Shard(s, 64)}; got != want {
				t.Errorf("%s in %s: got shards %v of 2, 5 and 64, want %v", session, root, got, want)
			}
		}
		if got := sharded.Shard(bus.Stream{Tenant: "acme", Root: root}, 1); got != 0 {
			t.Errorf("%s: got shard %d of 1", root, got)
		}
	}
}

func TestEveryShardUsesAllOfItsPartitionsEvenly(t *testing.T) {
	t.Parallel()
	const partitions, each = 16, 300
	for _, shards := range []int{2, 3, 4, 16} {
		counts := map[[2]int]int{}
		for i := range shards * partitions * each {
			s := bus.Stream{Tenant: "acme", Root: fmt.Sprint("session-", i)}
			counts[[2]int{sharded.Shard(s, shards), bus.Partition(s, partitions)}]++
		}
		if len(counts) != shards*partitions {
			t.Errorf("%d shards: got %d partitions in use, want %d", shards, len(counts), shards*partitions)
		}
		for at, count := range counts {
			if count < each*6/10 || count > each*14/10 {
				t.Errorf("partition %d of shard %d of %d has %d sessions, want about %d", at[1], at[0], shards, count, each)
			}
		}
	}
}

// shard is a log that only runs and closes.
type shard struct {
	bus.Bus
	fails  error // nil: it runs until it is told to end
	closes error
	ended  bool
}

func (s *shard) Run(ctx context.Context) error {
	if s.fails == nil {
		<-ctx.Done()
	}
	s.ended = true
	return s.fails
}

func (s *shard) Close() error { return s.closes }

func TestRunEndsWhenItIsTold(t *testing.T) {
	t.Parallel()
	a, b := &shard{}, &shard{}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- sharded.New([]bus.Bus{a, b}).Run(ctx) }()
	cancel()
	if err := <-ran; err != nil || !a.ended || !b.ended {
		t.Errorf("got %v, and ended are %v and %v; want both and no error", err, a.ended, b.ended)
	}
}

func TestAShardThatFailsEndsTheWorkOfAll(t *testing.T) {
	t.Parallel()
	one, two := errors.New("one"), errors.New("two")
	a, b, c := &shard{fails: one}, &shard{}, &shard{fails: two}
	err := sharded.New([]bus.Bus{a, b, c}).Run(t.Context())
	if !errors.Is(err, one) || !errors.Is(err, two) || !b.ended {
		t.Errorf("got %v, and the other one ended: %v; want both errors and yes", err, b.ended)
	}
}

func TestCloseClosesAllAndTellsEveryError(t *testing.T) {
	t.Parallel()
	one, two := errors.New("one"), errors.New("two")
	err := sharded.New([]bus.Bus{&shard{closes: one}, &shard{}, &shard{closes: two}}).Close()
	if !errors.Is(err, one) || !errors.Is(err, two) {
		t.Errorf("got %v, want both errors", err)
	}
	if err := sharded.New([]bus.Bus{&shard{}, &shard{}}).Close(); err != nil {
		t.Errorf("got %v, want nothing", err)
	}
}
