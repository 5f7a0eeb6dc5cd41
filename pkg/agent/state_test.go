package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// states draws similar states: few keys, and arrays that grow.
func states() *rapid.Generator[agent.State] {
	return rapid.Custom(func(t *rapid.T) agent.State {
		scalar := rapid.SampledFrom([]any{nil, true, "", "a<b>", json.Number("1"), json.Number("1.0"), json.Number("12345678901234567890")})
		state := agent.State{}
		for _, key := range []string{"a", "b/c", "~d", "é"} {
			switch rapid.IntRange(0, 4).Draw(t, key) {
			case 0: // missing
			case 1:
				state[key] = scalar.Draw(t, "scalar")
			case 2:
				state[key] = map[string]any{"x": scalar.Draw(t, "inner")}
			default:
				list := make([]any, rapid.IntRange(0, 4).Draw(t, "length"))
				for i := range list {
					list[i] = json.Number(strconv.Itoa(i)) // arrays often begin alike
				}
				if rapid.Bool().Draw(t, "other end") && len(list) > 0 {
					list[len(list)-1] = scalar.Draw(t, "end")
				}
				state[key] = list
			}
		}
		return state
	})
}

func text(t interface{ Fatal(...any) }, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestApplyingADiffGivesTheNewState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before, after := states().Draw(t, "before"), states().Draw(t, "after")
		was := text(t, before)
		ops := agent.Diff(before, after)
		got, err := before.Apply(ops)
		if err != nil || text(t, got) != text(t, after) {
			t.Errorf("Apply(%v) of %s = %s, %v, want %s", ops, was, text(t, got), err, text(t, after))
		}
		if text(t, before) != was {
			t.Errorf("the state before has become %s", text(t, before))
		}
		patch, err := before.Patch(ops)
		if err != nil {
			t.Fatal(err)
		}
		if patched := patched(t, before, patch); text(t, patched) != text(t, after) {
			t.Errorf("the patch %s of %s gives %s, want %s", patch, was, text(t, patched), text(t, after))
		}
		if len(ops) == 0 != (text(t, before) == text(t, after)) || len(agent.Diff(after, after)) != 0 {
			t.Errorf("%d ops between %s and %s", len(ops), was, text(t, after))
		}
	})
}

func TestPatchDoesWhatApplyDoesForWritesOfAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := states().Draw(t, "state")
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) agent.Op {
			op := agent.Op{Key: rapid.SampledFrom([]string{"a", "b/c", "~d"}).Draw(t, "key"), Kind: rapid.SampledFrom([]agent.OpKind{agent.OpReplace, agent.OpAppend, agent.OpDelete}).Draw(t, "kind")}
			switch op.Kind {
			case agent.OpReplace:
				op.Value = json.RawMessage(rapid.SampledFrom([]string{`1`, `null`, `[]`, `["x"]`, `{"k":1}`}).Draw(t, "value"))
			case agent.OpAppend:
				op.Value = json.RawMessage(rapid.SampledFrom([]string{`[]`, `[1]`, `[1,[2]]`}).Draw(t, "items"))
			case agent.OpDelete: // has no value
			}
			return op
		}), 0, 6).Draw(t, "ops")
		want, err := state.Apply(ops)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := state.Patch(ops)
		if err != nil {
			t.Fatal(err)
		}
		if got := patched(t, state, patch); text(t, got) != text(t, want) {
			t.Errorf("the patch %s of %s gives %s, want %s", patch, text(t, state), text(t, got), text(t, want))
		}
	})
}

// patched applies an RFC 6902 patch of top-level members and appended items.
func patched(t *rapid.T, state agent.State, patch json.RawMessage) agent.State {
	var list []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(patch, &list); err != nil {
		t.Fatal(err)
	}
	got, err := state.Clone()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		path, end := strings.CutSuffix(p.Path, "/-")
		key := strings.NewReplacer("~1", "/", "~0", "~").Replace(strings.TrimPrefix(path, "/"))
		was, had := got[key]
		switch {
		case p.Op == "remove" && had:
			delete(got, key)
		case p.Op == "add" && end:
			list, ok := was.([]any)
			if !ok {
				t.Fatalf("%s adds to %v", p.Path, was)
			}
			got[key] = append(list, decoded(t, p.Value))
		case p.Op == "add":
			got[key] = decoded(t, p.Value)
		default:
			t.Fatalf("%s of %s cannot be done", p.Op, p.Path)
		}
	}
	return got
}

func decoded(t *rapid.T, raw json.RawMessage) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestAStateIsAJSONObjectWithExactNumbers(t *testing.T) {
	t.Parallel()
	got, err := agent.ParseState([]byte(`{"n":12345678901234567890,"f":1.10}`))
	if err != nil || text(t, got) != `{"f":1.10,"n":12345678901234567890}` {
		t.Errorf("ParseState = %s, %v, want the numbers as they were", text(t, got), err)
	}
	for _, bad := range []string{`[]`, `null`, `"x"`, `{`, `{} {}`} {
		if got, err := agent.ParseState([]byte(bad)); fault.ReasonOf(err) != "STATE_INVALID" {
			t.Errorf("ParseState(%s) = %v, %v, want STATE_INVALID", bad, got, err)
		}
	}
	if got, err := agent.ParseState(nil); err != nil || len(got) != 0 {
		t.Errorf("ParseState of nothing = %v, %v, want the empty state", got, err)
	}
}

func TestADraftDropsFailedChangesAndRejectsChangesAfterItsEnd(t *testing.T) {
	t.Parallel()
	d := agent.NewDraft(agent.State{"list": []any{json.Number("1")}}, nil, 1000)
	set := func(value any, err error) error {
		return d.Update(func(s agent.State) error { s["x"] = value; return err })
	}
	no := errors.New("no")
	if err := set(1, no); !errors.Is(err, no) || d.State()["x"] != nil {
		t.Errorf("Update = %v, x = %v, want the error and no x", err, d.State()["x"])
	}
	func() {
		defer func() { _ = recover() }()
		_ = d.Update(func(agent.State) error { panic("oh") })
	}()
	if err := set(1.5, nil); err != nil || d.State()["x"] != json.Number("1.5") {
		t.Errorf("Update behind a panic = %v, x = %v, want 1.5", err, d.State()["x"])
	}
	d.State()["list"].([]any)[0] = "changed"
	if got := fmt.Sprint(d.State()["list"]); got != "[1]" {
		t.Errorf("list = %s, want that a copy was changed", got)
	}
	if err := d.Update(func(s agent.State) error { s["list"] = append(s["list"].([]any), 2); return nil }); err != nil {
		t.Fatal(err)
	}
	ended := d.Update(func(agent.State) error { d.End(); return nil })
	if fault.ReasonOf(ended) != "CALL_ENDED" || fault.ReasonOf(set(2, nil)) != "CALL_ENDED" {
		t.Errorf("Update over the end = %v, want CALL_ENDED", ended)
	}
	if got := text(t, d.End()); got != `[{"Key":"list","Kind":"append","Value":[2]},{"Key":"x","Kind":"replace","Value":1.5}]` {
		t.Errorf("End = %s, want the append and x", got)
	}
}
