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

// testCommand is a command with its keys.
type testCommand struct {
	number int
	keys   []session.Key
	leaves time.Duration // when its context ends; 0 for never
	poison bool
}

// lockChecker is a database that reports a session in two batches at the same time.
type lockChecker struct {
	rows map[session.Key]*sync.Mutex
	wait func() // for the duration of a transaction

	mu      sync.Mutex
	written []int
	wrong   []string
}

func newLockChecker(sessions []session.Key, wait func()) *lockChecker {
	g := &lockChecker{rows: map[session.Key]*sync.Mutex{}, wait: wait}
	for _, key := range sessions {
		g.rows[key] = &sync.Mutex{}
	}
	return g
}

func (g *lockChecker) report(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

func (g *lockChecker) write(_ context.Context, batch []testCommand) ([]error, error) {
	for _, w := range batch {
		for _, key := range w.keys {
			if !g.rows[key].TryLock() {
				g.report("command %d: %v is in two places at once", w.number, key)
				continue
			}
			defer g.rows[key].Unlock()
		}
	}
	g.wait()
	if slices.ContainsFunc(batch, func(w testCommand) bool { return w.poison }) {
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

// drawCommands draws commands and the pause before each.
func drawCommands(t *rapid.T, all []session.Key) (commands []testCommand, pauses []time.Duration) {
	n := rapid.IntRange(1, 60).Draw(t, "commands")
	ms := func(most int, name string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	for i := range n {
		commands = append(commands, testCommand{
			number: i,
			keys:   rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID[session.Key]).Draw(t, "keys"),
			leaves: max(0, ms(40, "leaves")-20*time.Millisecond),
			poison: rapid.IntRange(0, 9).Draw(t, "poison") == 0,
		})
		pauses = append(pauses, ms(4, "pause"))
	}
	return commands, pauses
}

// runCommands runs the commands in order and returns their errors.
func runCommands(t *testing.T, config group.Config, g *lockChecker, commands []testCommand, pauses []time.Duration) []error {
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
		synctest.Wait() // fixes the order of arrival
	}
	c.Close()
	synctest.Wait()
	return errs
}

func TestCommandsKeepTheirOrderAndOutcomeAndShareNoSession(t *testing.T) {
	t.Parallel()
	all := sessions(6)
	rapid.Check(t, func(r *rapid.T) {
		config := defaultConfig()
		config.Lanes, config.Batch = rapid.IntRange(1, 3).Draw(r, "lanes"), rapid.IntRange(1, 5).Draw(r, "batch")
		commands, pauses := drawCommands(r, all)
		took := time.Duration(rapid.IntRange(0, 6).Draw(r, "took")) * time.Millisecond
		g := newLockChecker(all, func() { time.Sleep(took) })
		var errs []error
		synctest.Test(t, func(t *testing.T) { errs = runCommands(t, config, g, commands, pauses) })
		for _, wrong := range append(g.wrong, violations(commands, errs, g.written)...) {
			r.Error(wrong)
		}
	})
}

// violations lists broken promises in the outcome.
func violations(commands []testCommand, errs []error, written []int) (wrong []string) {
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

// pause lets other goroutines run for an arbitrary time.
func pause() {
	for range rand.IntN(20) {
		runtime.Gosched()
	}
}

func TestUnderLoadNoSessionIsInTwoPlacesAndEachCommandIsWrittenOnce(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 60
	all := sessions(24)
	g := newLockChecker(all, pause)
	config := defaultConfig()
	config.Lanes, config.Batch = 3, 8
	c, err := group.New(config, g.write, nil)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	errs, commands := make([]error, callers*each), make([]testCommand, callers*each)
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for i := caller * each; i < (caller+1)*each; i++ {
				w := testCommand{number: i, poison: rand.IntN(50) == 0}
				for range 1 + rand.IntN(3) {
					if key := all[rand.IntN(len(all))]; !slices.Contains(w.keys, key) {
						w.keys = append(w.keys, key)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					w.leaves = 1
					done.Go(func() { pause(); cancel() })
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
	slices.Sort(g.written) // the order of arrival is unknown here
	for _, wrong := range append(g.wrong, violations(commands, errs, g.written)...) {
		t.Error(wrong)
	}
}
