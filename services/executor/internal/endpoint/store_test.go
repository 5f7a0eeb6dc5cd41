package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// storeOfKeys is an agent.StoreReader of entries with keys in order and equal values.
type storeOfKeys struct {
	keys  []string
	value string
}

func (s storeOfKeys) StoreEntries(context.Context, []string) ([]agent.StoreEntry, error) {
	return nil, nil
}

func (s storeOfKeys) StoreRange(_ context.Context, r agent.StoreRange) (page []agent.StoreEntry, more bool, err error) {
	for _, key := range s.keys {
		if strings.HasPrefix(key, r.Prefix) && key > r.After {
			page = append(page, agent.StoreEntry{Key: key, Value: json.RawMessage(s.value)})
		}
	}
	return page, false, nil
}

// keep calls a tool that is safe to repeat and reads the keys with two prefixes.
func (w *world) keep(stored agent.StoreReader) tool.Outcome {
	t := Binding{Client: w.client}.Tool(agent.Tool{Name: "keep", Retry: agent.RetrySafe}, []string{"execute"}, []string{"a/", "b/"})
	call := &agent.Call{ID: "c", Tool: "keep", IdempotencyKey: "key", Tenant: "acme", SessionID: "s", RunID: "r", AgentType: "support"}
	return w.runner.Execute(w.Context(), t, call, tool.Scope{Store: stored})
}

func TestAToolAtAnEndpointReadsAndWritesTheStore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.handle("tool/keep", func(_ context.Context, c *endpointapp.Call) (any, error) {
			if got := fmt.Sprint(c.Body["store"]); got != `map[complete:true entries:map[a/1:5 b/1:5] reads:[a/ b/]]` {
				w.Errorf("the request has the store %s", got)
			}
			attempt := c.Context.Call.Attempt
			c.Line("store", []any{
				map[string]any{"op": "put", "key": "last", "value": attempt}, map[string]any{"op": "add", "key": "n", "value": 1},
				map[string]any{"op": "delete", "key": "a/1"},
			})
			if attempt == 1 {
				panic(http.ErrAbortHandler)
			}
			return "done", nil
		})
		o := w.keep(storeOfKeys{[]string{"a/1", "b/1", "c/1"}, "5"})
		want := []agent.StoreWrite{
			{Key: "a/1", Op: agent.StoreDelete}, {Key: "last", Op: agent.StorePut, Value: json.RawMessage("2")}, {Key: "n", Op: agent.StoreAdd, Delta: 1},
		}
		if !reflect.DeepEqual(o.Store, want) {
			w.Errorf("the writes are %v, want those of the last attempt: %v", o.Store, want)
		}
	})
}

func TestTheStoreInARequestIsBounded(t *testing.T) {
	t.Parallel()
	keys := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("a/%04d", i))
		}
		return all
	}
	for _, test := range []struct {
		stored   storeOfKeys
		entries  int
		complete bool
	}{
		{storeOfKeys{keys(maxStoreEntries), "1"}, maxStoreEntries, true},
		{storeOfKeys{keys(maxStoreEntries + 1), "1"}, maxStoreEntries, false},
		{storeOfKeys{keys(16), `"` + strings.Repeat("x", maxStoreBytes/16-8) + `"`}, 16, true},
		{storeOfKeys{keys(17), `"` + strings.Repeat("x", maxStoreBytes/16-8) + `"`}, 16, false},
	} {
		got, err := readStore(t.Context(), agent.NewStore(test.stored), []string{"a/", "a/0"})
		if err != nil || len(got.Entries) != test.entries || got.Complete != test.complete {
			t.Errorf("%d keys of %d bytes: got %d, %v, %v; want %d, %v", len(test.stored.keys), len(test.stored.value), len(got.Entries),
				got.Complete, err, test.entries, test.complete)
		}
	}
}

func TestInvalidWritesToTheStoreFailTheCall(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"op": "put", "key": "k"}`:                   "must have the op put or add",
		`{"op": "merge", "key": "k", "value": 1}`:     "must have the op put or add",
		`{"op": "add", "key": "k", "value": 1.5}`:     "no integer of 64 bits",
		`{"op": "add", "key": "k", "value": null}`:    "no integer of 64 bits",
		`{"op": "add", "key": "k"}`:                   "no integer of 64 bits",
		`{"op": "put", "key": "", "value": 1}`:        "must have 1 to 512 bytes",
		`{"op": "put", "key": "a\u0000", "value": 1}`: "must have 1 to 512 bytes",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.handle("tool/keep", func(_ context.Context, c *endpointapp.Call) (any, error) {
					c.Line("store", []any{json.RawMessage(line)})
					return "done", nil
				})
				o := w.keep(nil)
				w.wantFailure(o, false, want)
				if o.Store != nil {
					w.Errorf("the call writes %v", o.Store)
				}
			})
		})
	}
}

func TestAHookHasNoStore(t *testing.T) {
	t.Parallel()
	s := hostSink(&tool.Host{})
	if err := s.take(t.Context(), map[string]json.RawMessage{"store": json.RawMessage(`[]`)}); err == nil {
		t.Error("a hook has written to the store")
	}
}
