package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fanout"
)

// patience bounds every wait of a test.
const patience = time.Minute

func one(int) int { return 1 }

// next waits for one value.
func next(ctx context.Context, r *fanout.Reader[int], batch []int) (int, error) {
	for {
		n, wake, err := r.Take(batch)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func mustTake(t *testing.T, r *fanout.Reader[int], want int) {
	t.Helper()
	var batch [1]int
	n, _, err := r.Take(batch[:])
	if n != 1 || err != nil || batch[0] != want {
		t.Fatalf("got %d values, %d, %v; want %d", n, batch[0], err, want)
	}
}

func mustFail(t *testing.T, r *fanout.Reader[int], want error) {
	t.Helper()
	if n, _, err := r.Take(make([]int, 1)); n != 0 || !errors.Is(err, want) {
		t.Fatalf("got %d values, %v; want %v", n, err, want)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAReaderThatFallsBehindIsToldAndOthersAreNot(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]fanout.Limits{
		"values": {Values: 4, Bytes: 1000},
		"bytes":  {Values: 1000, Bytes: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := fanout.New(limits, one)
			slow, fast := ring.Join(), ring.Join()
			for i := range 20 {
				ring.Put(i)
				mustTake(t, fast, i)
			}
			mustFail(t, slow, fanout.ErrLagged)
			ring.Put(20)
			mustTake(t, slow, 20)
			mustTake(t, fast, 20)
		})
	}
}

func TestOneValueAlwaysFits(t *testing.T) {
	t.Parallel()
	ring := fanout.New(fanout.Limits{Values: 1, Bytes: 1}, func(v int) int { return v })
	r := ring.Join()
	ring.Put(1000)
	mustTake(t, r, 1000)
}

func TestAGapIsToldToEveryReaderOnce(t *testing.T) {
	t.Parallel()
	ring := fanout.New(fanout.Limits{Values: 8, Bytes: 8}, one)
	first, second := ring.Join(), ring.Join()
	ring.Put(1)
	mustTake(t, first, 1)
	ring.Gap()
	ring.Gap()
	late := ring.Join()
	mustFail(t, first, fanout.ErrGap)
	mustFail(t, second, fanout.ErrGap)
	ring.Put(9)
	for _, r := range []*fanout.Reader[int]{first, second, late} {
		mustTake(t, r, 9)
	}
}

func TestAWriterGoesAtThePaceOfItsOnlyReader(t *testing.T) {
	t.Parallel()
	ring := fanout.New(fanout.Limits{Values: 2, Bytes: 100}, one)
	r := ring.Join()
	for v := 1; v <= 2; v++ {
		if ring.Room(v) != nil {
			t.Fatalf("no room for value %d", v)
		}
		ring.Put(v)
	}
	wait := ring.Room(3)
	if wait == nil || closed(wait) {
		t.Fatal("there is room for a third value")
	}
	mustTake(t, r, 1)
	mustTake(t, r, 2)
	if !closed(wait) || ring.Room(3) != nil {
		t.Error("the writer is not told that there is room")
	}
	ring.Put(3)
	ring.Put(4)
	wait = ring.Room(5)
	other := ring.Join()
	if !closed(wait) || ring.Room(5) != nil {
		t.Error("the writer still waits for one of two readers")
	}
	other.Leave()
	wait = ring.Room(5)
	r.Leave()
	if !closed(wait) || ring.Room(5) != nil {
		t.Error("the writer waits for a reader that has left")
	}
}

func TestAReaderThatLeavesHoldsNothingBack(t *testing.T) {
	t.Parallel()
	ring := fanout.New(fanout.Limits{Values: 8, Bytes: 8}, one)
	stays, leaves := ring.Join(), ring.Join()
	ring.Put(1)
	mustTake(t, stays, 1)
	leaves.Leave()
	ring.Put(2)
	stays.Skip()
	if n, wake, err := stays.Take(make([]int, 1)); n != 0 || err != nil || closed(wake) {
		t.Errorf("got %d values, %v behind what was skipped", n, err)
	}
	stays.Leave()
	ring.Put(3)
	late := ring.Join()
	ring.Put(4)
	mustTake(t, late, 4)
}

func TestManyReadersTakeEveryValueInOrder(t *testing.T) {
	t.Parallel()
	const readers, values = 50, 2000
	ring := fanout.New(fanout.Limits{Values: values, Bytes: values}, one)
	var group sync.WaitGroup
	errs := make(chan error, readers)
	for range readers {
		r := ring.Join()
		group.Go(func() {
			defer r.Leave()
			errs <- takeAll(t.Context(), r, values)
		})
	}
	for i := range values {
		ring.Put(i)
	}
	group.Wait()
	for range readers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func takeAll(ctx context.Context, r *fanout.Reader[int], count int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var batch [8]int
	for want := 0; want < count; {
		n, err := next(ctx, r, batch[:])
		if err != nil {
			return err
		}
		for _, got := range batch[:n] {
			if got != want {
				return fmt.Errorf("got %d, want %d", got, want)
			}
			want++
		}
	}
	return nil
}

// Every reader takes a value before the next Put: the worst case for wake-ups.
func BenchmarkPutToManyReaders(b *testing.B) {
	for _, readers := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			ring := fanout.New(fanout.Limits{Values: 512, Bytes: 1 << 20}, one)
			var group, took sync.WaitGroup
			for range readers {
				r := ring.Join()
				group.Go(func() {
					defer r.Leave()
					var batch [16]int
					for {
						n, err := next(context.Background(), r, batch[:])
						if err != nil || batch[n-1] < 0 {
							return
						}
						for range n {
							took.Done()
						}
					}
				})
			}
			for b.Loop() {
				took.Add(readers)
				ring.Put(1)
				took.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(readers), "ns/delivery")
			ring.Put(-1)
			group.Wait()
		})
	}
}
