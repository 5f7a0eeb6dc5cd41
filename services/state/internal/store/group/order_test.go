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
	in(t, standard(), &book{}, nil, func(b *bench) {
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

func TestNoGoroutineIsLeftWhenNothingIsToDo(t *testing.T) {
	t.Parallel()
	in(t, standard(), &book{}, nil, func(b *bench) {
		b.wantWritten(b.do("a"), b.do("b"), b.do("ab"))
		// The bubble ends, without Close, only when every goroutine in it has.
	})
}

func TestWhatArrivesDuringAFlightIsOneBatch(t *testing.T) {
	t.Parallel()
	in(t, oneLane(), holding(), nil, func(b *bench) {
		first := b.do("a")
		rest := []*call{b.do("b"), b.do("c"), b.do("d")}
		b.wantBatches("a")
		b.ends()
		b.wantWritten(first)
		b.wantWaiting(rest...)
		b.wantBatches("a", "b c d")
		b.ends()
		b.wantWritten(rest...)
	})
}

func TestNoMoreBatchesAreInFlightThanThereAreLanes(t *testing.T) {
	t.Parallel()
	config := standard()
	config.Lanes = 3
	in(t, config, holding(), nil, func(b *bench) {
		calls := []*call{b.do("a"), b.do("b"), b.do("c"), b.do("d"), b.do("e")}
		b.wantBatches("a", "b", "c")
		b.ends()
		b.wantBatches("a", "b", "c", "d e")
		b.drains()
		b.wantWritten(calls...)
		if b.most != 3 {
			b.Errorf("batches in flight = %d, want 3", b.most)
		}
	})
}

func TestWhatOneBatchCannotHoldGoesToAnotherLane(t *testing.T) {
	t.Parallel()
	config := standard()
	config.Batch = 2
	in(t, config, holding(), nil, func(b *bench) {
		all := b.do("abcde0")
		calls := []*call{b.do("a1"), b.do("b1"), b.do("c1"), b.do("d1"), b.do("e1")}
		b.ends()
		b.wantWritten(all)
		asked := b.batches()[1:]
		slices.Sort(asked) // two lanes begin at once
		if want := []string{"a1 b1", "c1 d1"}; !slices.Equal(asked, want) {
			b.Errorf("batches = %q, want %q", asked, want)
		}
		b.drains()
		b.wantWritten(calls...)
	})
}

func TestABatchHoldsNoMoreBytesThanItMay(t *testing.T) {
	t.Parallel()
	config := oneLane()
	config.BatchBytes = 10
	in(t, config, holding(), nil, func(b *bench) {
		calls := []*call{b.do("a"), b.weighs("b", 6), b.weighs("c", 4), b.weighs("d", 5), b.weighs("e", 6), b.weighs("f", 11), b.weighs("g", 1)}
		b.drains()
		b.wantWritten(calls...)
		// Exactly 10 fit; f is larger than any batch, and nobody overtakes it.
		b.wantBatches("a", "b c", "d", "e", "f", "g")
	})
}

func TestCommandsOfOneKeyAreWrittenInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	in(t, oneLane(), holding(), nil, func(b *bench) {
		calls := []*call{b.do("a1"), b.do("a2"), b.do("b1"), b.do("a3"), b.do("b2")}
		b.drains()
		b.wantWritten(calls...)
		b.wantBatches("a1", "b1 a2", "b2 a3") // b1 was ready before a2
	})
}

func TestACommandOfSeveralKeysWaitsForAllAndIsNotOvertaken(t *testing.T) {
	t.Parallel()
	config := standard()
	config.Lanes = 3
	in(t, config, holding(), nil, func(b *bench) {
		calls := []*call{b.do("a1"), b.do("b1"), b.do("ab2"), b.do("a3"), b.do("bc3"), b.do("c4"), b.do("d1")}
		b.wantBatches("a1", "b1", "d1") // c is free, but c4 is behind bc3
		b.ends()                        // any of the three
		b.ends()
		b.ends()
		b.wantBatches("a1", "b1", "d1", "ab2")
		b.ends()
		b.wantBatches("a1", "b1", "d1", "ab2", "a3 bc3")
		b.ends()
		b.wantBatches("a1", "b1", "d1", "ab2", "a3 bc3", "c4")
		b.ends()
		b.wantWritten(calls...)
	})
}

func TestAKeyThatIsNamedTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	in(t, oneLane(), holding(), nil, func(b *bench) {
		calls := []*call{b.do("aba1"), b.do("aa2"), b.do("bb3")}
		b.ends()
		b.wantBatches("aba1", "aa2 bb3")
		b.ends()
		b.wantWritten(calls...)
	})
}

func TestACallerThatLeavesTheQueueIsNeverWritten(t *testing.T) {
	t.Parallel()
	in(t, oneLane(), holding(), nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		first := b.do("a")
		ready, blocked := b.with(ctx, "b", 1), b.with(ctx, "ac", 1)
		last := b.do("bc")
		cancel()
		synctest.Wait()
		for _, c := range []*call{ready, blocked} {
			if !c.ended() || c.err != context.Canceled {
				b.Errorf("ended %v with %v, want context.Canceled at once", c.ended(), c.err)
			}
		}
		b.drains()
		b.wantWritten(first, last)
		b.wantBatches("a", "bc")
	})
}

func TestWhoLeavesMakesRoomForThoseBehind(t *testing.T) {
	t.Parallel()
	config := standard()
	config.Queue, config.QueueBytes = 2, 10
	in(t, config, holding(), nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		first := b.do("a")
		leaves := b.with(ctx, "ab", 9)
		behind := b.weighs("b", 1)
		cancel()
		synctest.Wait()
		b.wantBatches("a", "b") // a lane was free all the time
		<-leaves.done
		next := []*call{b.weighs("a1", 5), b.weighs("a2", 5)}
		b.wantWaiting(next...)
		b.drains()
		b.wantWritten(append(next, first, behind)...)
	})
}

func TestACommandInFlightIsWaitedFor(t *testing.T) {
	t.Parallel()
	in(t, standard(), holding(), nil, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		c := b.with(ctx, "a", 1)
		cancel()
		synctest.Wait()
		b.wantWaiting(c)
		b.ends()
		b.wantWritten(c)
	})
}

func TestACallerWhoseContextHasEndedWritesNothing(t *testing.T) {
	t.Parallel()
	in(t, standard(), &book{}, nil, func(b *bench) {
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
	in(t, standard(), holding(), nil, func(b *bench) {
		began := time.Now()
		err := b.Do(b.Context(), keysOf("a"), 1, "a")
		if took := time.Since(began); err != context.DeadlineExceeded || took != standard().Within {
			b.Errorf("Do = %v after %v, want context.DeadlineExceeded after %v", err, took, standard().Within)
		}
		b.wantBatches("a")
	})
}
