package group_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// book is a store of names. It notes each batch that it is asked to write.
type book struct {
	hold   chan struct{}                                              // nil, or each write waits for one of these or its context
	answer func(ctx context.Context, batch []string) ([]error, error) // nil writes all

	mu       sync.Mutex
	asked    []string // each batch, joined
	inFlight int
	most     int // in flight at once
}

func (b *book) write(ctx context.Context, batch []string) ([]error, error) {
	b.mu.Lock()
	b.asked = append(b.asked, strings.Join(batch, " "))
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inFlight--
	}()
	if b.hold != nil {
		select {
		case <-b.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if b.answer == nil {
		return nil, nil
	}
	return b.answer(ctx, batch)
}

func (b *book) batches() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

// bench is a committer on a book, inside a bubble.
type bench struct {
	*testing.T
	*book
	*group.Committer[string]
}

func standard() group.Config {
	return group.Config{Queue: 10_000, QueueBytes: 256 << 20, Batch: 256, BatchBytes: 16 << 20, Lanes: 2, Within: 30 * time.Second}
}

func oneLane() group.Config {
	c := standard()
	c.Lanes = 1
	return c
}

// in runs the test in a bubble, which ends only when no goroutine is left.
func in(t *testing.T, config group.Config, b *book, meter metric.Meter, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := group.New(config, b.write, meter)
		if err != nil {
			t.Fatalf("New = %v", err)
		}
		if b.hold != nil { // made outside of the bubble
			b.hold = make(chan struct{})
		}
		test(&bench{T: t, book: b, Committer: c})
	})
}

// holding is a book whose writes wait.
func holding() *book { return &book{hold: make(chan struct{})} }

// call is a Do that may not have ended.
type call struct {
	done chan struct{}
	err  error
}

// do begins a command, and returns when it is in the queue, in flight or done.
// Its keys are its letters: "ab1" locks a and b.
func (b *bench) do(name string) *call { return b.weighs(name, 1) }

func (b *bench) weighs(name string, bytes int) *call { return b.with(b.Context(), name, bytes) }

func (b *bench) with(ctx context.Context, name string, bytes int) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = b.Do(ctx, keysOf(name), bytes, name)
	}()
	synctest.Wait()
	return c
}

func keysOf(name string) (keys []session.Key) {
	for _, letter := range strings.TrimRight(name, "0123456789") {
		keys = append(keys, session.Key{Tenant: "t", SessionID: string(letter)})
	}
	return keys
}

// ends lets a write that is held end.
func (b *bench) ends() {
	b.hold <- struct{}{}
	synctest.Wait()
}

// drains lets all writes end, now and later.
func (b *bench) drains() {
	close(b.hold)
	synctest.Wait()
}

func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (b *bench) wantBatches(want ...string) {
	b.Helper()
	if got := b.batches(); !slices.Equal(got, want) {
		b.Errorf("batches = %q, want %q", got, want)
	}
}

func (b *bench) wantWritten(calls ...*call) {
	b.Helper()
	for i, c := range calls {
		if <-c.done; c.err != nil {
			b.Errorf("command %d = %v, want nil", i, c.err)
		}
	}
}

func (b *bench) wantWaiting(calls ...*call) {
	b.Helper()
	for i, c := range calls {
		if c.ended() {
			b.Errorf("command %d = %v, want it to wait", i, c.err)
		}
	}
}
