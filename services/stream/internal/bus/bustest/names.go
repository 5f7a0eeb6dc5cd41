package bustest

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// hostile are ids that mean something in a subject, or that a careless encoding
// takes for one another.
var hostile = []string{
	"a.b", "a..b", ".", "..", "*", ">", "a.*", "a.>", "$JS.API", "$SYS.>",
	" ", "a b", " a", "a ", "a", "A", "=61", "=2e", "a=2eb", "a%2eb", "a_b", "a-b", "a=", "=", "==",
	"päivää", "日本語", "🙂", "e\u0301", "\u00e9", "\u202e", "a/b", `a\b`, `"`, "'", "`", "{}", "%s", "<>", "&", "|", "\u00a0",
	strings.Repeat("x", 256), strings.Repeat(".", 256), strings.Repeat("日", 85) + "x", strings.Repeat("x", 255),
}

func runNames(t *testing.T, log bus.Bus) {
	t.Run("EveryLegalIdNamesAStreamOfItsOwn", func(t *testing.T) {
		t.Parallel()
		const tenant = "names, one tenant"
		want := map[bus.Stream]*chunklog.Record{}
		for i, id := range hostile {
			s := bus.Stream{Tenant: tenant, Root: id, Session: id}
			want[s] = appendOne(t, log, s, chunk(int64(i+1)))
		}
		for s, r := range want {
			same(t, history(t, log, only(s), 0), []*chunklog.Record{r})
			same(t, history(t, log, whole(s), 0), []*chunklog.Record{r})
		}
	})
	t.Run("EveryLegalIdNamesASessionOfAFamily", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		tree := newSink()
		defer log.Follow(whole(s), tree)()
		var want []*chunklog.Record
		for i, id := range hostile {
			want = append(want, appendOne(t, log, child(s, id), chunk(int64(i+1))))
		}
		same(t, history(t, log, whole(s), 0), want)
		same(t, tree.wait(t, 0, len(want)), want)
		for i, id := range hostile {
			same(t, history(t, log, only(child(s, id)), 0), want[i:i+1])
		}
	})
	t.Run("TheLongestIdsFitTogether", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("é", 128)
		s := bus.Stream{Tenant: long, Root: long, Session: long}
		live := newSink()
		defer log.Follow(only(s), live)()
		r := chunk(1)
		r.Run = long
		want := []*chunklog.Record{appendOne(t, log, s, r)}
		same(t, live.wait(t, 0, 1), want)
		same(t, history(t, log, only(s), 0), want)
		if err := log.Void(t.Context(), s, []uint64{want[0].Sequence}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("ATenantsRecordsAreItsOwn", func(t *testing.T) {
		t.Parallel()
		pairs := []bus.Stream{
			{Tenant: "ab", Root: "c", Session: "d"}, {Tenant: "a", Root: "bc", Session: "d"},
			{Tenant: "a.b", Root: "c", Session: "d"}, {Tenant: "a", Root: "b.c", Session: "d"}, {Tenant: "a", Root: "b", Session: "c.d"},
		}
		for i, s := range pairs {
			appendOne(t, log, s, chunk(int64(i+1)))
		}
		for _, s := range pairs {
			if got := len(history(t, log, whole(s), 0)); got != 1 {
				t.Errorf("%+v: got %d records, want 1", s, got)
			}
		}
	})
}
