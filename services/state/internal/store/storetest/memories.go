package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var memories = []test{
	{"a memory is written over and keeps its birthday", func(b *bench) {
		m := session.Memory{ID: "m1", Text: "A red house", CreatedAt: 5, UpdatedAt: 5}
		b.remember("acme", m, true)
		m.Text, m.EntityID, m.Source, m.Metadata, m.CreatedAt, m.UpdatedAt = "a blue boat", "e", "s", map[string]string{"k": "v"}, 9, 9
		b.remember("acme", m, false)
		got, err := b.Store.Memory(b.Context(), "acme", "m1")
		b.must(err)
		m.CreatedAt = 5
		same(b, "memory", *got, m)
		for word, want := range map[string]int{"red": 0, "house": 0, "blue": 1, "boat": 1} {
			found, err := b.Store.Recall(b.Context(), "acme", store.MemoryQuery{Words: []string{word}, Limit: 9})
			if err != nil || len(found) != want {
				b.Errorf("%s: got %d memories, %v; want %d", word, len(found), err, want)
			}
		}
	}},
	{"a memory that is forgotten is gone", func(b *bench) {
		b.remember("acme", session.Memory{ID: "m1", EntityID: "e", Text: "red house"}, true)
		for _, want := range []bool{true, false} {
			had, err := b.Store.ForgetMemory(b.Context(), "acme", "m1")
			b.must(err)
			same(b, "forgotten", had, want)
		}
		_, err := b.Store.Memory(b.Context(), "acme", "m1")
		b.refuses(err, fault.NotFound, "MEMORY_NOT_FOUND")
		found, err := b.Store.Recall(b.Context(), "acme", store.MemoryQuery{Words: []string{"red"}, Limit: 9})
		b.must(err)
		pairs, err := b.Store.Entities(b.Context(), "acme", store.EntityCount{}, 9)
		b.must(err)
		if len(found) != 0 || len(pairs) != 0 {
			b.Errorf("got %+v and %+v of a memory that is gone", found, pairs)
		}
	}},
	{"memories are recalled by their words like from a plain list", func(b *bench) {
		all := b.facts()
		words := []string{"red", "blue", "house", "größe", "日本語", "none", "the"}
		r := rand.New(rand.NewPCG(5, 6))
		for i := range 60 {
			q := store.MemoryQuery{Limit: []int{1, 5, 100}[i%3], MinHits: r.IntN(3)}
			for _, w := range words {
				if r.IntN(3) == 0 {
					q.Words = append(q.Words, w)
				}
			}
			if r.IntN(3) == 0 {
				q.EntityID = fmt.Sprint("e", r.IntN(4))
			}
			if r.IntN(3) == 0 {
				q.Source = fmt.Sprint("s", r.IntN(3))
			}
			want := recall(all, q)
			got, err := b.Store.Recall(b.Context(), "acme", q)
			b.must(err)
			same(b, fmt.Sprintf("%+v", q), got, want)
		}
	}},
	{"a long text is found by its first thousand words", func(b *bench) {
		var text strings.Builder
		for i := range 1200 {
			fmt.Fprintf(&text, "w%d ", i)
		}
		m := session.Memory{ID: "m1", Text: text.String()}
		b.remember("acme", m, true)
		for word, want := range map[string]int{"w0": 1, "w999": 1, "w1000": 0} {
			found, err := b.Store.Recall(b.Context(), "acme", store.MemoryQuery{Words: []string{word}, Limit: 9})
			if err != nil || len(found) != want {
				b.Errorf("%s: got %d memories, %v; want %d", word, len(found), err, want)
			}
		}
	}},
	{"entities are listed with their counts in pages", func(b *bench) {
		all := b.facts()
		var want []store.EntityCount
		for _, m := range all {
			pair := store.EntityCount{EntityID: m.EntityID, Source: m.Source}
			i, found := slices.BinarySearchFunc(want, pair, comparePairs)
			if !found {
				want = slices.Insert(want, i, pair)
			}
			want[i].Count++
		}
		for _, limit := range []int{1, 4, 100} {
			var got []store.EntityCount
			for after := (store.EntityCount{}); ; after = got[len(got)-1] {
				page, err := b.Store.Entities(b.Context(), "acme", after, limit)
				b.must(err)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			same(b, fmt.Sprint("pairs in pages of ", limit), got, want)
		}
	}},
	{"memories that are written at once are added once each", func(b *bench) {
		added := make([]bool, crowd)
		together(func(i int) {
			var err error
			m := session.Memory{ID: fmt.Sprint("m", i%2), Text: fmt.Sprintf("red %d", i), CreatedAt: 1, UpdatedAt: 1}
			if added[i], err = b.Store.Remember(b.Context(), "acme", m); err != nil {
				b.Errorf("remember %d: %v", i, err)
			}
		})
		n := 0
		for _, a := range added {
			if a {
				n++
			}
		}
		found, err := b.Store.Recall(b.Context(), "acme", store.MemoryQuery{Words: []string{"red"}, Limit: 99})
		b.must(err)
		if n != 2 || len(found) != 2 {
			b.Errorf("%d were added, %d are found; want 2", n, len(found))
		}
	}},
}

func comparePairs(a, b store.EntityCount) int {
	return cmp.Or(cmp.Compare(a.EntityID, b.EntityID), cmp.Compare(a.Source, b.Source))
}

// remember writes a memory, and fails the test unless it is new as expected.
func (b *bench) remember(tenant string, m session.Memory, added bool) {
	b.Helper()
	got, err := b.Store.Remember(b.Context(), tenant, m)
	b.must(err)
	same(b, "added", got, added)
}

// facts writes memories of few words, entities and sources, some of them twice.
func (b *bench) facts() []session.Memory {
	b.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	texts := []string{"Red", "blue", "HOUSE,", "Größe", "日本語", "the", "the-the"}
	all := map[string]session.Memory{}
	for i := range 60 {
		id := fmt.Sprint(hostile[i%20], i%45)
		old, known := all[id]
		m := session.Memory{ID: id, CreatedAt: session.Millis(i), UpdatedAt: session.Millis(r.IntN(20)), Text: "x"}
		for range r.IntN(6) {
			m.Text += " " + texts[r.IntN(len(texts))]
		}
		if n := r.IntN(4); n > 0 {
			m.EntityID, m.Source = fmt.Sprint("e", n), fmt.Sprint("s", r.IntN(3))
		}
		b.remember("acme", m, !known)
		if known {
			m.CreatedAt = old.CreatedAt
		}
		all[id] = m
		b.remember("other", session.Memory{ID: id, Text: "red the house", EntityID: "e1"}, !known)
	}
	var list []session.Memory
	for _, m := range all {
		list = append(list, m)
	}
	return list
}

// recall is the contract of Recall, said once more.
func recall(all []session.Memory, q store.MemoryQuery) []store.Recalled {
	var found []store.Recalled
	for _, m := range all {
		if q.EntityID != "" && m.EntityID != q.EntityID || q.Source != "" && m.Source != q.Source {
			continue
		}
		hits := 0
		for _, w := range session.Words(m.Text, session.WordsOf) {
			if slices.Contains(q.Words, w) {
				hits++
			}
		}
		if len(q.Words) > 0 && hits < max(1, q.MinHits) {
			continue
		}
		found = append(found, store.Recalled{Memory: m, Hits: hits})
	}
	slices.SortFunc(found, func(a, b store.Recalled) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(b.UpdatedAt, a.UpdatedAt), strings.Compare(a.ID, b.ID))
	})
	return found[:min(q.Limit, len(found))]
}
