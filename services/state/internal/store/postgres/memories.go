package postgres

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var memoryColumns = table.Memories.All()

var (
	// xmax is 0 in an inserted row.
	upsertMemory = prepared(func() string {
		in := columnsOf(&table.Memories, memoryColumns)
		return insertText(in, table.Memories.Name, fmt.Sprintf(`(SELECT %s) AS v`, in.placeholders(1, ""))) +
			` ON CONFLICT (tenant, memory_id) DO UPDATE SET ` + excluded(&table.Memories) + ` RETURNING xmax = 0`
	}())
	dropWords = prepared(`DELETE FROM memory_words WHERE tenant = $1::text AND memory_id = $2::text AND word <> ALL ($3::text[])`)
	addWords  = prepared(`INSERT INTO memory_words (tenant, word, memory_id) SELECT $1::text, word, $2::text
		FROM unnest($3::text[]) AS w (word)
		ON CONFLICT DO NOTHING`)
)

// Remember implements store.Memories. The row of the record, written first, is
// the lock of its words.
func (s memories) Remember(ctx context.Context, tenant string, m session.Memory) (added bool, err error) {
	w := rows{values: memoryColumns.Fields([]any{tenant}, &m), count: 1}
	args, err := w.appendArguments(nil, true)
	if err != nil {
		return false, err
	}
	words := notNil(session.SearchWords(m.Text, session.MaxSearchWords))
	err = s.execute(ctx, func(p *pipeline) {
		p.queue(upsertMemory, args, scanInto(&added))
		p.exec(dropWords, tenant, m.ID, words)
		p.exec(addWords, tenant, m.ID, words)
	})
	return added, wrap(ctx, err, "remember %q", m.ID)
}

var readMemory = prepared(`SELECT ` + memoryColumns.Select("m") + ` FROM memories m WHERE m.tenant = $1::text AND m.memory_id = $2::text`)

// Memory implements store.Memories.
func (s memories) Memory(ctx context.Context, tenant, id string) (*session.Memory, error) {
	var found *session.Memory
	err := s.query(ctx, readMemory, scanEach(memoryColumns.Destinations, func(m *session.Memory) { found = m }), tenant, id)
	if err == nil && found == nil {
		err = fault.New(fault.NotFound, "MEMORY_NOT_FOUND", "there is no memory %q", id)
	}
	return found, wrap(ctx, err, "read memory %q", id)
}

var (
	recallByWords = prepared(`SELECT h.hits, ` + memoryColumns.Select("m") + ` FROM
			(SELECT w.memory_id, count(*) AS hits FROM memory_words w WHERE w.tenant = $1::text AND w.word = ANY ($2::text[])
				GROUP BY w.memory_id HAVING count(*) >= $5::bigint) h
		JOIN memories m ON m.tenant = $1 AND m.memory_id = h.memory_id
		WHERE ($3::text = '' OR m.entity_id = $3) AND ($4::text = '' OR m.source = $4)
		ORDER BY h.hits DESC, m.updated_at DESC, m.memory_id LIMIT $6::bigint`)
	recallAll = prepared(`SELECT 0::bigint, ` + memoryColumns.Select("m") + ` FROM memories m
		WHERE m.tenant = $1::text AND ($2::text = '' OR m.source = $2)
		ORDER BY m.updated_at DESC, m.memory_id LIMIT $3::bigint`)
	recallOfEntity = prepared(`SELECT 0::bigint, ` + memoryColumns.Select("m") + ` FROM memories m
		WHERE m.tenant = $1::text AND m.entity_id = $4::text AND ($2::text = '' OR m.source = $2)
		ORDER BY m.updated_at DESC, m.memory_id LIMIT $3::bigint`)
)

// Recall implements store.Memories.
func (s memories) Recall(ctx context.Context, tenant string, q store.MemoryQuery) (found []store.Recalled, err error) {
	add := scanEach(func(to []any, r *store.Recalled) []any {
		return memoryColumns.Destinations(append(to, &r.Hits), &r.Memory)
	}, func(r *store.Recalled) { found = append(found, *r) })
	switch {
	case len(q.Words) > 0:
		err = s.query(ctx, recallByWords, add, tenant, q.Words, q.EntityID, q.Source, q.MinHits, q.Limit)
	case q.EntityID != "":
		err = s.query(ctx, recallOfEntity, add, tenant, q.Source, q.Limit, q.EntityID)
	default:
		err = s.query(ctx, recallAll, add, tenant, q.Source, q.Limit)
	}
	return found, wrap(ctx, err, "search the memories of tenant %q", tenant)
}

var (
	deleteMemory = prepared(`DELETE FROM memories WHERE tenant = $1::text AND memory_id = $2::text`)
	deleteWords  = prepared(`DELETE FROM memory_words WHERE tenant = $1::text AND memory_id = $2::text`)
)

// ForgetMemory implements store.Memories.
func (s memories) ForgetMemory(ctx context.Context, tenant, id string) (bool, error) {
	var gone int64
	err := s.execute(ctx, func(p *pipeline) {
		p.count(deleteMemory, &gone, tenant, id)
		p.exec(deleteWords, tenant, id)
	})
	return gone > 0, wrap(ctx, err, "forget memory %q", id)
}

var readEntities = prepared(`SELECT m.entity_id, m.source, count(*) FROM memories m
	WHERE m.tenant = $1::text AND ($2::boolean OR (m.entity_id, m.source) > ($3::text, $4::text))
	GROUP BY m.entity_id, m.source ORDER BY m.entity_id, m.source LIMIT $5::bigint`)

// Entities implements store.Memories. The zero value of after is before every
// pair, also the one without entity and source.
func (s memories) Entities(ctx context.Context, tenant string, after store.EntityCount, limit int) (page []store.EntityCount, err error) {
	err = s.query(ctx, readEntities, scanEach(func(to []any, e *store.EntityCount) []any {
		return append(to, &e.EntityID, &e.Source, &e.Count)
	}, func(e *store.EntityCount) { page = append(page, *e) }), tenant, after == store.EntityCount{}, after.EntityID, after.Source, limit)
	return page, wrap(ctx, err, "list the entities of tenant %q", tenant)
}
