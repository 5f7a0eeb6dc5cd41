package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// entries is an agent.StoreReader with pages of two entries.
type entries map[string]string

func (e entries) StoreEntries(_ context.Context, keys []string) (found []agent.StoreEntry, err error) {
	for _, key := range keys {
		if value, ok := e[key]; ok {
			found = append(found, agent.StoreEntry{Key: key, Value: json.RawMessage(value)})
		}
	}
	return found, nil
}

func (e entries) StoreRange(_ context.Context, r agent.StoreRange) (page []agent.StoreEntry, more bool, err error) {
	for _, key := range slices.Sorted(maps.Keys(e)) {
		if !strings.HasPrefix(key, r.Prefix) || key <= r.After {
			continue
		}
		if len(page) == 2 {
			return page, true, nil
		}
		page = append(page, agent.StoreEntry{Key: key, Value: json.RawMessage(e[key])})
	}
	return page, false, nil
}

func TestAStoreReadsWhatIsStoredWithTheWritesOfItsCall(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	keys := []string{"a", "b/1", "b/2", "b/3", "b/4", "c", "ü"}
	for range 500 {
		stored := entries{}
		for _, key := range keys {
			if random.IntN(2) == 0 {
				stored[key] = strconv.Itoa(random.IntN(100))
			}
		}
		want := maps.Clone(stored)
		s := agent.NewStore(stored)
		for range random.IntN(12) {
			key, n := keys[random.IntN(len(keys))], random.IntN(100)
			var err error
			switch random.IntN(3) {
			case 0:
				err = s.Put(key, n)
				want[key] = strconv.Itoa(n)
			case 1:
				err = s.Delete(key)
				delete(want, key)
			default:
				err = s.Add(key, int64(n))
				before, _ := strconv.Atoi(want[key])
				want[key] = strconv.Itoa(before + n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.GetAll(t.Context(), keys...)
		if err != nil || !maps.EqualFunc(all, want, func(a json.RawMessage, b string) bool { return string(a) == b }) {
			t.Fatalf("GetAll of %v = %s, %v; want %v", stored, all, err, want)
		}
		for _, r := range []agent.StoreRange{{}, {Prefix: "b/"}, {After: "b/2"}, {Prefix: "b/", After: "b/1", Limit: 2}, {Limit: 3}, {Prefix: "none"}} {
			var expected, got []string
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if strings.HasPrefix(key, r.Prefix) && key > r.After && (r.Limit == 0 || len(expected) < r.Limit) {
					expected = append(expected, key+"="+want[key])
				}
			}
			for e, err := range s.List(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Key+"="+string(e.Value))
			}
			if !slices.Equal(got, expected) {
				t.Fatalf("List(%+v) of %v = %v, want %v", r, stored, got, expected)
			}
		}
		after := maps.Clone(stored)
		for _, w := range s.End() { // as the state service applies them
			switch before, _ := strconv.ParseInt(after[w.Key], 10, 64); w.Op {
			case agent.StorePut:
				after[w.Key] = string(w.Value)
			case agent.StoreAdd:
				after[w.Key] = fmt.Sprint(before + w.Delta)
			default:
				delete(after, w.Key)
			}
		}
		if !maps.Equal(after, want) {
			t.Fatalf("the writes give %v, want %v", after, want)
		}
	}
}

func TestAStoreRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := agent.NewStore(entries{"text": `"x"`})
	for _, key := range []string{"", "a\x00b", "a\nb", "\xff", strings.Repeat("k", agent.MaxStoreKey+1)} {
		for i, err := range []error{s.Put(key, 1), s.Delete(key), s.Add(key, 1)} {
			if fault.ReasonOf(err) != "STORE_KEY_INVALID" {
				t.Errorf("write %d of the key %.20q = %v, want STORE_KEY_INVALID", i, key, err)
			}
		}
		if _, err := s.GetAll(t.Context(), key); fault.ReasonOf(err) != "STORE_KEY_INVALID" {
			t.Errorf("GetAll of the key %.20q = %v, want STORE_KEY_INVALID", key, err)
		}
	}
	longest := strings.Repeat("v", agent.MaxStoreValue-2)
	for _, test := range []struct {
		err    error
		reason string
	}{
		{s.Put(strings.Repeat("k", agent.MaxStoreKey), longest), ""},
		{s.Put("k", longest+"v"), "STORE_VALUE_TOO_LARGE"},
		{s.Put("k", math.NaN()), "STORE_VALUE_INVALID"},
		{s.Put("max", math.MaxInt64), ""},
		{s.Add("max", 1), "STORE_NUMBER_INVALID"},
		{s.Put("word", "no number"), ""},
		{s.Add("word", 1), "STORE_NUMBER_INVALID"},
		{s.Add("sum", math.MinInt64), ""},
		{s.Add("sum", -1), "STORE_NUMBER_INVALID"},
		{s.Add("text", 1), ""}, // what is stored is not known yet
	} {
		if fault.ReasonOf(test.err) != test.reason {
			t.Errorf("got %v, want %q", test.err, test.reason)
		}
	}
	if _, err := s.GetAll(t.Context(), "text"); fault.ReasonOf(err) != "STORE_NUMBER_INVALID" {
		t.Errorf("the sum with a text = %v, want STORE_NUMBER_INVALID", err)
	}
	var n int
	if found, err := s.Get(t.Context(), "word", &n); !found || fault.ReasonOf(err) != "STORE_VALUE_INVALID" {
		t.Errorf("a text as a number = %v, %v, want STORE_VALUE_INVALID", found, err)
	}

	full := agent.NewStore(nil)
	for i := range 8 {
		if err := full.Put(fmt.Sprint(i), longest[:len(longest)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := full.Put("9", 1); fault.ReasonOf(err) != "STORE_WRITES_TOO_LARGE" {
		t.Errorf("more than 8 MiB = %v, want STORE_WRITES_TOO_LARGE", err)
	}
	if err := full.Put("7", 1); err != nil {
		t.Errorf("a smaller value = %v", err)
	}
	many := agent.NewStore(nil)
	for i := range agent.MaxStoreWrites {
		if err := many.Add(fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := many.Add("x", 1); fault.ReasonOf(err) != "STORE_WRITES_INVALID" {
		t.Errorf("one key more = %v, want STORE_WRITES_INVALID", err)
	}
	many.End()
	if err := many.Add("0", 1); fault.ReasonOf(err) != "CALL_ENDED" {
		t.Errorf("a write after the end = %v, want CALL_ENDED", err)
	}
}
