package sweep

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

const (
	pageSize = 100 // sessions of one query
	workers  = 8   // concurrent commands; the store writes them together
)

// forEachDue calls do once for each session returned by find, until there is no new one or
// limit are done. Failed sessions are still due and returned again: they are skipped.
//
// It returns the error of find, and that of an ended ctx.
func forEachDue(ctx context.Context, most int, find func(ctx context.Context, limit int) ([]session.Key, error),
	do func(context.Context, session.Key) error) error {
	done := map[session.Key]bool{}
	var failed atomic.Int64
	for len(done) < most {
		found, err := find(ctx, pageSize+int(failed.Load()))
		if err != nil {
			return err
		}
		var fresh []session.Key
		for _, key := range found {
			if !done[key] && len(done) < most {
				done[key] = true
				fresh = append(fresh, key)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		forEach(ctx, fresh, func(ctx context.Context, key session.Key) {
			if do(ctx, key) != nil {
				failed.Add(1)
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// forEach calls do for each session, several at once.
func forEach(ctx context.Context, keys []session.Key, do func(context.Context, session.Key)) {
	queue := make(chan session.Key)
	var wg sync.WaitGroup
	for range min(workers, len(keys)) {
		wg.Go(func() {
			for key := range queue {
				if ctx.Err() == nil {
					do(ctx, key)
				}
			}
		})
	}
	for _, key := range keys {
		queue <- key
	}
	close(queue)
	wg.Wait()
}
