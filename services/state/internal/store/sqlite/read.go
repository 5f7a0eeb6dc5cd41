package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ownedReader implements store.Reader for the sessions of one user, or of all if the owner is empty.
type ownedReader struct {
	*Store
	owner string
}

// OwnedBy implements store.Reader.
func (s ownedReader) OwnedBy(user string) store.Reader { return ownedReader{s.Store, user} }

// hides reports whether the session of a user does not exist for the reader.
func (s ownedReader) hides(user string) bool { return s.owner != "" && user != s.owner }

// readOf is read for an existing session. NotFound (SESSION_NOT_FOUND).
func (s ownedReader) readOf(ctx context.Context, key session.Key, f func(*connection, *session.Session) error) error {
	return s.read(ctx, func(c *connection) error {
		found, err := readSession(ctx, c, key)
		if err != nil {
			return err
		}
		if found == nil || s.hides(found.UserID) {
			return session.SessionNotFound(key)
		}
		return f(c, found)
	})
}

// Session implements store.Reader.
func (s ownedReader) Session(ctx context.Context, key session.Key) (*store.Snapshot, error) {
	var shot store.Snapshot
	err := s.readOf(ctx, key, func(c *connection, found *session.Session) (err error) {
		if found.State, err = readState(ctx, c, key, found.StateBase, found.StateVersion); err != nil {
			return err
		}
		shot.Session = *found
		if found.Waiting > 0 {
			if shot.Waiting, err = readWaiting(ctx, c, key); err != nil {
				return err
			}
		}
		if found.CurrentRunID != "" {
			if shot.Current, err = readRun(ctx, c, runByID, key, found.CurrentRunID); err != nil {
				return err
			}
		}
		if shot.Calls, shot.AwaitedCalls, err = readUnconsumedCalls(ctx, c, found); err != nil {
			return err
		}
		shot.Children, err = readChildren(ctx, c, key)
		return err
	})
	if err != nil {
		return nil, wrap(ctx, err, "read session %q of tenant %q", key.SessionID, key.Tenant)
	}
	return &shot, nil
}

// readUnconsumedCalls returns the calls that no step has consumed, of the session or,
// for a root, of its family. awaited counts the family's calls that await an answer.
func readUnconsumedCalls(ctx context.Context, c *connection, of *session.Session) (calls []session.Call, awaited int, err error) {
	if of.RootID == of.SessionID {
		calls, err = readCalls(ctx, c, `l.tenant = ? AND l.root_id = ? AND l.consumed_at = 0 ORDER BY l.created_at, l.call_id`, of.Tenant,
			of.RootID)
		return calls, session.CountAwaited(calls), err
	}
	_, err = c.queryRow(ctx, `SELECT count(*) FROM calls l
		WHERE l.tenant = ? AND l.root_id = ? AND l.consumed_at = 0 AND l.answer = '' AND l.run_id <> '' AND l.kind <> 'sub_agent'`,
		arguments(of.Tenant, of.RootID), &awaited)
	if err != nil {
		return nil, 0, err
	}
	calls, err = readCalls(ctx, c, `l.tenant = ? AND l.session_id = ? AND l.consumed_at = 0 ORDER BY l.created_at, l.call_id`, of.Tenant,
		of.SessionID)
	return calls, awaited, err
}

// Run implements store.Reader.
func (s ownedReader) Run(ctx context.Context, key session.Key, runID string) (run *session.Run, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		run, err = readRun(ctx, c, runByID, key, runID)
		if err == nil && run == nil {
			return session.RunNotFound(runID)
		}
		return err
	})
	return run, wrap(ctx, err, "read run %q", runID)
}

// Runs implements store.Reader.
func (s ownedReader) Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) (page []session.Run, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		return c.forEach(ctx, `SELECT `+runListed.Select("r")+` FROM runs r
			WHERE r.tenant = ?1 AND r.session_id = ?2 AND r.turn > 0 AND (?3 = 0 OR r.turn < ?3) ORDER BY r.turn DESC LIMIT 0 + ?4`,
			arguments(key.Tenant, key.SessionID, beforeTurn, limit), func(row scanner) error {
				var r session.Run
				err := row.Scan(runListed.Destinations(nil, &r)...)
				fillOutcome(&r)
				page = append(page, r)
				return err
			})
	})
	return page, wrap(ctx, err, "read runs of session %q", key.SessionID)
}

// Waiting implements store.Reader.
func (s ownedReader) Waiting(ctx context.Context, key session.Key) (runs []session.Run, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		runs, err = readWaiting(ctx, c, key)
		return err
	})
	return runs, wrap(ctx, err, "read the waiting runs of session %q", key.SessionID)
}

// Messages implements store.Reader.
func (s ownedReader) Messages(ctx context.Context, key session.Key, page store.Page) (messages []session.Message, total int64, err error) {
	err = s.readOf(ctx, key, func(c *connection, found *session.Session) error {
		total = found.MessageCount
		messages, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM
				(SELECT *, sum(size) OVER (ORDER BY ordinal) AS total FROM
					(SELECT * FROM messages WHERE tenant = ?1 AND session_id = ?2 AND ordinal >= ?3 ORDER BY ordinal LIMIT 0 + ?4)) m
			WHERE m.total <= ?5 OR m.ordinal = ?3 ORDER BY m.ordinal`, key.Tenant, key.SessionID, page.From, page.Limit, page.MaxBytes)
		return err
	})
	return messages, total, wrap(ctx, err, "read messages of session %q", key.SessionID)
}

// The entries of a page, and how many there are without the bound on their bytes.
const (
	storePage = `SELECT key, CASE WHEN ?3 THEN '' ELSE value END, bytes, found FROM
		(SELECT *, octet_length(key) + octet_length(value) AS bytes, count(*) OVER () AS found, row_number() OVER (ORDER BY key) AS place,
			sum(octet_length(key) + CASE WHEN ?3 THEN 0 ELSE octet_length(value) END) OVER (ORDER BY key) AS total FROM
			(SELECT key, value FROM store_entries WHERE tenant = ?1 AND session_id = ?2`
	storeInRange  = ` AND key >= ?5 AND key < ?6 ORDER BY key LIMIT 0 + ?7`
	storeWithKeys = ` AND key IN (SELECT value FROM json_each(?5))`
	storeBounded  = `)) WHERE total <= ?4 OR place = 1 ORDER BY key`
)

// StoreEntries implements store.Reader.
func (s ownedReader) StoreEntries(
	ctx context.Context, key session.Key, q store.StoreQuery,
) (page []store.StoredEntry, more bool, err error) {
	query, args := storeWithKeys, arguments(key.Tenant, key.SessionID, q.KeysOnly, q.MaxBytes)
	if q.Keys != nil {
		args = append(args, jsonList(q.Keys))
	} else {
		from, before := q.Range()
		query, args = storeInRange, append(args, from, before, q.Limit+1)
	}
	found := 0
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		return c.forEach(ctx, storePage+query+storeBounded, args, func(row scanner) error {
			var e store.StoredEntry
			err := row.Scan(&e.Key, &e.Value, &e.Bytes, &found)
			page = append(page, e)
			return err
		})
	})
	if q.Keys == nil {
		page = page[:min(len(page), q.Limit)]
	}
	return page, found > len(page), wrap(ctx, err, "read the store of session %q", key.SessionID)
}

// Checkpoint implements store.Reader.
func (s ownedReader) Checkpoint(ctx context.Context, key session.Key, id string) (k *session.Checkpoint, state string, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		if id == "" {
			k, err = readCheckpoint(ctx, c, key, ``)
		} else {
			k, err = readCheckpointNamed(ctx, c, key, id)
		}
		if err != nil {
			return err
		}
		if k == nil {
			return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "session %q has no checkpoint %q", key.SessionID, id)
		}
		state, err = readState(ctx, c, key, k.StateBase, k.StateVersion)
		return err
	})
	return k, state, wrap(ctx, err, "read checkpoint %q of session %q", id, key.SessionID)
}

// Checkpoints implements store.Reader.
func (s ownedReader) Checkpoints(
	ctx context.Context, key session.Key, beforeStep int32, offset, limit int,
) (page []session.Checkpoint, total int64, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		_, err := c.queryRow(ctx, `SELECT count(*) FROM checkpoints WHERE tenant = ? AND session_id = ?`, arguments(key.Tenant, key.SessionID),
			&total)
		if err != nil {
			return err
		}
		return c.forEach(ctx, `SELECT `+checkpointFields+` FROM checkpoints k
			WHERE k.tenant = ?1 AND k.session_id = ?2 AND (?3 = 0 OR k.step < ?3) ORDER BY k.step DESC LIMIT 0 + ?4 OFFSET ?5`,
			arguments(key.Tenant, key.SessionID, beforeStep, limit, offset), func(row scanner) error {
				var k session.Checkpoint
				err := row.Scan(checkpointListed.Destinations(nil, &k)...)
				page = append(page, k)
				return err
			})
	})
	return page, total, wrap(ctx, err, "read checkpoints of session %q", key.SessionID)
}

// Owners implements store.Reader.
func (s ownedReader) Owners(ctx context.Context, key session.Key, callIDs []string) (map[string]string, error) {
	owners := map[string]string{}
	err := s.readOf(ctx, key, func(c *connection, found *session.Session) error {
		return c.forEach(ctx, `SELECT call_id, session_id FROM calls
			WHERE tenant = ? AND root_id = ? AND call_id IN (SELECT value FROM json_each(?))`,
			arguments(key.Tenant, found.RootID, jsonList(callIDs)), func(row scanner) error {
				var call, owner string
				err := row.Scan(&call, &owner)
				owners[call] = owner
				return err
			})
	})
	if err != nil {
		return nil, wrap(ctx, err, "find the owners of %d calls of the family of session %q", len(callIDs), key.SessionID)
	}
	return owners, nil
}

// Family implements store.Reader.
func (s ownedReader) Family(ctx context.Context, key session.Key, limit int) (family []session.Key, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		ids, err := familyIDs(ctx, c, key, limit)
		for _, id := range ids {
			family = append(family, session.Key{Tenant: key.Tenant, SessionID: id})
		}
		return err
	})
	return family, wrap(ctx, err, "read the family of session %q", key.SessionID)
}

// familyIDs returns the ids of the session and the sub-sessions below it, at most limit
// in all, a parent before its children. It finds them by facet.
func familyIDs(ctx context.Context, c *connection, key session.Key, limit int) ([]string, error) {
	ids := []string{key.SessionID}
	for i := 0; i < len(ids) && len(ids) < limit; i++ {
		err := c.forEach(ctx, `SELECT session_id FROM session_facets WHERE tenant = ? AND facet = ? ORDER BY session_id LIMIT 0 + ?`,
			arguments(key.Tenant, session.ParentFacet(ids[i]), limit-len(ids)), func(row scanner) error {
				var id string
				err := row.Scan(&id)
				ids = append(ids, id)
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return ids[:min(limit, len(ids))], nil
}
