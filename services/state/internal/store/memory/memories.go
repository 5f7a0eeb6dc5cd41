package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// record is a memory and the words by which it is found.
type record struct {
	session.Memory
	words []string // sorted
}

// Remember implements store.Memories.
func (m *Store) Remember(ctx context.Context, tenant string, memory session.Memory) (added bool, err error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if m.memories[tenant] == nil {
		m.memories[tenant] = map[string]record{}
	}
	memory = copyMemory(memory)
	old, known := m.memories[tenant][memory.ID]
	if known {
		memory.CreatedAt = old.CreatedAt
	}
	m.memories[tenant][memory.ID] = record{memory, session.Words(memory.Text, session.WordsOf)}
	return !known, nil
}

// Memory implements store.Memories.
func (m *Store) Memory(ctx context.Context, tenant, id string) (*session.Memory, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	r, known := m.memories[tenant][id]
	if !known {
		return nil, fault.New(fault.NotFound, "MEMORY_NOT_FOUND", "there is no memory %q", id)
	}
	memory := copyMemory(r.Memory)
	return &memory, nil
}

// Recall implements store.Memories.
func (m *Store) Recall(ctx context.Context, tenant string, q store.MemoryQuery) ([]store.Recalled, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var found []store.Recalled
	for _, r := range m.memories[tenant] {
		hits := 0
		for _, word := range q.Words {
			if _, has := slices.BinarySearch(r.words, word); has {
				hits++
			}
		}
		about := (q.EntityID == "" || r.EntityID == q.EntityID) && (q.Source == "" || r.Source == q.Source)
		if about && (len(q.Words) == 0 || hits >= max(1, q.MinHits)) {
			found = append(found, store.Recalled{Memory: copyMemory(r.Memory), Hits: hits})
		}
	}
	slices.SortFunc(found, func(a, b store.Recalled) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(b.UpdatedAt, a.UpdatedAt), cmp.Compare(a.ID, b.ID))
	})
	return found[:min(q.Limit, len(found))], nil
}

// ForgetMemory implements store.Memories.
func (m *Store) ForgetMemory(ctx context.Context, tenant, id string) (bool, error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	_, known := m.memories[tenant][id]
	delete(m.memories[tenant], id)
	return known, nil
}

// Entities implements store.Memories.
func (m *Store) Entities(ctx context.Context, tenant string, after store.EntityCount, limit int) ([]store.EntityCount, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	counts := map[store.EntityCount]int64{}
	for _, r := range m.memories[tenant] {
		counts[store.EntityCount{EntityID: r.EntityID, Source: r.Source}]++
	}
	var list []store.EntityCount
	for pair, n := range counts {
		pair.Count = n
		if after == (store.EntityCount{}) || comparePairs(pair, after) > 0 {
			list = append(list, pair)
		}
	}
	slices.SortFunc(list, comparePairs)
	return list[:min(limit, len(list))], nil
}

func comparePairs(a, b store.EntityCount) int {
	return cmp.Or(cmp.Compare(a.EntityID, b.EntityID), cmp.Compare(a.Source, b.Source))
}
