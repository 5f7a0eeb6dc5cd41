package group_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnIdleServiceCommitsAtOnceAndAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, defaultConfig(), &recorder{}, nil, func(b *bench) {
		began := time.Now()
		for _, name := range []string{"a1", "a2", "b1"} {
			if err := b.Do(b.Context(), keysOf(name), 1, name); err != nil {
				b.Errorf("Do(%s) = %v", name, err)
			}
		}
		if took := time.Since(began); took != 0 {
			b.Errorf("three commands took %v, want no time", took)
		}
		b.wantBatches("a1", "a2", "b1")
	})
}

func TestNoGoroutineRunsWhenNoCommandWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, defaultConfig(), &recorder{}, nil, func(b *bench) {
		b.wantWritten(b.do("a"), b.do("b"), b.do("ab"))
		// The bubble ends only after all its goroutines, without Close.
	})
}

func TestWhatArrivesDuringAFlightIsOneBatch(t *testing.T) {
	t.Parallel()
	inBubble(t, oneLaneConfig(), newHolding(), nil, func(b *bench) {
		first := b.do("a")
		rest := []*call{b.do("b"), b.do("c"), b.do("d")}
		b.wantBatches("a")
		b.releaseOne()
		b.wantWritten(first)
		b.wantWaiting(rest...)
		b.wantBatches("a", "b c d")
		b.releaseOne()
		b.wantWritten(rest...)
	})
}

func TestNoMoreBatchesAreInFlightThanThereAreLanes(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.Lanes = 3
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("a"), b.do("b"), b.do("c"), b.do("d"), b.do("e")}
		b.wantBatches("a", "b", "c")
		b.releaseOne()
		b.wantBatches("a", "b", "c", "d e")
		b.releaseAll()
		b.wantWritten(calls...)
		if b.most != 3 {
			b.Errorf("batches in flight = %d, want 3", b.most)
		}
	})
}

func TestWhatOneBatchCannotHoldGoesToAnotherLane(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.Batch = 2
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		all := b.do("abcde0")
		calls := []*call{b.do("a1"), b.do("b1"), b.do("c1"), b.do("d1"), b.do("e1")}
		b.releaseOne()
		b.wantWritten(all)
		asked := b.batches()[1:]
		slices.Sort(asked) // two lanes start at the same time
		if want := []string{"a1 b1", "c1 d1"}; !slices.Equal(asked, want) {
			b.Errorf("batches = %q, want %q", asked, want)
		}
		b.releaseAll()
		b.wantWritten(calls...)
	})
}

func TestABatchHoldsNoMoreBytesThanItMay(t *testing.T) {
	t.Parallel()
	config := oneLaneConfig()
	config.BatchBytes = 10
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("a"), b.doBytes("b", 6), b.doBytes("c", 4), b.doBytes("d", 5), b.doBytes("e", 6), b.doBytes("f", 11), b.doBytes("g", 1)}
		b.releaseAll()
		b.wantWritten(calls...)
		// Exactly 10 bytes fit. f is larger than any batch, and no command overtakes it.
		b.wantBatches("a", "b c", "d", "e", "f", "g")
	})
}

func TestCommandsOfOneKeyAreWrittenInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	inBubble(t, oneLaneConfig(), newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("a1"), b.do("a2"), b.do("b1"), b.do("a3"), b.do("b2")}
		b.releaseAll()
		b.wantWritten(calls...)
		b.wantBatches("a1", "b1 a2", "b2 a3") // b1 was ready before a2
	})
}

func TestACommandOfSeveralKeysWaitsForAllAndIsNotOvertaken(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.Lanes = 3
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("a1"), b.do("b1"), b.do("ab2"), b.do("a3"), b.do("bc3"), b.do("c4"), b.do("d1")}
		b.wantBatches("a1", "b1", "d1") // c is free, but c4 is behind bc3
		b.releaseOne()                  // any of the three
		b.releaseOne()
		b.releaseOne()
		b.wantBatches("a1", "b1", "d1", "ab2")
		b.releaseOne()
		b.wantBatches("a1", "b1", "d1", "ab2", "a3 bc3")
		b.releaseOne()
		b.wantBatches("a1", "b1", "d1", "ab2", "a3 bc3", "c4")
		b.releaseOne()
		b.wantWritten(calls...)
	})
}

func TestAKeyThatIsNamedTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, oneLaneConfig(), newHolding(), nil, func(b *bench) {
		calls := []*call{b.do("aba1"), b.do("aa2"), b.do("bb3")}
		b.releaseOne()
		b.wantBatches("aba1", "aa2 bb3")
		b.releaseOne()
		b.wantWritten(calls...)
	})
}

func TestACallerThatLeavesTheQueueIsNeverWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, oneLaneConfig(), newHolding(), nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		first := b.do("a")
		ready, blocked := b.doWith(ctx, "b", 1), b.doWith(ctx, "ac", 1)
		last := b.do("bc")
		cancel()
		synctest.Wait()
		for _, c := range []*call{ready, blocked} {
			if !c.ended() || c.err != context.Canceled {
				b.Errorf("ended %v with %v, want context.Canceled at once", c.ended(), c.err)
			}
		}
		b.releaseAll()
		b.wantWritten(first, last)
		b.wantBatches("a", "bc")
	})
}

func TestAWithdrawnCommandMakesRoomForOthers(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.Queue, config.QueueBytes = 2, 10
	inBubble(t, config, newHolding(), nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		first := b.do("a")
		leaves := b.doWith(ctx, "ab", 9)
		behind := b.doBytes("b", 1)
		cancel()
		synctest.Wait()
		b.wantBatches("a", "b") // a lane was idle all the time
		<-leaves.done
		next := []*call{b.doBytes("a1", 5), b.doBytes("a2", 5)}
		b.wantWaiting(next...)
		b.releaseAll()
		b.wantWritten(append(next, first, behind)...)
	})
}

func TestACommandInFlightIsWaitedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, defaultConfig(), newHolding(), nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		c := b.doWith(ctx, "a", 1)
		cancel()
		synctest.Wait()
		b.wantWaiting(c)
		b.releaseOne()
		b.wantWritten(c)
	})
}

func TestACallerWhoseContextHasEndedWritesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, defaultConfig(), &recorder{}, nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := b.Do(ctx, keysOf("a"), 1, "a"); err != context.Canceled {
			b.Errorf("Do = %v, want context.Canceled", err)
		}
		b.wantBatches()
	})
}

func TestATransactionEndsWithinItsTime(t *testing.T) {
	t.Parallel()
	inBubble(t, defaultConfig(), newHolding(), nil, func(b *bench) {
		began := time.Now()
		err := b.Do(b.Context(), keysOf("a"), 1, "a")
		if took := time.Since(began); err != context.DeadlineExceeded || took != defaultConfig().BatchTimeout {
			b.Errorf("Do = %v after %v, want context.DeadlineExceeded after %v", err, took, defaultConfig().BatchTimeout)
		}
		b.wantBatches("a")
	})
}
