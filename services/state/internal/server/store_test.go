package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func putting(key, value string) *statev1.StoreWrite {
	return &statev1.StoreWrite{Key: key, Op: &statev1.StoreWrite_Put{Put: value}}
}

func adding(key string, delta int64) *statev1.StoreWrite {
	return &statev1.StoreWrite{Key: key, Op: &statev1.StoreWrite_Add{Add: delta}}
}

func deleting(key string) *statev1.StoreWrite {
	return &statev1.StoreWrite{Key: key, Op: &statev1.StoreWrite_Delete{Delete: true}}
}

// writeStore writes to the store of the session s.
func (b *bench) writeStore(writes ...*statev1.StoreWrite) error {
	_, err := b.sessions.WriteStore(b.Context(), &statev1.WriteStoreRequest{Tenant: "acme", SessionId: "s", Writes: writes})
	return err
}

// readStore returns the entries of the store of the session s as texts.
func (b *bench) readStore(r *statev1.ReadStoreRequest) (lines []string, more bool) {
	b.Helper()
	r.Tenant, r.SessionId = "acme", "s"
	got, err := b.sessions.ReadStore(b.Context(), r)
	b.must(err)
	for _, e := range got.GetEntries() {
		lines = append(lines, fmt.Sprintf("%s=%s %d", e.GetKey(), e.GetValue(), e.GetBytes()))
	}
	return lines, got.GetHasMore()
}

func (b *bench) wantStore(r *statev1.ReadStoreRequest, more bool, want ...string) {
	b.Helper()
	if got, hasMore := b.readStore(r); strings.Join(got, ", ") != strings.Join(want, ", ") || hasMore != more {
		b.Errorf("got %q, %v; want %q, %v", got, hasMore, want, more)
	}
}

func TestAStoreIsWrittenWithResultsAndByRequests(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.start("s")
		claim := s.execute()
		ref := refTo(claim)
		plan := said(eventv1.Role_ROLE_ASSISTANT, "p", "")
		plan.Parts = []*eventv1.Part{{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: "c1", ToolName: "t", Arguments: "{}"}}}}
		_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: ref, Step: 1, Plan: plan})
		b.must(err)
		record := func(writes ...*statev1.StoreWrite) error {
			_, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: ref, Step: 1, Result: &statev1.CallResult{
				Result: &eventv1.ToolResultPart{ToolCallId: "c1", Success: true, Result: "1"}, Store: writes,
			}})
			return err
		}
		b.must(b.writeStore(putting("word", `"x"`)))
		b.refuses(record(putting("a", "1"), adding("word", 1)), fault.Invalid, "STORE_NUMBER_INVALID")
		b.refuses(record(putting("a", "{")), fault.Invalid, "STORE_VALUE_INVALID")
		b.must(record(putting("a", `{"n":1}`), adding("n", -5), deleting("word")))
		b.must(record(adding("n", -5))) // a repetition
		b.must(b.writeStore(adding("n", 1)))
		b.wantStore(&statev1.ReadStoreRequest{}, false, `a={"n":1} 8`, "n=-4 3")
		b.wantStore(&statev1.ReadStoreRequest{Limit: 1, KeysOnly: true}, true, `a= 8`)
		b.wantStore(&statev1.ReadStoreRequest{Keys: []string{"n", "none"}}, false, "n=-4 3")
		b.wantStore(&statev1.ReadStoreRequest{Prefix: "n", After: "a"}, false, "n=-4 3")

		_, err = b.sessions.WriteStore(t.Context(), &statev1.WriteStoreRequest{
			Tenant: "acme", SessionId: "s", Writes: []*statev1.StoreWrite{deleting("a"), putting("secret", "1")}, Caller: mia(),
		})
		b.must(err)
		deleted, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s", Caller: mia()})
		b.must(err)
		if n := deleted.GetRemoved().GetStoreEntries(); n != 2 {
			t.Errorf("%d entries were removed, want 2", n)
		}
		b.expectAudited(`store.changed session:s done {"deleted":1,"put":1}`, `session.deleted session:s done {"messages":1,"runs":1,"sessions":1,"states":1,"store_entries":2}`)
	})
}

func TestTheLimitsOfAStoreAreExact(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.StoreBytes = 10 << 20 })
	b.announce()
	b.create("s")
	text := func(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }
	key := strings.Repeat("k", session.MaxStoreKey)
	keys := func(n int) (all []*statev1.StoreWrite) {
		for i := range n {
			all = append(all, putting(fmt.Sprint("k", i), "1"))
		}
		return all
	}
	values := func(n int) (all []*statev1.StoreWrite) {
		for i := range n {
			all = append(all, putting(fmt.Sprint(i), text(maxStoreValue-1)))
		}
		return all
	}
	b.must(b.writeStore(putting(key, text(maxStoreValue))))
	b.refuses(b.writeStore(putting(key+"k", "1")), fault.Invalid, "STORE_KEY_INVALID")
	b.refuses(b.writeStore(putting("k", text(maxStoreValue+1))), fault.TooLarge, "STORE_VALUE_TOO_LARGE")
	b.must(b.writeStore(keys(maxStoreKeys)...))
	b.refuses(b.writeStore(keys(maxStoreKeys+1)...), fault.Invalid, "STORE_WRITES_INVALID")
	b.must(b.writeStore(values(8)...))
	b.refuses(b.writeStore(append(values(8), putting("x", "1"))...), fault.TooLarge, "STORE_WRITES_TOO_LARGE")
	b.refuses(b.writeStore(values(9)[8]), fault.TooLarge, "STORE_FULL")
	b.must(b.writeStore(deleting("0"), values(9)[8]))
	page, more := b.readStore(&statev1.ReadStoreRequest{Limit: maxStoreKeys})
	if len(page) != 4 || !more {
		t.Errorf("got %d entries of a MiB, %v; want the 4 of a page, and more", len(page), more)
	}
	for _, bad := range []string{"", "a\x00", "a\tb", "\u0085"} {
		b.refuses(b.writeStore(putting(bad, "1")), fault.Invalid, "STORE_KEY_INVALID")
		_, err := b.sessions.ReadStore(t.Context(), &statev1.ReadStoreRequest{Tenant: "acme", SessionId: "s", Keys: []string{bad}})
		b.refuses(err, fault.Invalid, "STORE_KEY_INVALID")
	}
	for reason, write := range map[string][]*statev1.StoreWrite{
		"STORE_VALUE_INVALID":  {putting("k", "")},
		"STORE_WRITES_INVALID": {{Key: "k"}},
	} {
		b.refuses(b.writeStore(write...), fault.Invalid, reason)
	}
	b.refuses(b.writeStore(adding("k", 1), deleting("k")), fault.Invalid, "STORE_WRITES_INVALID")
	b.refuses(b.writeStore(&statev1.StoreWrite{Key: "k", Op: &statev1.StoreWrite_Delete{}}), fault.Invalid, "STORE_WRITES_INVALID")
	for _, r := range []*statev1.ReadStoreRequest{{Limit: maxStoreKeys + 1}, {Limit: -1}, {Keys: make([]string, maxStoreKeys+1)}} {
		r.Tenant, r.SessionId = "acme", "s"
		_, err := b.sessions.ReadStore(t.Context(), r)
		b.refuses(err, fault.Invalid, "LIMIT_INVALID")
	}
}
