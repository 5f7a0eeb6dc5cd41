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

// recorder is a store of names. It records each batch.
type recorder struct {
	hold   chan struct{}                                              // each write waits for a value or for its context; nil to wait for nothing
	answer func(ctx context.Context, batch []string) ([]error, error) // nil to write all

	mu       sync.Mutex
	joined   []string // the names of each batch, joined
	inFlight int
	most     int // most batches in flight at the same time
}

func (b *recorder) write(ctx context.Context, batch []string) ([]error, error) {
	b.mu.Lock()
	b.joined = append(b.joined, strings.Join(batch, " "))
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

func (b *recorder) batches() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.joined)
}

// bench is a committer on a recorder, in a synctest bubble.
type bench struct {
	*testing.T
	*recorder
	*group.Committer[string]
}

func defaultConfig() group.Config {
	return group.Config{Queue: 10_000, QueueBytes: 256 << 20, Batch: 256, BatchBytes: 16 << 20, Lanes: 2, BatchTimeout: 30 * time.Second}
}

func oneLaneConfig() group.Config {
	c := defaultConfig()
	c.Lanes = 1
	return c
}

// inBubble runs the test in a bubble, which ends only after all its goroutines.
func inBubble(t *testing.T, config group.Config, b *recorder, meter metric.Meter, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := group.New(config, b.write, meter)
		if err != nil {
			t.Fatalf("New = %v", err)
		}
		if b.hold != nil { // was made outside of the bubble
			b.hold = make(chan struct{})
		}
		test(&bench{T: t, recorder: b, Committer: c})
	})
}

// newHolding returns a recorder whose writes wait.
func newHolding() *recorder { return &recorder{hold: make(chan struct{})} }

// call is a call of Do.
type call struct {
	done chan struct{}
	err  error
}

// do starts a command, and returns when it is in the queue, in flight or done. Its keys
// are its letters: "ab1" locks a and b.
func (b *bench) do(name string) *call { return b.doBytes(name, 1) }

func (b *bench) doBytes(name string, bytes int) *call { return b.doWith(b.Context(), name, bytes) }

func (b *bench) doWith(ctx context.Context, name string, bytes int) *call {
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

// releaseOne ends one waiting write.
func (b *bench) releaseOne() {
	b.hold <- struct{}{}
	synctest.Wait()
}

// releaseAll ends all waiting writes, and later ones at once.
func (b *bench) releaseAll() {
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
