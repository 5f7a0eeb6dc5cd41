package quota

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const example = `
tenant: {startsPerSecond: 0.5, inFlight: 10, queued: 100, bytes: 1000}
user: {inFlight: 2}
tenants:
  acme:
    tenant: {inFlight: 20, startsPerSecond: 3, burst: 7}
    user: {queued: 5}
    users:
      root: {inFlight: 0}
`

func TestAnOverrideInheritsWhatItOmits(t *testing.T) {
	t.Parallel()
	table, err := parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tenant, user string
		want         [2]Limits
	}{
		{"beta", "u", [2]Limits{{StartsPerSecond: 0.5, Burst: 1, InFlight: 10, Queued: 100, Bytes: 1000}, {InFlight: 2}}},
		{"beta", "", [2]Limits{{StartsPerSecond: 0.5, Burst: 1, InFlight: 10, Queued: 100, Bytes: 1000}, {}}},
		{"acme", "u", [2]Limits{{StartsPerSecond: 3, Burst: 7, InFlight: 20, Queued: 100, Bytes: 1000}, {InFlight: 2, Queued: 5}}},
		{"acme", "root", [2]Limits{{StartsPerSecond: 3, Burst: 7, InFlight: 20, Queued: 100, Bytes: 1000}, {Queued: 5}}},
	} {
		var got [2]Limits
		if got[0], got[1] = table.Of(c.tenant, c.user); got != c.want {
			t.Errorf("%s of %s: got %+v, want %+v", c.user, c.tenant, got, c.want)
		}
	}
	want := &store.Caps{Tenant: 10, User: 2, Tenants: map[string]store.TenantCaps{"acme": {Tenant: 20, User: 2, Users: map[string]int64{"root": 0}}}}
	if got := table.caps(); !reflect.DeepEqual(got, want) {
		t.Errorf("got the caps %+v, want %+v", got, want)
	}
	if of, user := want.Of("acme", "root"); of != 20 || user != 0 {
		t.Errorf("got %d, %d", of, user)
	}
}

func TestAFileWithoutCapsHasNone(t *testing.T) {
	t.Parallel()
	table, err := parse([]byte("tenant: {queued: 1}\ntenants: {acme: {}}\n"))
	if err != nil || table.caps() != nil {
		t.Errorf("got %+v, %v; want no caps", table.caps(), err)
	}
}

func TestAWrongFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a list":             "- tenant: acme",
		"an unknown field":   "tenant: {inflight: 3}",
		"bytes of a user":    "user: {bytes: 3}",
		"a negative limit":   "tenant: {queued: -1}",
		"a negative rate":    "tenant: {startsPerSecond: -1}",
		"no number":          "tenant: {startsPerSecond: .nan}",
		"no burst":           "tenant: {startsPerSecond: 2, burst: 0}",
		"a part of a run":    "tenant: {inFlight: 1.5}",
		"deep in a tenant":   "tenants: {a: {users: {u: {queued: -3}}}}",
		"a tenant of a user": "tenants: {a: {users: {u: {tenant: {}}}}}",
	} {
		if _, err := parse([]byte(text)); fault.ReasonOf(err) != "QUOTAS_INVALID" {
			t.Errorf("%s: got %v, want QUOTAS_INVALID", name, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "missing")); fault.ReasonOf(err) != "QUOTAS_INVALID" {
		t.Errorf("a missing file: got %v", err)
	}
	if none, err := Read(""); err != nil || none.Table() != nil || none.Caps() != nil {
		t.Errorf("no file: got %v, %v", none, err)
	}
}

func TestAChangedFileIsTakenOverAndAnInvalidOneIsNot(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "quotas.yaml")
	write(t, name, "tenant: {queued: 1}")
	f, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	queued := func() int64 {
		of, _ := f.Table().Of("acme", "")
		return of.Queued
	}
	if changed, err := f.reload(); changed || err != nil {
		t.Errorf("an unchanged file: got %v, %v", changed, err)
	}
	write(t, name, "tenant: {queued: 2, inFlight: 1}")
	if changed, err := f.reload(); !changed || err != nil || queued() != 2 || f.Caps() == nil {
		t.Errorf("a changed file: got %v, %v, %d", changed, err, queued())
	}
	write(t, name, "tenant: {queued: x}")
	if _, err := f.reload(); err == nil || queued() != 2 || !strings.Contains(err.Error(), "HOLDFAST_STATE_QUOTAS") {
		t.Errorf("an invalid file: got %v, %d", err, queued())
	}
}

func TestABucketFillsWithTime(t *testing.T) {
	t.Parallel()
	starts, now := NewStarts(), time.Unix(1000, 0)
	of, l := Owner{Tenant: "acme"}, Limits{StartsPerSecond: 2, Burst: 3}
	for range 3 {
		if wait := starts.Take(of, l, now); wait != 0 {
			t.Fatalf("got %v within the burst", wait)
		}
	}
	if wait := starts.Take(of, l, now); wait != 500*time.Millisecond {
		t.Errorf("got %v, want half a second", wait)
	}
	now = now.Add(500 * time.Millisecond)
	if wait := starts.Take(of, l, now); wait != 0 {
		t.Errorf("got %v after the wait", wait)
	}
	if wait := starts.Take(of, l, now.Add(-time.Hour)); wait == 0 {
		t.Error("a clock that goes back filled the bucket")
	}
	starts.GiveBack(of)
	if wait := starts.Take(of, l, now); wait != 0 {
		t.Errorf("got %v for a token that was given back", wait)
	}
	now = now.Add(time.Hour)
	for range 3 {
		starts.Take(of, l, now)
	}
	if wait := starts.Take(of, l, now); wait == 0 {
		t.Error("the bucket holds more than its burst")
	}
	if wait := starts.Take(Owner{Tenant: "beta"}, l, now); wait != 0 {
		t.Errorf("another tenant waits %v", wait)
	}
}

func TestASumIsRepeatedAfterAWhile(t *testing.T) {
	t.Parallel()
	now, sums, failing := time.Unix(1000, 0), 0, false
	b := NewBytes(func(context.Context, string) (int64, error) {
		sums++
		now = now.Add(time.Second)
		if failing {
			return 0, errors.New("the database is away")
		}
		return int64(100 * sums), nil
	}, func() time.Time { return now })
	want := func(want int64) {
		t.Helper()
		if got, err := b.Used(t.Context(), "acme"); err != nil || got != want {
			t.Errorf("got %d, %v; want %d", got, err, want)
		}
	}
	want(100)
	b.Add("acme", 7)
	now = now.Add(bytesRest*time.Second - 1)
	want(107)
	now = now.Add(1)
	want(200)
	now, failing = now.Add(time.Hour), true
	if _, err := b.Used(t.Context(), "acme"); err == nil {
		t.Error("got no error of a failed sum")
	}
}
