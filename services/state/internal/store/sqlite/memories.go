package sqlite

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// Remember implements store.Memories.
func (s memories) Remember(ctx context.Context, tenant string, m session.Memory) (added bool, err error) {
	words := session.SearchWords(m.Text, session.MaxSearchWords)
	err = s.committer.Do(ctx, nil, len(m.Text), func(ctx context.Context, c *connection) (refused, err error) {
		if added, err = remember(ctx, c, tenant, m, words); err != nil {
			return nil, fmt.Errorf("write memory %q of tenant %q: %w", m.ID, tenant, err)
		}
		return nil, nil
	})
	return added && err == nil, err
}

var (
	insertMemory = insert(&table.Memories)
	updateMemory = update(&table.Memories, table.Memories.Changing())
)

func remember(ctx context.Context, c *connection, tenant string, m session.Memory, words []string) (added bool, err error) {
	args := table.Memories.Key.Values([]any{tenant}, &m)
	replaced, err := c.exec(ctx, updateMemory.text, table.Memories.Changing().Values(args, &m)...)
	if err != nil {
		return false, err
	}
	if replaced > 0 {
		_, err = c.exec(ctx, `DELETE FROM memory_words WHERE tenant = ? AND memory_id = ?`, tenant, m.ID)
	} else {
		_, err = c.exec(ctx, insertMemory.text, memoryColumns.Values([]any{tenant}, &m)...)
	}
	if err != nil {
		return false, err
	}
	_, err = c.exec(ctx, `INSERT INTO memory_words (tenant, word, memory_id) SELECT ?, value, ? FROM json_each(?)`, tenant, m.ID,
		jsonList(words))
	return replaced == 0, err
}

// memoryFields are the columns of memories m.
var memoryFields = memoryColumns.Select("m")

// Memory implements store.Memories.
func (s memories) Memory(ctx context.Context, tenant, id string) (*session.Memory, error) {
	var m session.Memory
	err := s.read(ctx, func(c *connection) error {
		found, err := c.queryRow(ctx, `SELECT `+memoryFields+` FROM memories m WHERE m.tenant = ? AND m.memory_id = ?`, arguments(tenant, id),
			memoryColumns.Destinations(nil, &m)...)
		if err == nil && !found {
			return fault.New(fault.NotFound, "MEMORY_NOT_FOUND", "there is no memory %q", id)
		}
		return err
	})
	if err != nil {
		return nil, wrap(ctx, err, "read memory %q of tenant %q", id, tenant)
	}
	return &m, nil
}

// Recall implements store.Memories.
func (s memories) Recall(ctx context.Context, tenant string, q store.MemoryQuery) (found []store.Recalled, err error) {
	args := arguments(tenant, q.EntityID, q.Source, q.Limit)
	const about = ` m.tenant = ?1 AND (?2 = '' OR m.entity_id = ?2) AND (?3 = '' OR m.source = ?3)`
	query := `SELECT ` + memoryFields + `, 0 FROM memories m WHERE` + about + ` ORDER BY m.updated_at DESC, m.memory_id LIMIT 0 + ?4`
	if len(q.Words) > 0 {
		args = append(args, jsonList(q.Words), q.MinHits)
		query = `SELECT ` + memoryFields + `, w.hits FROM
				(SELECT memory_id, count(*) AS hits FROM memory_words WHERE tenant = ?1 AND word IN (SELECT value FROM json_each(?5))
					GROUP BY memory_id HAVING count(*) >= ?6) w
				CROSS JOIN memories m ON m.memory_id = w.memory_id
			WHERE` + about + ` ORDER BY w.hits DESC, m.updated_at DESC, m.memory_id LIMIT 0 + ?4`
	}
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, query, args, func(row scanner) error {
			var r store.Recalled
			err := row.Scan(append(memoryColumns.Destinations(nil, &r.Memory), &r.Hits)...)
			found = append(found, r)
			return err
		})
	})
	return found, wrap(ctx, err, "recall memories of tenant %q", tenant)
}

// ForgetMemory implements store.Memories.
func (s memories) ForgetMemory(ctx context.Context, tenant, id string) (known bool, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		s.erased.Store(true)
		n, err := c.exec(ctx, `DELETE FROM memories WHERE tenant = ? AND memory_id = ?`, tenant, id)
		if err == nil {
			_, err = c.exec(ctx, `DELETE FROM memory_words WHERE tenant = ? AND memory_id = ?`, tenant, id)
		}
		known = n > 0
		return nil, err
	})
	return known && err == nil, err
}

// Entities implements store.Memories.
func (s memories) Entities(ctx context.Context, tenant string, after store.EntityCount, limit int) (list []store.EntityCount, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT entity_id, source, count(*) FROM memories
			WHERE tenant = ?1 AND (?2 OR (entity_id, source) > (?3, ?4)) GROUP BY entity_id, source ORDER BY entity_id, source LIMIT 0 + ?5`,
			arguments(tenant, after == (store.EntityCount{}), after.EntityID, after.Source, limit), func(row scanner) error {
				var e store.EntityCount
				err := row.Scan(&e.EntityID, &e.Source, &e.Count)
				list = append(list, e)
				return err
			})
	})
	return list, wrap(ctx, err, "list entities of tenant %q", tenant)
}
