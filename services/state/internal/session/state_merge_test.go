package session

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestStateWritesMergeInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string
		ops   []StateOp
		want  string
		warns string // the key in the warning
	}{
		"none":                        {` { "a" : 1 } `, nil, ` { "a" : 1 } `, ""},
		"a new key":                   {`{}`, []StateOp{{"a", OpReplace, `{"x": [1]}`}}, `{"a":{"x": [1]}}`, ""},
		"other keys keep their text":  {`{ "b": 1.0, "a":  "\u0041<" }`, []StateOp{{"c", OpReplace, `null`}}, `{"b":1.0,"a":"\u0041<","c":null}`, ""},
		"the last replace wins":       {`{"a":1,"b":2}`, []StateOp{{"a", OpReplace, `3`}, {"a", OpReplace, `4`}}, `{"a":4,"b":2}`, ""},
		"null is not gone":            {`{"a":1}`, []StateOp{{"a", OpReplace, `null`}}, `{"a":null}`, ""},
		"a key goes":                  {`{"a":1,"b":2}`, []StateOp{{"a", OpDelete, ""}}, `{"b":2}`, ""},
		"a missing key goes":          {`{"b":2}`, []StateOp{{"a", OpDelete, ""}}, `{"b":2}`, ""},
		"appends follow each other":   {`{"a":[1]}`, []StateOp{{"a", OpAppend, `[2]`}, {"a", OpAppend, ` [ 3, 4 ] `}}, `{"a":[1,2,3,4]}`, ""},
		"append makes the array":      {`{}`, []StateOp{{"a", OpAppend, `[]`}}, `{"a":[]}`, ""},
		"append to null":              {`{"a":null}`, []StateOp{{"a", OpAppend, `[1]`}}, `{"a":[1]}`, "a"},
		"append to a number":          {`{"a":7}`, []StateOp{{"a", OpAppend, `[1]`}}, `{"a":[1]}`, "a"},
		"append races with replace":   {`{"a":[1]}`, []StateOp{{"a", OpReplace, `[9]`}, {"a", OpAppend, `[1]`}}, `{"a":[9,1]}`, "a"},
		"append races with delete":    {`{"a":[1]}`, []StateOp{{"a", OpDelete, ``}, {"a", OpAppend, `[2]`}}, `{"a":[2]}`, "a"},
		"replace after append":        {`{"a":[1]}`, []StateOp{{"a", OpAppend, `[2]`}, {"a", OpReplace, `[9]`}}, `{"a":[9]}`, ""},
		"of two equal keys the last":  {`{"a":1,"b":2,"a":3}`, []StateOp{{"c", OpReplace, `1`}}, `{"a":3,"b":2,"c":1}`, ""},
		"a key that needs escaping":   {`{}`, []StateOp{{"\"<é\\", OpReplace, `1`}}, `{"\"<é\\":1}`, ""},
		"numbers of any size survive": {`{"n":12345678901234567890.123456789}`, []StateOp{{"a", OpAppend, `[1e400]`}}, `{"n":12345678901234567890.123456789,"a":[1e400]}`, ""},
	} {
		got, err := merge(c.state, c.ops, 1000)
		if err != nil || got.state != c.want {
			t.Errorf("%s: got %s, %v; want %s", name, got.state, err, c.want)
		}
		if c.warns == "" && len(got.warnings) != 0 || c.warns != "" && (len(got.warnings) != 1 || !strings.Contains(got.warnings[0], `"`+c.warns+`"`)) {
			t.Errorf("%s: got warnings %q", name, got.warnings)
		}
	}
}

func TestAStateAboveTheLimitNamesItsKeys(t *testing.T) {
	t.Parallel()
	_, err := merge(`{}`, []StateOp{{"b", OpReplace, `"xxxxx"`}, {"a", OpAppend, `[1]`}, {"b", OpDelete, ``}, {"b", OpReplace, `"xxxxx"`}}, 15)
	f, ok := fault.From(err)
	if !ok || f.Kind != fault.TooLarge || f.Meta["changedKeys"] != "b,a" || f.Meta["limitBytes"] != "15" || f.Meta["sizeBytes"] != "21" {
		t.Errorf("got %v with %v", err, f)
	}
}

// The test would take minutes if the work were quadratic.
func TestManyWritesMergeInLinearTime(t *testing.T) {
	t.Parallel()
	const n = 50_000
	var appends, removes []StateOp
	var wide strings.Builder
	for i := range n {
		appends = append(appends, StateOp{"list", OpAppend, `[1]`})
		removes = append(removes, StateOp{Key: fmt.Sprint("k", i), Kind: OpDelete})
		fmt.Fprintf(&wide, `"k%d":1,`, i)
	}
	merged, err := merge(`{"list":[`+strings.Repeat("1,", 500_000)+`1]}`, appends, 10<<20)
	if want := `{"list":[` + strings.Repeat("1,", n+500_000) + `1]}`; err != nil || merged.state != want {
		t.Errorf("got %d bytes, %v; want %d", len(merged.state), err, len(want))
	}
	merged, err = merge(`{`+wide.String()+`"last":0}`, removes, 10<<20)
	if err != nil || merged.state != `{"last":0}` {
		t.Errorf("got %d bytes, %v", len(merged.state), err)
	}
}

func TestAKeyThatIsAddedAgainComesLast(t *testing.T) {
	t.Parallel()
	ops := []StateOp{{"a", OpAppend, `[2]`}, {"a", OpDelete, ""}, {"a", OpAppend, `[3]`}, {"a", OpAppend, `[4]`}}
	got, err := merge(`{"a":[ 1 ],"b":[ 1 ]}`, ops, 100)
	if err != nil || got.state != `{"b":[ 1 ],"a":[3,4]}` {
		t.Errorf("got %s, %v", got.state, err)
	}
}

func TestAFaultNamesAFewKeysOfMany(t *testing.T) {
	t.Parallel()
	var many []StateOp
	for i := range 100_000 {
		many = append(many, StateOp{fmt.Sprint("k", i), OpReplace, `1`})
	}
	long := []StateOp{{"first", OpReplace, `1`}, {strings.Repeat("x", 5000), OpReplace, `1`}, {"last", OpReplace, `1`}}
	for _, c := range []struct {
		ops  []StateOp
		keys int
	}{{many[:64], 64}, {many, 65}, {long, 2}, {long[1:], 1}} {
		f, _ := fault.From(StateTooLarge(2, 1, c.ops))
		keys := strings.Split(f.Meta["changedKeys"], ",")
		if cut := keys[len(keys)-1] == "…"; len(keys) != c.keys || cut != (c.keys != 64) || len(f.Meta["changedKeys"]) > 4200 {
			t.Errorf("got %d keys: %.100s", len(keys), f.Meta["changedKeys"])
		}
	}
}

func TestManyWarningsAreCounted(t *testing.T) {
	t.Parallel()
	var ops []StateOp
	for range 60 {
		ops = append(ops, StateOp{"a", OpReplace, `1`}, StateOp{"a", OpAppend, `[1]`})
	}
	for n, want := range map[int]int{50: 50, 60: 51} {
		got, err := merge(`{}`, ops[:2*n], 100)
		if err != nil || len(got.warnings) != want || strings.HasPrefix(got.warnings[want-1], "10 more") != (n == 60) {
			t.Errorf("of %d: got %d warnings, the last %q, %v", n, len(got.warnings), got.warnings[len(got.warnings)-1], err)
		}
	}
}

func TestMergedStateIsWhatAMapWouldHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		model := map[string]any{}
		var ops []StateOp
		for range rapid.IntRange(0, 8).Draw(t, "ops") {
			key := rapid.SampledFrom([]string{"a", "b", "ü\x01"}).Draw(t, "key")
			n := rapid.IntRange(0, 9).Draw(t, "value")
			switch kind := rapid.SampledFrom([]OpKind{OpReplace, OpAppend, OpDelete}).Draw(t, "kind"); kind {
			case OpReplace:
				model[key] = float64(n)
				ops = append(ops, StateOp{key, kind, fmt.Sprint(n)})
			case OpAppend:
				list, _ := model[key].([]any)
				model[key] = append(list[:len(list):len(list)], float64(n))
				ops = append(ops, StateOp{key, kind, fmt.Sprintf("[%d]", n)})
			case OpDelete:
				delete(model, key)
				ops = append(ops, StateOp{Key: key, Kind: kind})
			}
		}
		merged, err := merge(`{}`, ops, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(merged.state), &got); err != nil || !reflect.DeepEqual(got, model) {
			t.Errorf("%v: got %s, %v; want %v", ops, merged.state, err, model)
		}
	})
}
