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

var memories = []suiteCase{
	{"an overwritten memory keeps its creation time", func(h *harness) {
		m := session.Memory{ID: "m1", Text: "A red house", CreatedAt: 5, UpdatedAt: 5}
		h.remember("acme", m, true)
		m.Text, m.EntityID, m.Source, m.Metadata, m.CreatedAt, m.UpdatedAt = "a blue boat", "e", "s", map[string]string{"k": "v"}, 9, 9
		h.remember("acme", m, false)
		got, err := h.Store.Memory(h.Context(), "acme", "m1")
		h.must(err)
		m.CreatedAt = 5
		same(h, "memory", *got, m)
		for word, want := range map[string]int{"red": 0, "house": 0, "blue": 1, "boat": 1} {
			found, err := h.Store.Recall(h.Context(), "acme", store.MemoryQuery{Words: []string{word}, Limit: 9})
			if err != nil || len(found) != want {
				h.Errorf("%s: got %d memories, %v; want %d", word, len(found), err, want)
			}
		}
	}},
	{"a forgotten memory is deleted", func(h *harness) {
		h.remember("acme", session.Memory{ID: "m1", EntityID: "e", Text: "red house"}, true)
		for _, want := range []bool{true, false} {
			had, err := h.Store.ForgetMemory(h.Context(), "acme", "m1")
			h.must(err)
			same(h, "forgotten", had, want)
		}
		_, err := h.Store.Memory(h.Context(), "acme", "m1")
		h.refuses(err, fault.NotFound, "MEMORY_NOT_FOUND")
		found, err := h.Store.Recall(h.Context(), "acme", store.MemoryQuery{Words: []string{"red"}, Limit: 9})
		h.must(err)
		pairs, err := h.Store.Entities(h.Context(), "acme", store.EntityCount{}, 9)
		h.must(err)
		if len(found) != 0 || len(pairs) != 0 {
			h.Errorf("got %+v and %+v of a deleted memory", found, pairs)
		}
	}},
	{"recall matches a reference list", func(h *harness) {
		all := h.populateMemories()
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
			want := recallFrom(all, q)
			got, err := h.Store.Recall(h.Context(), "acme", q)
			h.must(err)
			same(h, fmt.Sprintf("%+v", q), got, want)
		}
	}},
	{"a long text is indexed by its first thousand words", func(h *harness) {
		var text strings.Builder
		for i := range 1200 {
			fmt.Fprintf(&text, "w%d ", i)
		}
		m := session.Memory{ID: "m1", Text: text.String()}
		h.remember("acme", m, true)
		for word, want := range map[string]int{"w0": 1, "w999": 1, "w1000": 0} {
			found, err := h.Store.Recall(h.Context(), "acme", store.MemoryQuery{Words: []string{word}, Limit: 9})
			if err != nil || len(found) != want {
				h.Errorf("%s: got %d memories, %v; want %d", word, len(found), err, want)
			}
		}
	}},
	{"entities are listed with their counts in pages", func(h *harness) {
		all := h.populateMemories()
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
				page, err := h.Store.Entities(h.Context(), "acme", after, limit)
				h.must(err)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			same(h, fmt.Sprint("pairs in pages of ", limit), got, want)
		}
	}},
	{"concurrent writes add each memory once", func(h *harness) {
		added := make([]bool, parallelism)
		concurrently(func(i int) {
			var err error
			m := session.Memory{ID: fmt.Sprint("m", i%2), Text: fmt.Sprintf("red %d", i), CreatedAt: 1, UpdatedAt: 1}
			if added[i], err = h.Store.Remember(h.Context(), "acme", m); err != nil {
				h.Errorf("remember %d: %v", i, err)
			}
		})
		n := 0
		for _, a := range added {
			if a {
				n++
			}
		}
		found, err := h.Store.Recall(h.Context(), "acme", store.MemoryQuery{Words: []string{"red"}, Limit: 99})
		h.must(err)
		if n != 2 || len(found) != 2 {
			h.Errorf("%d were added, %d are found; want 2", n, len(found))
		}
	}},
}

func comparePairs(a, b store.EntityCount) int {
	return cmp.Or(cmp.Compare(a.EntityID, b.EntityID), cmp.Compare(a.Source, b.Source))
}

// remember writes a memory, and fails the test unless added says whether it is new.
func (h *harness) remember(tenant string, m session.Memory, added bool) {
	h.Helper()
	got, err := h.Store.Remember(h.Context(), tenant, m)
	h.must(err)
	same(h, "added", got, added)
}

// populateMemories writes memories of few words, entities and sources, and overwrites some.
func (h *harness) populateMemories() []session.Memory {
	h.Helper()
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
		h.remember("acme", m, !known)
		if known {
			m.CreatedAt = old.CreatedAt
		}
		all[id] = m
		h.remember("other", session.Memory{ID: id, Text: "red the house", EntityID: "e1"}, !known)
	}
	var list []session.Memory
	for _, m := range all {
		list = append(list, m)
	}
	return list
}

// recallFrom is the reference for Recall.
func recallFrom(all []session.Memory, q store.MemoryQuery) []store.Recalled {
	var found []store.Recalled
	for _, m := range all {
		if q.EntityID != "" && m.EntityID != q.EntityID || q.Source != "" && m.Source != q.Source {
			continue
		}
		hits := 0
		for _, w := range session.SearchWords(m.Text, session.MaxSearchWords) {
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
