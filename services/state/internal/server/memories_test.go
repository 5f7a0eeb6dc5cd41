package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func (b *bench) remember(id, entity, source, text string) *statev1.AddMemoryResponse {
	b.Helper()
	got, err := b.memories.AddMemory(b.Context(), &statev1.AddMemoryRequest{Tenant: "acme", Memory: &statev1.Memory{
		MemoryId: id, EntityId: entity, Source: source, Text: text, Metadata: map[string]string{"k": "v"}}})
	b.must(err)
	return got
}

func (b *bench) search(change func(*statev1.SearchMemoriesRequest)) (found []string) {
	b.Helper()
	r := &statev1.SearchMemoriesRequest{Tenant: "acme"}
	change(r)
	got, err := b.memories.SearchMemories(b.Context(), r)
	b.must(err)
	for _, m := range got.GetMemories() {
		found = append(found, fmt.Sprintf("%s %.2f", m.GetMemory().GetMemoryId(), m.GetScore()))
	}
	return found
}

func TestAMemoryIsStoredAndOverwritten(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		made := b.remember("", "ann", "chat", "Ann likes tea.")
		id := made.GetMemory().GetMemoryId()
		if !made.GetAdded() || id == "" || made.GetMemory().GetCreatedAt() == 0 || made.GetMemory().GetMetadata()["k"] != "v" {
			t.Errorf("got %v", made)
		}
		b.advance(time.Hour)
		again := b.remember(id, "ann", "mail", "Ann likes coffee.")
		if again.GetAdded() || again.GetMemory().GetCreatedAt() != made.GetMemory().GetCreatedAt() || again.GetMemory().GetUpdatedAt() <= made.GetMemory().GetUpdatedAt() {
			t.Errorf("got %v, want it over the first", again)
		}
		got, err := b.memories.GetMemory(t.Context(), &statev1.GetMemoryRequest{Tenant: "acme", MemoryId: id})
		if err != nil || got.GetMemory().GetText() != "Ann likes coffee." || got.GetMemory().GetSource() != "mail" {
			t.Errorf("got %v, %v", got, err)
		}
		if found := b.search(func(r *statev1.SearchMemoriesRequest) { r.Query = "tea" }); found != nil {
			t.Errorf("got %v, want the old words forgotten", found)
		}
		_, err = b.memories.DeleteMemory(t.Context(), &statev1.DeleteMemoryRequest{Tenant: "acme", MemoryId: id})
		b.must(err)
		_, err = b.memories.GetMemory(t.Context(), &statev1.GetMemoryRequest{Tenant: "acme", MemoryId: id})
		b.refuses(err, fault.NotFound, "MEMORY_NOT_FOUND")
	})
}

func TestMemoriesAreFoundByTheirWords(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.remember("m1", "ann", "chat", "likes green tea and long walks")
		b.advance(time.Second)
		b.remember("m2", "bob", "chat", "GREEN eyes")
		b.advance(time.Second)
		b.remember("m3", "ann", "mail", "drives a car")
		for name, c := range map[string]struct {
			change func(*statev1.SearchMemoriesRequest)
			want   []string
		}{
			"no query":     {func(*statev1.SearchMemoriesRequest) {}, []string{"m3 1.00", "m2 1.00", "m1 1.00"}},
			"limit":        {func(r *statev1.SearchMemoriesRequest) { r.Limit = 1 }, []string{"m3 1.00"}},
			"entity":       {func(r *statev1.SearchMemoriesRequest) { r.EntityId = "ann" }, []string{"m3 1.00", "m1 1.00"}},
			"source":       {func(r *statev1.SearchMemoriesRequest) { r.Source = "chat" }, []string{"m2 1.00", "m1 1.00"}},
			"share":        {func(r *statev1.SearchMemoriesRequest) { r.Query = "Green tea, please!" }, []string{"m1 0.67", "m2 0.33"}},
			"least":        {func(r *statev1.SearchMemoriesRequest) { r.Query, r.MinScore = "green tea please", 2.0/3 }, []string{"m1 0.67"}},
			"all of them":  {func(r *statev1.SearchMemoriesRequest) { r.Query, r.MinScore = "green tea please", 1 }, nil},
			"no words":     {func(r *statev1.SearchMemoriesRequest) { r.Query = "?!" }, nil},
			"other entity": {func(r *statev1.SearchMemoriesRequest) { r.Query, r.EntityId = "tea", "bob" }, nil},
		} {
			if got := b.search(c.change); !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
		}
	})
}

func TestTheLeastHitsReachTheScoreExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		score float64
		words int
		want  int
	}{{0, 10, 0}, {0.7, 10, 7}, {0.3, 10, 3}, {0.1, 10, 1}, {1, 3, 3}, {2.0 / 3, 3, 2}, {0.5, 3, 2}, {0.5, 0, 0}} {
		if got := minHits(c.score, c.words); got != c.want {
			t.Errorf("%v of %d words: got %d, want %d", c.score, c.words, got, c.want)
		}
	}
}

func TestEntitiesAreListedPageByPage(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.remember("m1", "", "", "x")
		b.remember("m2", "ann", "chat", "x")
		b.remember("m3", "ann", "chat", "y")
		b.remember("m4", "ann", "mail", "x")
		b.remember("m5", "bob", "", "x")
		var got []string
		var after *statev1.Entity
		for more := true; more; {
			page, err := b.memories.ListEntities(t.Context(), &statev1.ListEntitiesRequest{Tenant: "acme", After: after, Limit: 1})
			b.must(err)
			for _, e := range page.GetEntities() {
				got, after = append(got, fmt.Sprint(e.GetEntityId(), "/", e.GetSource(), "/", e.GetCount())), e
			}
			more = page.GetHasMore()
		}
		if want := []string{"//1", "ann/chat/2", "ann/mail/1", "bob//1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
