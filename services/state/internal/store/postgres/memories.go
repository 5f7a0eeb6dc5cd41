package postgres

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const memoryColumns = `m.memory_id, m.entity_id, m.source, m.text, m.metadata, m.created_at, m.updated_at`

func (r *row) memory() session.Memory {
	m := session.Memory{ID: r.text(), EntityID: r.text(), Source: r.text(), Text: r.text()}
	r.json(store.In(&m.Metadata))
	m.CreatedAt, m.UpdatedAt = session.Millis(r.number()), session.Millis(r.number())
	return m
}

// A row that was inserted has no former version.
var (
	upsertMemory = prepared(`INSERT INTO memories (tenant, memory_id, entity_id, source, text, metadata, created_at, updated_at)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
		ON CONFLICT (tenant, memory_id) DO UPDATE SET entity_id = excluded.entity_id, source = excluded.source, text = excluded.text,
			metadata = excluded.metadata, updated_at = excluded.updated_at
		RETURNING xmax = 0`)
	dropWords = prepared(`DELETE FROM memory_words WHERE tenant = $1::text AND memory_id = $2::text AND word <> ALL ($3::text[])`)
	addWords  = prepared(`INSERT INTO memory_words (tenant, word, memory_id) SELECT $1::text, word, $2::text FROM unnest($3::text[]) AS w (word)
		ON CONFLICT DO NOTHING`)
)

// Remember implements store.Memories. The row of the record, written first, is
// the lock of its words.
func (s *Store) Remember(ctx context.Context, tenant string, m session.Memory) (added bool, err error) {
	var w rows
	w.next().text(tenant, m.ID, m.EntityID, m.Source, m.Text).json(store.In(&m.Metadata)).number(int64(m.CreatedAt), int64(m.UpdatedAt))
	if w.err != nil {
		return false, w.err
	}
	words := texts(session.Words(m.Text, session.WordsOf))
	err = s.pipe(ctx, func(p *pipeline) {
		p.queue(upsertMemory, w.params(), func(r *row) { added = r.truth() })
		p.exec(dropWords, text(tenant), text(m.ID), words)
		p.exec(addWords, text(tenant), text(m.ID), words)
	})
	return added, wrap(ctx, err, "remember %q", m.ID)
}

var readMemory = prepared(`SELECT ` + memoryColumns + ` FROM memories m WHERE m.tenant = $1::text AND m.memory_id = $2::text`)

// Memory implements store.Memories.
func (s *Store) Memory(ctx context.Context, tenant, id string) (*session.Memory, error) {
	var found *session.Memory
	err := s.ask(ctx, readMemory, func(r *row) {
		m := r.memory()
		found = &m
	}, text(tenant), text(id))
	if err == nil && found == nil {
		err = fault.New(fault.NotFound, "MEMORY_NOT_FOUND", "there is no memory %q", id)
	}
	return found, wrap(ctx, err, "read memory %q", id)
}

var (
	recallByWords = prepared(`SELECT h.hits, ` + memoryColumns + ` FROM
			(SELECT w.memory_id, count(*) AS hits FROM memory_words w WHERE w.tenant = $1::text AND w.word = ANY ($2::text[])
				GROUP BY w.memory_id HAVING count(*) >= $5::bigint) h
		JOIN memories m ON m.tenant = $1 AND m.memory_id = h.memory_id
		WHERE ($3::text = '' OR m.entity_id = $3) AND ($4::text = '' OR m.source = $4)
		ORDER BY h.hits DESC, m.updated_at DESC, m.memory_id LIMIT $6::bigint`)
	recallAll = prepared(`SELECT 0::bigint, ` + memoryColumns + ` FROM memories m
		WHERE m.tenant = $1::text AND ($2::text = '' OR m.source = $2)
		ORDER BY m.updated_at DESC, m.memory_id LIMIT $3::bigint`)
	recallOfEntity = prepared(`SELECT 0::bigint, ` + memoryColumns + ` FROM memories m
		WHERE m.tenant = $1::text AND m.entity_id = $4::text AND ($2::text = '' OR m.source = $2)
		ORDER BY m.updated_at DESC, m.memory_id LIMIT $3::bigint`)
)

// Recall implements store.Memories.
func (s *Store) Recall(ctx context.Context, tenant string, q store.MemoryQuery) (found []store.Recalled, err error) {
	add := func(r *row) {
		hits := int(r.number())
		found = append(found, store.Recalled{Memory: r.memory(), Hits: hits})
	}
	switch {
	case len(q.Words) > 0:
		err = s.ask(ctx, recallByWords, add, text(tenant), texts(q.Words), text(q.EntityID), text(q.Source), number(q.MinHits), number(q.Limit))
	case q.EntityID != "":
		err = s.ask(ctx, recallOfEntity, add, text(tenant), text(q.Source), number(q.Limit), text(q.EntityID))
	default:
		err = s.ask(ctx, recallAll, add, text(tenant), text(q.Source), number(q.Limit))
	}
	return found, wrap(ctx, err, "search the memories of tenant %q", tenant)
}

var (
	deleteMemory = prepared(`DELETE FROM memories WHERE tenant = $1::text AND memory_id = $2::text`)
	deleteWords  = prepared(`DELETE FROM memory_words WHERE tenant = $1::text AND memory_id = $2::text`)
)

// ForgetMemory implements store.Memories.
func (s *Store) ForgetMemory(ctx context.Context, tenant, id string) (bool, error) {
	var gone int64
	err := s.pipe(ctx, func(p *pipeline) {
		p.count(deleteMemory, &gone, text(tenant), text(id))
		p.exec(deleteWords, text(tenant), text(id))
	})
	return gone > 0, wrap(ctx, err, "forget memory %q", id)
}

var readEntities = prepared(`SELECT m.entity_id, m.source, count(*) FROM memories m
	WHERE m.tenant = $1::text AND ($2::boolean OR (m.entity_id, m.source) > ($3::text, $4::text))
	GROUP BY m.entity_id, m.source ORDER BY m.entity_id, m.source LIMIT $5::bigint`)

// Entities implements store.Memories. The zero value of after is before every
// pair, also the one without entity and source.
func (s *Store) Entities(ctx context.Context, tenant string, after store.EntityCount, limit int) (page []store.EntityCount, err error) {
	err = s.ask(ctx, readEntities, func(r *row) {
		page = append(page, store.EntityCount{EntityID: r.text(), Source: r.text(), Count: r.number()})
	}, text(tenant), truth(after == store.EntityCount{}), text(after.EntityID), text(after.Source), number(limit))
	return page, wrap(ctx, err, "list the entities of tenant %q", tenant)
}
