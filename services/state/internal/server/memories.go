package server

import (
	"cmp"
	"context"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxQueryWords bounds the words of a query. Further ones are ignored.
const maxQueryWords = 64

func memoryInvalid(format string, args ...any) error {
	return invalid("MEMORY_INVALID", format, args...)
}

func memoryNotFound(id string) error {
	return fault.New(fault.NotFound, "MEMORY_NOT_FOUND", "there is no memory %q", id)
}

func (l Limits) memoryTooLarge(size int) error {
	return fault.New(fault.TooLarge, "MEMORY_TOO_LARGE", "the text has %d bytes; the limit is %d", size, l.MemoryBytes).WithSizes(int64(size), int64(l.MemoryBytes))
}

// memoryService implements statev1.MemoryServiceServer.
type memoryService struct {
	statev1.UnimplementedMemoryServiceServer
	store  store.Memories
	limits Limits
	clock  clock
	ids    ids
}

// AddMemory implements statev1.MemoryServiceServer.
func (s *memoryService) AddMemory(ctx context.Context, r *statev1.AddMemoryRequest) (*statev1.AddMemoryResponse, error) {
	memory, err := s.newMemory(r)
	if err != nil {
		return nil, err
	}
	added, err := s.store.Remember(ctx, r.GetTenant(), memory)
	if err != nil {
		return nil, err
	}
	if !added {
		stored, err := s.store.Memory(ctx, r.GetTenant(), memory.ID)
		if err == nil {
			memory.CreatedAt = stored.CreatedAt
		} else if fault.KindOf(err) != fault.NotFound { // deleted meanwhile
			return nil, err
		}
	}
	return &statev1.AddMemoryResponse{Memory: memoryOut(&memory), Added: added}, nil
}

// newMemory checks and converts the request.
func (s *memoryService) newMemory(r *statev1.AddMemoryRequest) (session.Memory, error) {
	limits, m := s.limits, r.GetMemory()
	if err := cmp.Or(checkID("tenant", r.GetTenant()),
		checkOptionalID("memory_id", m.GetMemoryId()),
		checkOptionalID("entity_id", m.GetEntityId()),
		checkOptionalID("source", m.GetSource())); err != nil {
		return session.Memory{}, err
	}
	if size := len(m.GetText()); size > limits.MemoryBytes {
		return session.Memory{}, limits.memoryTooLarge(size)
	}
	if strings.TrimSpace(m.GetText()) == "" || strings.ContainsRune(m.GetText(), 0) {
		return session.Memory{}, memoryInvalid("the text is empty or has a zero character; give a fact to store")
	}
	if err := limits.checkTextMetadata(m.GetMetadata()); err != nil {
		return session.Memory{}, err
	}
	now := s.clock.millis()
	memory := session.Memory{
		ID: m.GetMemoryId(), EntityID: m.GetEntityId(), Source: m.GetSource(), Text: m.GetText(), Metadata: m.GetMetadata(),
		CreatedAt: now, UpdatedAt: now,
	}
	if memory.ID == "" {
		memory.ID = s.ids.memory()
	}
	return memory, nil
}

func checkMemory(tenant, id string) error {
	return cmp.Or(checkID("tenant", tenant), checkID("memory_id", id))
}

// GetMemory implements statev1.MemoryServiceServer.
func (s *memoryService) GetMemory(ctx context.Context, r *statev1.GetMemoryRequest) (*statev1.GetMemoryResponse, error) {
	if err := checkMemory(r.GetTenant(), r.GetMemoryId()); err != nil {
		return nil, err
	}
	found, err := s.store.Memory(ctx, r.GetTenant(), r.GetMemoryId())
	if err != nil {
		return nil, err
	}
	return &statev1.GetMemoryResponse{Memory: memoryOut(found)}, nil
}

// SearchMemories implements statev1.MemoryServiceServer.
func (s *memoryService) SearchMemories(ctx context.Context, r *statev1.SearchMemoriesRequest) (*statev1.SearchMemoriesResponse, error) {
	q, err := s.limits.memoryQuery(r)
	if err != nil {
		return nil, err
	}
	answer, size := &statev1.SearchMemoriesResponse{}, 0
	if len(q.Words) == 0 && strings.TrimSpace(r.GetQuery()) != "" {
		return answer, nil // a query of punctuation only matches nothing
	}
	found, err := s.store.Recall(ctx, r.GetTenant(), q)
	if err != nil {
		return nil, err
	}
	for i := range found {
		score := 1.0
		if len(q.Words) > 0 {
			score = float64(found[i].Hits) / float64(len(q.Words))
		}
		out := &statev1.ScoredMemory{Memory: memoryOut(&found[i].Memory), Score: score}
		if size += proto.Size(out); size > s.limits.PageBytes && i > 0 {
			break // the best matches came first
		}
		answer.Memories = append(answer.Memories, out)
	}
	return answer, nil
}

// memoryQuery gives Invalid (ID_INVALID, LIMIT_INVALID, MEMORY_INVALID) and
// TooLarge (MEMORY_TOO_LARGE).
func (l Limits) memoryQuery(r *statev1.SearchMemoriesRequest) (store.MemoryQuery, error) {
	if err := cmp.Or(checkID("tenant", r.GetTenant()),
		checkOptionalID("entity_id", r.GetEntityId()),
		checkOptionalID("source", r.GetSource())); err != nil {
		return store.MemoryQuery{}, err
	}
	if size := len(r.GetQuery()); size > l.MemoryBytes {
		return store.MemoryQuery{}, l.memoryTooLarge(size)
	}
	if score := r.GetMinScore(); math.IsNaN(score) || score < 0 || score > 1 {
		return store.MemoryQuery{}, memoryInvalid("min_score is %v; give 0 to 1", score)
	}
	limit, err := pageLimit(r.GetLimit())
	words := session.SearchWords(r.GetQuery(), maxQueryWords)
	return store.MemoryQuery{
		Words: words, EntityID: r.GetEntityId(), Source: r.GetSource(), MinHits: minHits(r.GetMinScore(), len(words)), Limit: limit,
	}, err
}

// minHits returns the lowest number of matching words with at least the score.
func minHits(score float64, words int) int {
	for hits := range words {
		if float64(hits)/float64(words) >= score {
			return hits
		}
	}
	return words
}

// DeleteMemory implements statev1.MemoryServiceServer.
func (s *memoryService) DeleteMemory(ctx context.Context, r *statev1.DeleteMemoryRequest) (*statev1.DeleteMemoryResponse, error) {
	if err := checkMemory(r.GetTenant(), r.GetMemoryId()); err != nil {
		return nil, err
	}
	known, err := s.store.ForgetMemory(ctx, r.GetTenant(), r.GetMemoryId())
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, memoryNotFound(r.GetMemoryId())
	}
	return &statev1.DeleteMemoryResponse{}, nil
}

// ListEntities implements statev1.MemoryServiceServer.
func (s *memoryService) ListEntities(ctx context.Context, r *statev1.ListEntitiesRequest) (*statev1.ListEntitiesResponse, error) {
	limit, err := pageLimit(r.GetLimit())
	after := store.EntityCount{EntityID: r.GetAfter().GetEntityId(), Source: r.GetAfter().GetSource()}
	if err := cmp.Or(err, checkID("tenant", r.GetTenant()),
		checkOptionalID("after.entity_id", after.EntityID),
		checkOptionalID("after.source", after.Source)); err != nil {
		return nil, err
	}
	rows, err := s.entities(ctx, r.GetTenant(), after, r.GetAfter() != nil, limit+1)
	if err != nil {
		return nil, err
	}
	page, more := splitPage(rows, limit)
	answer := &statev1.ListEntitiesResponse{HasMore: more}
	for _, e := range page {
		answer.Entities = append(answer.Entities, &statev1.Entity{EntityId: e.EntityID, Source: e.Source, Count: e.Count})
	}
	return answer, nil
}

// entities reads the pairs after a pair, if behind is set. The store takes an empty pair for
// none, so entities skips it itself.
func (s *memoryService) entities(ctx context.Context, tenant string, after store.EntityCount, behind bool, limit int) ([]store.EntityCount, error) {
	nameless := store.EntityCount{}
	if !behind || after != nameless {
		return s.store.Entities(ctx, tenant, after, limit)
	}
	rows, err := s.store.Entities(ctx, tenant, nameless, limit+1)
	if len(rows) > 0 && rows[0].EntityID == "" && rows[0].Source == "" {
		rows = rows[1:]
	}
	return rows[:min(limit, len(rows))], err
}
