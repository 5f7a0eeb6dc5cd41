package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// walked decodes a JSON value with the walk functions.
func walked(t *testing.T, text []byte) any {
	t.Helper()
	switch text[0] {
	case '{':
		got := map[string]any{}
		if err := walkObject(text, func(name string, value []byte, at int64) error {
			if !bytes.HasPrefix(text[at:], value) {
				t.Errorf("%s does not stand at byte %d of %s", value, at, text)
			}
			got[name] = walked(t, value)
			return nil
		}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return got
	case '[':
		got := []any{}
		if err := walkArray(text, func(value []byte, at int64) error {
			if !bytes.HasPrefix(text[at:], value) {
				t.Errorf("%s does not stand at byte %d of %s", value, at, text)
			}
			got = append(got, walked(t, value))
			return nil
		}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return got
	}
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Errorf("the value %q: %v", text, err)
	}
	return got
}

func wantWalked(t *testing.T, text string) {
	t.Helper()
	var want any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if got := walked(t, []byte(text)); !reflect.DeepEqual(got, want) {
		t.Errorf("%s is walked through as %v, want %v", text, got, want)
	}
}

func TestAWalkFindsWhatTheDecoderFinds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, ` { } `[1:4], "[\n\t\r ]", `{"a":1}`, `{"a":1,"a":2}`, `{ "a" : [ 1 , -2.5e+3 , true , null ] , "b" : { } }`,
		`{"":""}`, `["\\"]`, `["\\\"",1]`, `["\\\\\"]","x"]`, `{"\"":"}","\\":"]"}`, `{"\u0061\ud83d\ude00":"[{"}`, `{"schlüssel":"größe"}`,
		"{\"\xff\":1}", `[[[["]"],{"}":{}}]]]`, `[0]`, `{"a":0}`,
	} {
		wantWalked(t, text)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		kind := "{}"
		if random.IntN(2) == 0 {
			kind = "[]"
		}
		wantWalked(t, made(random, kind, 4))
	}
}

// made returns a random JSON value in the brackets of kind, or a plain value for "".
func made(random *rand.Rand, kind string, deep int) string {
	gap := func() string { return strings.Repeat(" ", random.IntN(2)) + strings.Repeat("\n", random.IntN(2)) }
	word := func() string {
		return `"` + []string{"", "a", `\"`, `\\`, `\\\"`, "{[", "]}", ",:", "ä", `\u00e4`}[random.IntN(10)] + fmt.Sprint(random.IntN(9)) + `\\"`
	}
	if kind == "" {
		return []string{"null", "true", "-1.5e3", "0", word(), word()}[random.IntN(6)]
	}
	var entries []string
	for range random.IntN(4) {
		inner := ""
		if deep > 0 {
			inner = []string{"", "{}", "[]"}[random.IntN(3)]
		}
		entry := made(random, inner, deep-1)
		if kind == "{}" {
			entry = word() + gap() + ":" + gap() + entry
		}
		entries = append(entries, gap()+entry+gap())
	}
	return kind[:1] + gap() + strings.Join(entries, ",") + kind[1:]
}
