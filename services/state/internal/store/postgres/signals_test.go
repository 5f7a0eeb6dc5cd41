package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

// patience is how long a test waits for a signal.
const patience = 90 * time.Second

// listener is a store that listens until the test ends or the connection fails.
type listener struct {
	*Store
	heard chan string
	end   chan error // its one result
}

func listen(t *testing.T, s *Store) *listener {
	t.Helper()
	l := &listener{s, make(chan string, 1000), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var hearing sync.WaitGroup
	hearing.Go(func() { l.end <- s.Listen(ctx, func(signal string) { l.heard <- signal }) })
	t.Cleanup(func() {
		cancel()
		hearing.Wait()
	})
	return l
}

func (l *listener) next(t *testing.T) string {
	t.Helper()
	select {
	case signal := <-l.heard:
		return signal
	case err := <-l.end:
		t.Fatalf("it hears no more: %v", err)
	case <-time.After(patience):
		t.Fatal("no signal came")
	}
	return ""
}

// ready sends signals until every listener has received one, and drops them.
func ready(t *testing.T, from *Store, listeners ...*listener) {
	t.Helper()
	for _, l := range listeners {
		for heard := false; !heard; {
			if err := from.Signal(t.Context(), []string{"ready?"}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.heard:
				heard = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// after returns the first signal that is not from ready.
func (l *listener) after(t *testing.T) string {
	t.Helper()
	for {
		if signal := l.next(t); signal != "ready?" {
			return signal
		}
	}
}

func TestSignalsReachAllOtherReplicas(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	from, second, third := open(t, url), open(t, url), open(t, url)
	self := listen(t, from)
	listeners := []*listener{listen(t, second), listen(t, third)}
	ready(t, from, listeners...)
	ready(t, second, self)
	hostile := []string{"queued:a b", "queued:'; DROP TABLE sessions; --", "ended:日本語", strings.Repeat("x", 4<<10), "last"}
	if err := from.Signal(t.Context(), hostile); err != nil {
		t.Fatal(err)
	}
	for i, l := range listeners {
		for _, want := range hostile {
			if got := l.after(t); got != want {
				t.Errorf("replica %d heard %q, want %q", i, got, want)
			}
		}
	}
	if err := second.Signal(t.Context(), []string{"from another"}); err != nil {
		t.Fatal(err)
	}
	if got := self.after(t); got != "from another" {
		t.Errorf("it heard %q, which it has said itself", got)
	}
}

func TestALostConnectionEndsListeningWithAnError(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	from, s := open(t, url), open(t, url)
	l := listen(t, s)
	ready(t, from, l)
	if n := ask[int](t, from, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`); n != 1 {
		t.Fatalf("%d connections were ended, want the one that listens", n)
	}
	select {
	case err := <-l.end:
		if err == nil {
			t.Error("it ended without a word")
		}
	case <-time.After(patience):
		t.Fatal("it still believes that it hears")
	}
	again := listen(t, s)
	ready(t, from, again)
	if err := from.Signal(t.Context(), []string{"again"}); err != nil {
		t.Fatal(err)
	}
	if got := again.after(t); got != "again" {
		t.Errorf("it heard %q", got)
	}
}

func TestManyReplicasSignalAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	l := listen(t, open(t, url))
	senders := []*Store{open(t, url), open(t, url)}
	ready(t, senders[0], l)
	const each = 50
	var sending sync.WaitGroup
	for i, s := range senders {
		for n := range each {
			sending.Go(func() {
				if err := s.Signal(t.Context(), []string{fmt.Sprint(i, ".", n)}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	sending.Wait()
	heard := map[string]bool{}
	for len(heard) < len(senders)*each {
		heard[l.after(t)] = true
	}
}
