package sweep

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

const (
	pageSize    = 100 // sessions that are found at once
	workers = 8   // sessions that are worked on at once, which the store then writes together
)

// forEachDue does each session that find gives, once, until nothing new is found or
// most were done. A session whose doing fails is found again, since it is still
// due: it is passed over, and holds nobody up.
//
// It gives what find gives, and the end of ctx.
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

// forEach does the sessions, some of them at once.
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
