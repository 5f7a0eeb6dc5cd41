package server

import (
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

func memoryInvalid(x *reader, format string, args ...any) {
	x.refuse("MEMORY_INVALID", format, args...)
}

// readMemoryText gives TooLarge (MEMORY_TOO_LARGE).
func readMemoryText(x *reader, text string) string {
	x.atMost("MEMORY_TOO_LARGE", "the text", len(text), x.limits.MemoryBytes)
	return text
}

// memoryService implements statev1.MemoryServiceServer.
type memoryService struct {
	statev1.UnimplementedMemoryServiceServer
	store  store.Memories
	runner *runner
}

// AddMemory implements statev1.MemoryServiceServer.
func (s *memoryService) AddMemory(ctx context.Context, r *statev1.AddMemoryRequest) (*statev1.AddMemoryResponse, error) {
	x := s.runner.read(r)
	m := r.GetMemory()
	x.id("tenant", r.GetTenant())
	memory := session.Memory{
		ID: x.optionalID("memory_id", m.GetMemoryId()), EntityID: x.optionalID("entity_id", m.GetEntityId()),
		Source: x.optionalID("source", m.GetSource()),
		Text:   readMemoryText(x, m.GetText()), CreatedAt: x.now, UpdatedAt: x.now,
	}
	if memory.ID == "" {
		memory.ID = x.ids.memory()
	}
	if strings.TrimSpace(memory.Text) == "" || strings.ContainsRune(memory.Text, 0) {
		memoryInvalid(x, "the text is empty or has a zero character; give a fact to store")
	}
	memory.Metadata = x.textMetadata(m.GetMetadata())
	if x.err != nil {
		return nil, x.err
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

// GetMemory implements statev1.MemoryServiceServer.
func (s *memoryService) GetMemory(ctx context.Context, r *statev1.GetMemoryRequest) (*statev1.GetMemoryResponse, error) {
	x := s.runner.read(r)
	x.id("tenant", r.GetTenant())
	x.id("memory_id", r.GetMemoryId())
	if x.err != nil {
		return nil, x.err
	}
	found, err := s.store.Memory(ctx, r.GetTenant(), r.GetMemoryId())
	if err != nil {
		return nil, err
	}
	return &statev1.GetMemoryResponse{Memory: memoryOut(found)}, nil
}

// SearchMemories implements statev1.MemoryServiceServer.
func (s *memoryService) SearchMemories(ctx context.Context, r *statev1.SearchMemoriesRequest) (*statev1.SearchMemoriesResponse, error) {
	x := s.runner.read(r)
	q := readMemoryQuery(x, r)
	if x.err != nil {
		return nil, x.err
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
		if size += proto.Size(out); size > x.limits.PageBytes && i > 0 {
			break // the best matches came first
		}
		answer.Memories = append(answer.Memories, out)
	}
	return answer, nil
}

// readMemoryQuery reads the conditions. Invalid (ID_INVALID, LIMIT_INVALID, MEMORY_INVALID), TooLarge (MEMORY_TOO_LARGE).
func readMemoryQuery(x *reader, r *statev1.SearchMemoriesRequest) store.MemoryQuery {
	x.id("tenant", r.GetTenant())
	q := store.MemoryQuery{
		EntityID: x.optionalID("entity_id", r.GetEntityId()), Source: x.optionalID("source", r.GetSource()),
		Words: session.SearchWords(readMemoryText(x, r.GetQuery()), maxQueryWords),
	}
	if score := r.GetMinScore(); math.IsNaN(score) || score < 0 || score > 1 {
		memoryInvalid(x, "min_score is %v; give 0 to 1", score)
	}
	q.MinHits = minHits(r.GetMinScore(), len(q.Words))
	q.Limit = x.pageLimit(r.GetLimit())
	return q
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
	x := s.runner.read(r)
	x.id("tenant", r.GetTenant())
	x.id("memory_id", r.GetMemoryId())
	if x.err != nil {
		return nil, x.err
	}
	known, err := s.store.ForgetMemory(ctx, r.GetTenant(), r.GetMemoryId())
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, fault.New(fault.NotFound, "MEMORY_NOT_FOUND", "there is no memory %q", r.GetMemoryId())
	}
	return &statev1.DeleteMemoryResponse{}, nil
}

// ListEntities implements statev1.MemoryServiceServer.
func (s *memoryService) ListEntities(ctx context.Context, r *statev1.ListEntitiesRequest) (*statev1.ListEntitiesResponse, error) {
	x := s.runner.read(r)
	limit := x.pageLimit(r.GetLimit())
	x.id("tenant", r.GetTenant())
	after := store.EntityCount{
		EntityID: x.optionalID("after.entity_id", r.GetAfter().GetEntityId()), Source: x.optionalID("after.source", r.GetAfter().GetSource()),
	}
	if x.err != nil {
		return nil, x.err
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
func (s *memoryService) entities(
	ctx context.Context, tenant string, after store.EntityCount, behind bool, limit int,
) ([]store.EntityCount, error) {
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
