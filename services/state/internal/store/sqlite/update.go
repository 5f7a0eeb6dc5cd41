package sqlite

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// command writes in the transaction of a batch. refused is an error of its own rules; it
// has then written nothing.
type command func(context.Context, *connection) (refused, err error)

// writeBatch runs the commands in one transaction, one after the other.
func (s *Store) writeBatch(ctx context.Context, batch []command) ([]error, error) {
	var each []error
	err := s.write(ctx, func(uncanceled context.Context, c *connection) error {
		for i, command := range batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			refused, err := command(uncanceled, c)
			if err != nil {
				return err
			}
			if refused != nil {
				if each == nil {
					each = make([]error, len(batch))
				}
				each[i] = refused
			}
		}
		return nil
	})
	return each, wrap(ctx, err, "write %d commands", len(batch))
}

// Update implements store.Updater.
func (s *Store) Update(ctx context.Context, targets []session.Target, bytes int, decide store.Decide) error {
	keys := make([]session.Key, len(targets))
	for i, t := range targets {
		keys[i] = t.Key
	}
	return s.committer.Do(ctx, keys, bytes, func(ctx context.Context, c *connection) (refused, err error) {
		views := make([]*session.View, len(targets))
		for i, t := range targets {
			if views[i], err = loadView(ctx, c, t.Key, t.Need); err != nil {
				return nil, fmt.Errorf("read session %q of tenant %q: %w", t.SessionID, t.Tenant, err)
			}
		}
		changes, refused := decide(views)
		if refused != nil || changes == nil {
			return refused, nil
		}
		if len(changes) != len(targets) {
			return fmt.Errorf("got %d changes for %d sessions", len(changes), len(targets)), nil
		}
		for i, change := range changes {
			if change == nil {
				continue
			}
			if err := s.apply(ctx, c, keys[i], views[i], change); err != nil {
				return nil, fmt.Errorf("write session %q of tenant %q: %w", keys[i].SessionID, keys[i].Tenant, err)
			}
		}
		return nil, nil
	})
}
