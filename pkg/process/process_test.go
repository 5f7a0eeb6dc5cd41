package process_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/process"
)

const grace = 10 * time.Second

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestTheEndOfTheContextStopsEveryTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		draining := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(grace / 2)
			return nil
		}
		begin := time.Now()
		err := process.Run(ctx, grace, process.Task{Name: "serve", Run: untilEnd}, process.Task{Name: "drain", Run: draining})
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if got, want := time.Since(begin), time.Hour+grace/2; got != want {
			t.Errorf("Run took %v, want %v", got, want)
		}
	})
}

func TestAFailedTaskStopsTheOthersAndIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("port is taken")
		fail := func(context.Context) error { return broken }
		err := process.Run(t.Context(), grace, process.Task{Name: "sweep", Run: untilEnd}, process.Task{Name: "serve", Run: fail})
		if !errors.Is(err, broken) {
			t.Fatalf("Run = %v, want it to wrap %v", err, broken)
		}
		if got, want := err.Error(), "serve: port is taken"; got != want {
			t.Errorf("Run = %q, want %q", got, want)
		}
	})
}

func TestATaskThatIsDoneLeavesTheOthersRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		migrate := func(context.Context) error { return nil }
		serve := func(ctx context.Context) error {
			time.Sleep(time.Hour)
			return ctx.Err()
		}
		begin := time.Now()
		if err := process.Run(t.Context(), grace, process.Task{Name: "migrate", Run: migrate}, process.Task{Name: "serve", Run: serve}); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if got := time.Since(begin); got != time.Hour {
			t.Errorf("Run took %v, want %v", got, time.Hour)
		}
	})
}

func TestAStuckTaskIsNamedAfterTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := func(context.Context) error { <-release; return nil }
		broken := errors.New("lost the database")
		fail := func(context.Context) error { time.Sleep(time.Minute); return broken }

		begin := time.Now()
		err := process.Run(t.Context(), grace,
			process.Task{Name: "sweep", Run: stuck}, process.Task{Name: "store", Run: fail}, process.Task{Name: "serve", Run: untilEnd}, process.Task{Name: "hub", Run: stuck})
		if got, want := time.Since(begin), time.Minute+grace; got != want {
			t.Errorf("Run took %v, want %v", got, want)
		}
		want := "store: lost the database\nnot stopped within 10s: sweep, hub"
		if err == nil || err.Error() != want {
			t.Errorf("Run = %v, want %q", err, want)
		}
		close(release) // an abandoned task must be able to end
	})
}

func TestAFailureDuringTheGraceIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		flush := func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("3 chunks were not sent")
		}
		wrapped := func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("claim runs: %w", ctx.Err())
		}
		cancel()
		err := process.Run(ctx, grace, process.Task{Name: "hub", Run: flush}, process.Task{Name: "claim", Run: wrapped})
		if err == nil || err.Error() != "hub: 3 chunks were not sent" {
			t.Errorf("Run = %v, want the failure of hub alone", err)
		}
	})
}

func TestACancelledErrorOutsideOfAShutdownIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		odd := func(context.Context) error { return context.Canceled }
		err := process.Run(t.Context(), grace, process.Task{Name: "odd", Run: odd}, process.Task{Name: "serve", Run: untilEnd})
		if err == nil || !strings.HasPrefix(err.Error(), "odd: ") {
			t.Errorf("Run = %v, want the failure of odd", err)
		}
	})
}

func TestNoTasksEndAtOnce(t *testing.T) {
	t.Parallel()
	if err := process.Run(t.Context(), grace); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	err := process.Run(ctx, time.Second,
		process.Task{Name: "serve", Run: untilEnd},
		process.Task{Name: "stop", Run: func(context.Context) error { cancel(); return nil }},
	)
	fmt.Println(err)
	// Output: <nil>
}
