package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestASessionIsFoundByEachOfItsProperties(t *testing.T) {
	t.Parallel()
	s := Session{AgentType: "a", Status: Paused, UserID: "u", OrganizationID: "o", Tags: []string{"x", "y", "x"}, Metadata: map[string]string{"k": "v"}}
	want := []Facet{AllSessions, AgentFacet("a"), MetadataFacet("k", "v"), OrganizationFacet("o"), ParentFacet(""), StatusFacet(Paused), TagFacet("x"), TagFacet("y"), UserFacet("u")}
	slices.Sort(want)
	if got := s.Facets(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNoTwoPropertiesShareAFacet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	facets := []Facet{
		UserFacet("a"), TagFacet("a"), AgentFacet("a"), ParentFacet("a"), OrganizationFacet("a"), MetadataFacet("a", "b=c"), MetadataFacet("a=b", "c"),
		TagFacet(long), TagFacet(long + "y"), UserFacet(long), TagFacet("a\x01b"), MetadataFacet("a", "b"),
	}
	seen := map[Facet]bool{}
	for _, f := range facets {
		if seen[f] || len(f) > 300 {
			t.Errorf("%q stands for two properties, or is too long", f)
		}
		seen[f] = true
	}
}

func TestTheDifferenceOfFacetsLeadsFromTheOldToTheNew(t *testing.T) {
	t.Parallel()
	some := rapid.Custom(func(t *rapid.T) *Session {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		s := &Session{AgentType: "a", Status: rapid.SampledFrom([]Status{Active, Paused}).Draw(t, "status"), Metadata: map[string]string{}}
		s.UserID = rapid.SampledFrom([]string{"", "u", "w"}).Draw(t, "user")
		s.Tags = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3).Draw(t, "tags")
		s.Metadata["k"] = fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "value"))
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := some.Draw(t, "before"), some.Draw(t, "after")
		var got, want []Facet
		if before != nil {
			got = before.Facets()
		}
		if after != nil {
			want = after.Facets()
		}
		lost, gained := DiffFacets(before, after)
		got = slices.DeleteFunc(got, func(f Facet) bool { return slices.Contains(lost, f) })
		got = append(got, gained...)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestATextIsFoundByItsWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                              nil,
		" - !":                          nil,
		"The cat, the CAT; and 2 dogs!": {"2", "and", "cat", "dogs", "the"},
		"Größe über Ελλάδα":             {"größe", "über", "ελλάδα"},
		strings.Repeat("x", 70) + " y":  {strings.Repeat("x", 64), "y"},
	} {
		if got := SearchWords(text, 100); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := SearchWords("d c b a", 2); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("got %q", got)
	}
}

func TestSelectiveFacetsRankFirst(t *testing.T) {
	t.Parallel()
	order := []Facet{
		UserFacet("u"), ParentFacet("p"), MetadataFacet("k", "v"), TagFacet(strings.Repeat("t", 300)), OrganizationFacet("o"), AgentFacet("a"), StatusFacet(Active), AllSessions,
	}
	for i := range order[1:] {
		if order[i].Rank() >= order[i+1].Rank() {
			t.Errorf("%s ranks %d, %s behind it %d", order[i], order[i].Rank(), order[i+1], order[i+1].Rank())
		}
	}
}
