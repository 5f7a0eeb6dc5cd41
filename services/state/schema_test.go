package state_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state"
)

func TestTheSchemaOfADatabaseIsReadWithoutAChangeAndMigrated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new.db")
	fresh := map[string][]string{
		"sqlite":   {"HOLDFAST_STATE_STORE=sqlite", "HOLDFAST_STATE_SQLITE_PATH=" + path},
		"postgres": {"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=" + pgtest.URL(t)},
	}
	for name, environ := range fresh {
		former, err := os.ReadFile(filepath.Join("testdata", "third."+name+".sql"))
		must(t, err)
		for begin, environ := range map[string][]string{"new": environ, "former": formerly[name](t, string(former))} {
			var c state.Config
			must(t, config.Load(&c, environ))
			before, err := state.ReadSchema(t.Context(), c)
			if err != nil || before.Known < 20 || (before.Applied == 0) != (begin == "new") || before.Applied >= before.Known || len(before.Missing) != before.Known-before.Applied {
				t.Errorf("%s, %s: got %+v, %v; want some missing migrations", name, begin, before, err)
			}
			again, err := state.ReadSchema(t.Context(), c)
			if err != nil || !reflect.DeepEqual(again, before) {
				t.Errorf("%s, %s: a second look gives %+v, %v; want %+v", name, begin, again, err, before)
			}
			after, err := state.Migrate(t.Context(), c)
			if err != nil || after.Applied != before.Known || len(after.Missing) > 0 || after.Server == "" {
				t.Errorf("%s, %s: got %+v, %v; want all migrations", name, begin, after, err)
			}
			if after, err = state.Migrate(t.Context(), c); err != nil || after.Applied != before.Known {
				t.Errorf("%s, %s: a repetition gives %+v, %v", name, begin, after, err)
			}
		}
	}
}

func TestASchemaNeedsADatabaseThatAnswers(t *testing.T) {
	t.Parallel()
	for reason, environ := range map[string][]string{
		"CONFIG_INVALID":    {"HOLDFAST_STATE_STORE=memory"},
		"STORE_UNAVAILABLE": {"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=postgres://127.0.0.1:1/x"},
	} {
		var c state.Config
		must(t, config.Load(&c, environ))
		if _, err := state.ReadSchema(t.Context(), c); fault.ReasonOf(err) != reason {
			t.Errorf("%q: got %v, want %s", environ, err, reason)
		}
		if _, err := state.Migrate(t.Context(), c); fault.ReasonOf(err) != reason {
			t.Errorf("%q: got %v, want %s", environ, err, reason)
		}
	}
}
