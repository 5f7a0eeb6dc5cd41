package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// work is a command that knows what it locks.
type work struct {
	number int
	keys   []session.Key
	leaves time.Duration // 0 is never
	poison bool
}

// guarded is a database that notices when two batches touch a session at once.
type guarded struct {
	rows map[session.Key]*sync.Mutex
	wait func() // as long as a transaction takes

	mu      sync.Mutex
	written []int
	wrong   []string
}

func newGuarded(sessions []session.Key, wait func()) *guarded {
	g := &guarded{rows: map[session.Key]*sync.Mutex{}, wait: wait}
	for _, key := range sessions {
		g.rows[key] = &sync.Mutex{}
	}
	return g
}

func (g *guarded) complain(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

func (g *guarded) write(_ context.Context, batch []work) ([]error, error) {
	for _, w := range batch {
		for _, key := range w.keys {
			if !g.rows[key].TryLock() {
				g.complain("command %d: %v is in two places at once", w.number, key)
				continue
			}
			defer g.rows[key].Unlock()
		}
	}
	g.wait()
	if slices.ContainsFunc(batch, func(w work) bool { return w.poison }) {
		return nil, errPoison
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range batch {
		g.written = append(g.written, w.number)
	}
	return nil, nil
}

func sessions(n int) (keys []session.Key) {
	for i := range n {
		keys = append(keys, session.Key{Tenant: "t", SessionID: fmt.Sprint(i)})
	}
	return keys
}

// history draws commands and the pause before each.
func history(t *rapid.T, all []session.Key) (commands []work, pauses []time.Duration) {
	n := rapid.IntRange(1, 60).Draw(t, "commands")
	ms := func(most int, name string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	for i := range n {
		commands = append(commands, work{
			number: i,
			keys:   rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID[session.Key]).Draw(t, "keys"),
			leaves: max(0, ms(40, "leaves")-20*time.Millisecond),
			poison: rapid.IntRange(0, 9).Draw(t, "poison") == 0,
		})
		pauses = append(pauses, ms(4, "pause"))
	}
	return commands, pauses
}

// play runs the commands in their order and returns their errors.
func play(t *testing.T, config group.Config, g *guarded, commands []work, pauses []time.Duration) []error {
	c, err := group.New(config, g.write, nil)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	errs := make([]error, len(commands))
	for i, w := range commands {
		time.Sleep(pauses[i])
		go func() {
			ctx := t.Context()
			if w.leaves > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, w.leaves)
				defer cancel()
			}
			errs[i] = c.Do(ctx, w.keys, 1, w)
		}()
		synctest.Wait() // so that the order of arrival is known
	}
	c.Close()
	synctest.Wait()
	return errs
}

func TestEveryHistoryKeepsOrderExclusionAndFate(t *testing.T) {
	t.Parallel()
	all := sessions(6)
	rapid.Check(t, func(r *rapid.T) {
		config := standard()
		config.Lanes, config.Batch = rapid.IntRange(1, 3).Draw(r, "lanes"), rapid.IntRange(1, 5).Draw(r, "batch")
		commands, pauses := history(r, all)
		took := time.Duration(rapid.IntRange(0, 6).Draw(r, "took")) * time.Millisecond
		g := newGuarded(all, func() { time.Sleep(took) })
		var errs []error
		synctest.Test(t, func(t *testing.T) { errs = play(t, config, g, commands, pauses) })
		for _, wrong := range append(g.wrong, faults(commands, errs, g.written)...) {
			r.Error(wrong)
		}
	})
}

// faults says what of the outcome is not as promised.
func faults(commands []work, errs []error, written []int) (wrong []string) {
	times := make([]int, len(commands))
	last := map[session.Key]int{}
	for _, number := range written {
		times[number]++
		for _, key := range commands[number].keys {
			if before, ok := last[key]; ok && before > number {
				wrong = append(wrong, fmt.Sprintf("%v: command %d was written after %d", key, number, before))
			}
			last[key] = number
		}
	}
	for i, w := range commands {
		switch err := errs[i]; {
		case err == nil && !w.poison && times[i] == 1:
		case errors.Is(err, errPoison) && w.poison && times[i] == 0:
		case errors.Is(err, context.DeadlineExceeded) && w.leaves > 0 && times[i] == 0:
		default:
			wrong = append(wrong, fmt.Sprintf("command %d (poison %v) ended with %v and was written %d times", i, w.poison, err, times[i]))
		}
	}
	return wrong
}

// yield lets others run for a while that nobody knows.
func yield() {
	for range rand.IntN(20) {
		runtime.Gosched()
	}
}

func TestUnderLoadNoSessionIsInTwoPlacesAndEachCommandIsWrittenOnce(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 60
	all := sessions(24)
	g := newGuarded(all, yield)
	config := standard()
	config.Lanes, config.Batch = 3, 8
	c, err := group.New(config, g.write, nil)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	errs, commands := make([]error, callers*each), make([]work, callers*each)
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for i := caller * each; i < (caller+1)*each; i++ {
				w := work{number: i, poison: rand.IntN(50) == 0}
				for range 1 + rand.IntN(3) {
					if key := all[rand.IntN(len(all))]; !slices.Contains(w.keys, key) {
						w.keys = append(w.keys, key)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					w.leaves = 1
					done.Go(func() { yield(); cancel() })
				}
				commands[i], errs[i] = w, c.Do(ctx, w.keys, 1, w)
				if errors.Is(errs[i], context.Canceled) {
					errs[i] = context.DeadlineExceeded
				}
				cancel()
			}
		})
	}
	done.Wait()
	c.Close()
	slices.Sort(g.written) // who arrived first is not known here
	for _, wrong := range append(g.wrong, faults(commands, errs, g.written)...) {
		t.Error(wrong)
	}
}
