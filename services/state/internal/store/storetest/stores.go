package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var privateStores = []suiteCase{
	{"a recorded result writes to the store, once, and no refused one does", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 1, "plan", "c1", "c2"))
		for _, want := range []bool{false, true} {
			repeated, err := h.tryStore(ref, 1, "c1", put("a", `{"n":1}`), add("n", 5))
			h.must(err)
			same(h, "repeated", repeated, want)
		}
		same(h, "store", h.storeOf(home), map[string]string{"a": `{"n":1}`, "n": "5"})
		same(h, "bytes", h.snapshot(home).Session.StoreBytes, int64(1+7+1+1))
		stale := ref
		stale.Epoch--
		_, err := h.tryStore(stale, 1, "c2", put("a", "2"))
		h.refuses(err, fault.Stale, "EPOCH_STALE")
		_, err = h.tryStore(ref, 2, "c2", put("a", "2"))
		h.refuses(err, fault.Stale, "STEP_STALE")
		_, err = h.tryStore(ref, 1, "c2", del("a"), add("n", -7), put("b", "null"))
		h.must(err)
		version := h.snapshot(home).Session.Version
		h.commit(h.commitOf(ref, 1))
		same(h, "store after the commit", h.storeOf(home), map[string]string{"n": "-2", "b": "null"})
		same(h, "version", h.snapshot(home).Session.Version, version+1)
		same(h, "bytes", h.snapshot(home).Session.StoreBytes, int64(1+2+1+4))
	}},
	{"calls of a step write a key in the order of the plan, whichever ends first", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		values := func() session.StoreWrite {
			switch r := h.ids.Add(1); r % 3 {
			case 0:
				return put("k", fmt.Sprint(r))
			case 1:
				return add("k", r)
			default:
				return del("k")
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		want, exists := int64(0), false
		for step := int32(1); step <= 60; step++ {
			ids := []string{"c1", "c2", "c3", "c4"}
			h.must(h.tryPlan(ref, step, "plan", ids...))
			writes := make([]session.StoreWrite, len(ids))
			for i := range ids {
				h.ids.Add(random.Int64N(3))
				writes[i] = values()
				switch w := writes[i]; w.Op {
				case session.StorePut:
					_, err := fmt.Sscan(w.Value, &want)
					h.must(err)
					exists = true
				case session.StoreAdd:
					want, exists = want+w.Delta, true
				default:
					want, exists = 0, false
				}
			}
			for _, i := range random.Perm(len(ids)) {
				_, err := h.tryStore(ref, step, ids[i], writes[i])
				h.must(err)
			}
			expected := map[string]string{}
			if exists {
				expected["k"] = fmt.Sprint(want)
			}
			same(h, fmt.Sprint("store after step ", step), h.storeOf(home), expected)
			h.commit(h.commitOf(ref, step))
			h.expectStoreBytes(home)
		}
	}},
	{"the writes of a result outlive its executor, its step and a rewind", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		checkpoint := h.commit(h.commitOf(ref, 1))
		h.must(h.tryPlan(ref, 2, "plan", "c1", "c2"))
		_, err := h.tryStore(ref, 2, "c1", put("first", "1"))
		h.must(err)
		h.now += 10_000
		h.requeueSilent()
		h.announce(executor)
		next, _ := h.claim(executor)
		_, err = h.tryStore(ref, 2, "c2", put("late", "1"))
		h.refuses(err, fault.Stale, "EPOCH_STALE")
		_, err = h.tryStore(next, 2, "c2", add("second", 2))
		h.must(err)
		h.commit(h.commitOf(next, 2))
		h.finish(next)
		_, err = h.rewind(home, checkpoint.ID)
		h.must(err)
		same(h, "store after a rewind", h.storeOf(home), map[string]string{"first": "1", "second": "2"})
		h.expectStoreBytes(home)
	}},
	{"a write outside of runs is atomic and keeps the version", func(h *harness) {
		h.create(h.createOf(home))
		version := h.snapshot(home).Session.Version
		h.must(h.writeStore(home, put("a", `"x"`), add("n", 1)))
		h.refuses(h.writeStore(home, put("b", "1"), add("a", 1)), fault.Invalid, "STORE_NUMBER_INVALID")
		h.must(h.writeStore(home, put("max", "9223372036854775807")))
		h.refuses(h.writeStore(home, put("b", "1"), add("max", 1)), fault.Invalid, "STORE_NUMBER_INVALID")
		h.must(h.writeStore(home, add("max", -1), del("missing"), add("n", 41)))
		same(h, "store", h.storeOf(home), map[string]string{"a": `"x"`, "n": "42", "max": "9223372036854775806"})
		same(h, "version", h.snapshot(home).Session.Version, version)
		h.expectStoreBytes(home)
		h.refuses(h.writeStore(at("missing"), put("a", "1")), fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"additions from everywhere add up", func(h *harness) {
		h.create(h.createOf(home))
		const writers, each = 8, 10
		var group errgroup.Group
		for range writers {
			group.Go(func() error {
				for range each {
					if err := h.writeStore(home, add("n", 3)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		h.must(group.Wait())
		same(h, "store", h.storeOf(home), map[string]string{"n": fmt.Sprint(writers * each * 3)})
	}},
	{"a store is full at its limit, and only growth is refused", func(h *harness) {
		h.create(h.createOf(home))
		fill := limits.Store - len("k") - len(`""`)
		h.must(h.writeStore(home, put("k", `"`+strings.Repeat("x", fill)+`"`)))
		h.refuses(h.writeStore(home, put("l", "1")), fault.TooLarge, "STORE_FULL")
		h.refuses(h.writeStore(home, put("k", `"`+strings.Repeat("x", fill+1)+`"`)), fault.TooLarge, "STORE_FULL")
		h.must(h.writeStore(home, put("k", `"`+strings.Repeat("y", fill)+`"`)))
		h.must(h.writeStore(home, del("k"), put("l", `"`+strings.Repeat("z", fill)+`"`)))
		h.expectStoreBytes(home)

		h.start(h.startOf(at("stepping")))
		ref := h.claimOf(at("stepping"))
		h.must(h.tryPlan(ref, 1, "plan", "c1", "c2"))
		half := limits.StoreStep/2 - len("k") - len(`""`)
		_, err := h.tryStore(ref, 1, "c1", put("k", `"`+strings.Repeat("x", half)+`"`))
		h.must(err)
		_, err = h.tryStore(ref, 1, "c2", put("l", `"`+strings.Repeat("x", half+1)+`"`))
		h.refuses(err, fault.TooLarge, "STORE_STEP_TOO_LARGE")
		_, err = h.tryStore(ref, 1, "c2", put("l", `"`+strings.Repeat("x", half)+`"`))
		h.must(err)
		h.commit(h.commitOf(ref, 1))
		h.must(h.tryPlan(ref, 2, "plan", "c3"))
		_, err = h.tryStore(ref, 2, "c3", put("k", "1"))
		h.must(err)
	}},
	{"hostile keys and values come back as they are, in the order of their bytes", func(h *harness) {
		h.create(h.createOf(home))
		keys := []string{
			"a", "a/b", "a0", "ä", "Z", "%", "_", `\`, "'; DROP TABLE store_entries --", "\u2028", "\uD7FF", "\uE000", "\uFFFF", "\U0010FFFF",
			"\U0010FFFFx", strings.Repeat("k", session.MaxStoreKey), "a\U0010FFFF", "日本", "日本語", " ", "\u0130", "i", "I", "ｚ",
		}
		want := map[string]string{}
		for _, key := range keys {
			want[key] = `"` + strings.ReplaceAll(key, `\`, `\\`) + `\u0000<&>"`
			h.must(h.writeStore(home, put(key, want[key])))
		}
		same(h, "store", h.storeOf(home), want)
		slices.Sort(keys)
		for _, prefix := range append(slices.Clone(keys), "", "none", "日", "a\U0010FFFFx", "\uD7FF\uD7FF") {
			var matching []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					matching = append(matching, key)
				}
			}
			same(h, fmt.Sprintf("keys with %q", prefix), h.storeKeys(home, store.StoreQuery{Prefix: prefix, Limit: 3}), matching)
		}
		h.expectStoreBytes(home)
	}},
	{"100,000 keys are listed by pages", func(h *harness) {
		h.create(h.createOf(home))
		h.create(h.createOf(at("s2")))
		h.must(h.writeStore(at("s2"), put("k/1", "1")))
		const total, batch = 100_000, 10_000
		unlimited := limits
		unlimited.Store = 1 << 30
		for from := 0; from < total; from += batch {
			c := session.WriteStore{Key: home, Limits: unlimited}
			for i := range batch {
				c.Writes = append(c.Writes, put(fmt.Sprintf("k/%06d", from+i), fmt.Sprint(from+i)))
			}
			h.must(h.send(home, c.Need(), c.Decide))
		}
		listed := h.storeKeys(home, store.StoreQuery{Prefix: "k/", Limit: 1000})
		if len(listed) != total || listed[0] != "k/000000" || listed[total-1] != "k/099999" || !slices.IsSorted(listed) {
			h.Errorf("got %d keys from %q to %q", len(listed), listed[0], listed[len(listed)-1])
		}
		same(h, "keys of a narrow prefix", len(h.storeKeys(home, store.StoreQuery{Prefix: "k/0421", Limit: 1000})), 100)
		h.expectStoreBytes(home)
		h.must(h.delete(home))
		h.expectDeleted(home)
		same(h, "another session's store", h.storeOf(at("s2")), map[string]string{"k/1": "1"})
	}},
	{"a page of a store is bounded in bytes, and named keys are found", func(h *harness) {
		h.create(h.createOf(home))
		h.must(h.writeStore(home, put("a", "1234567890"), put("b", "1234567890"), put("c", "1"), put("d", "2")))
		for _, want := range []struct {
			query store.StoreQuery
			keys  string
			more  bool
		}{
			{store.StoreQuery{Limit: 9, MaxBytes: 5}, "a", true},
			{store.StoreQuery{Limit: 9, MaxBytes: 22}, "ab", true},
			{store.StoreQuery{Limit: 9, MaxBytes: 26}, "abcd", false},
			{store.StoreQuery{Limit: 9, MaxBytes: 3, KeysOnly: true}, "abc", true},
			{store.StoreQuery{Limit: 4, MaxBytes: 99}, "abcd", false},
			{store.StoreQuery{Limit: 3, MaxBytes: 99}, "abc", true},
			{store.StoreQuery{Limit: 3, MaxBytes: 99, After: "a"}, "bcd", false},
			{store.StoreQuery{Limit: 3, MaxBytes: 99, After: "d"}, "", false},
			{store.StoreQuery{Limit: 3, MaxBytes: 99, Prefix: "b", After: "c"}, "", false},
			{store.StoreQuery{Limit: 3, MaxBytes: 99, Prefix: "c", After: "a"}, "c", false},
			{store.StoreQuery{Keys: []string{"d", "x", "a"}, MaxBytes: 99}, "ad", false},
			{store.StoreQuery{Keys: []string{"d", "a"}, MaxBytes: 1}, "a", true},
			{store.StoreQuery{Keys: []string{}, MaxBytes: 99}, "", false},
		} {
			page, more, err := h.Store.StoreEntries(h.Context(), home, want.query)
			h.must(err)
			keys := ""
			for _, e := range page {
				keys += e.Key
				if e.Bytes == 0 || (e.Value == "") != want.query.KeysOnly {
					h.Errorf("%+v: got %+v", want.query, e)
				}
			}
			if keys != want.keys || more != want.more {
				h.Errorf("%+v: got %s, %v; want %s, %v", want.query, keys, more, want.keys, want.more)
			}
		}
		_, _, err := h.Store.StoreEntries(h.Context(), session.Key{Tenant: "other", SessionID: home.SessionID}, store.StoreQuery{Limit: 9})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, _, err = h.Store.OwnedBy("stranger").StoreEntries(h.Context(), home, store.StoreQuery{Limit: 9})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"the bytes of a store count for the tenant, and a branch begins without them", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		checkpoint := h.commit(h.commitOf(ref, 1))
		before, err := h.Store.StoredBytes(h.Context(), home.Tenant)
		h.must(err)
		h.must(h.writeStore(home, put("key", "12345")))
		after, err := h.Store.StoredBytes(h.Context(), home.Tenant)
		h.must(err)
		same(h, "added bytes", after-before, int64(8))
		_, err = h.branch(home, checkpoint.ID, at("copy"))
		h.must(err)
		same(h, "store of the branch", h.storeOf(at("copy")), map[string]string{})
		h.expectStoreBytes(at("copy"))
	}},
}

func put(key, value string) session.StoreWrite {
	return session.StoreWrite{Op: session.StorePut, Key: key, Value: value}
}

func add(key string, delta int64) session.StoreWrite {
	return session.StoreWrite{Op: session.StoreAdd, Key: key, Delta: delta}
}

func del(key string) session.StoreWrite { return session.StoreWrite{Op: session.StoreDelete, Key: key} }

// tryStore records the result of a call with writes to the store.
func (h *harness) tryStore(ref session.ClaimRef, step int32, call string, writes ...session.StoreWrite) (repeated bool, err error) {
	c := session.RecordResult{
		ClaimRef: ref, Step: step, Result: session.Result{CallID: call, Body: []byte("r")}, Store: writes, Limits: limits,
	}
	err = h.sendWidened(c.Key, c.Need(), capturing(&repeated, c.Decide))
	return repeated, err
}

// writeStore writes to the store of a session outside of runs.
func (h *harness) writeStore(key session.Key, writes ...session.StoreWrite) error {
	c := session.WriteStore{Key: key, Writes: writes, Limits: limits}
	return h.send(key, c.Need(), c.Decide)
}

// storeOf returns the whole store of a session.
func (h *harness) storeOf(key session.Key) map[string]string {
	h.Helper()
	all := map[string]string{}
	page, more, err := h.Store.StoreEntries(h.Context(), key, store.StoreQuery{Limit: 1000, MaxBytes: 1 << 20})
	h.must(err)
	if more {
		h.Fatalf("the store of %v is too large for the test", key)
	}
	for _, e := range page {
		all[e.Key] = e.Value
	}
	return all
}

// storeKeys returns the keys of a range, read by pages.
func (h *harness) storeKeys(key session.Key, q store.StoreQuery) (keys []string) {
	h.Helper()
	q.MaxBytes, q.KeysOnly = 1<<20, true
	for more := true; more; {
		var page []store.StoredEntry
		var err error
		page, more, err = h.Store.StoreEntries(h.Context(), key, q)
		h.must(err)
		for _, e := range page {
			keys = append(keys, e.Key)
		}
		if more {
			q.After = page[len(page)-1].Key
		}
	}
	return keys
}

// expectStoreBytes fails the test unless the session knows the size of its store.
func (h *harness) expectStoreBytes(key session.Key) {
	h.Helper()
	size := int64(0)
	q := store.StoreQuery{Limit: 1000, MaxBytes: 1 << 20, KeysOnly: true}
	for more := true; more; {
		var page []store.StoredEntry
		var err error
		page, more, err = h.Store.StoreEntries(h.Context(), key, q)
		h.must(err)
		for _, e := range page {
			size += e.Bytes
			q.After = e.Key
		}
	}
	same(h, "bytes of the store", h.snapshot(key).Session.StoreBytes, size)
}
