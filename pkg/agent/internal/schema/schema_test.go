package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/schema"
)

func check(t *testing.T, text, value string) string {
	t.Helper()
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatalf("Compile(%.200s): %v", text, err)
	}
	var texts []string
	for _, p := range s.Check([]byte(value)) {
		texts = append(texts, strings.TrimSpace(p.Path+" "+p.Text))
	}
	return strings.Join(texts, "; ")
}

func TestEachProblemNamesItsPlaceAndWhatToChange(t *testing.T) {
	t.Parallel()
	weather := `{"type":"object","additionalProperties":false,"required":["city"],"properties":{
		"city":{"type":"string","minLength":2,"pattern":"^[A-Z]"},
		"days":{"type":"integer","minimum":1,"maximum":10},
		"unit":{"enum":["celsius","fahrenheit"]},
		"tags":{"type":"array","items":{"type":"string"},"maxItems":2,"uniqueItems":true},
		"a/b~c":{"type":"null"}}}`
	checkAll(t, []checkCase{
		{weather, `{"city":"Paris","days":3,"unit":"celsius","tags":["a"]}`, ""},
		{weather, `{"city":"Paris","days":3.0}`, ""},
		{weather, `[]`, "must be an object, not an array"},
		{weather, `nope`, "is not JSON"},
		{weather, `{} {}`, "is not JSON"},
		{weather, `{}`, "/city is missing"},
		{weather, `{"city":"Paris","days":"3"}`, "/days must be an integer, not a string"},
		{weather, `{"city":"Paris","days":2.5}`, "/days must be an integer, not a number"},
		{weather, `{"city":"Paris","days":12}`, "/days must be at most 10, not 12"},
		{weather, `{"city":"p","unit":"kelvin"}`, `/city must have at least 2 characters, not 1; /city must match the pattern ^[A-Z]; /unit must be one of "celsius", "fahrenheit"`},
		{weather, `{"city":"Paris","town":"x"}`, "/town is not known; known are a/b~c, city, days, tags, unit"},
		{weather, `{"city":"Paris","tags":["a",1]}`, "/tags/1 must be a string, not an integer"},
		{weather, `{"city":"Paris","tags":["a","a","b"]}`, "/tags must have at most 2 items, not 3; /tags must have distinct items, but items 0 and 1 are equal"},
		{weather, `{"city":"Paris","a/b~c":1}`, "/a~1b~0c must be null, not an integer"},
	})
}

func TestEachKeywordReportsItsProblem(t *testing.T) {
	t.Parallel()
	checkAll(t, []checkCase{
		{`false`, `1`, "must not be there"},
		{`{"const":1.0}`, `1`, ""},
		{`{"const":{"a":[1,2]}}`, `{"a":[1,3]}`, `must be {"a":[1,2]}`},
		{`{"multipleOf":0.1}`, `0.3`, ""},
		{`{"multipleOf":0.1}`, `0.35`, "must be a multiple of 0.1, not 0.35"},
		{`{"maximum":9007199254740993}`, `9007199254740994`, "must be at most 9007199254740993, not 9007199254740994"},
		{`{"exclusiveMinimum":-1e2}`, `-1.5e2`, "must be above -1e2, not -1.5e2"},
		{`{"type":["string","null"]}`, `1`, "must be a string or null, not an integer"},
		{`{"anyOf":[{"type":"string"},{"type":"object","required":["x"]}]}`, `{}`, "fits none of 2 alternatives (1: must be a string, not an object; 2: /x is missing)"},
		{`{"oneOf":[{"type":"number"},{"type":"integer"}]}`, `1`, "fits alternatives 1 and 2 of 2, but must fit exactly one"},
		{`{"not":{"type":"string"}}`, `"x"`, "must not have this form"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, "/b is missing"},
		{`{"dependentRequired":{"card":["name"]}}`, `{"card":1}`, `/name is missing; "card" requires it`},
		{`{"contains":{"type":"string"},"minContains":2}`, `["a",1]`, "must have at least 2 items that fit contains, not 1"},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, "/ab has a name that is not allowed"},
		{`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1,"b":2}`, "/b is not known; leave it out"},
		{`{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}},"$ref":"#/$defs/n"}`, `{"next":{"next":{"nxt":1}}}`, "/next/next/nxt is not known; known are next"},
		{`{"definitions":{"a/b":{"type":"null"}},"$ref":"#/definitions/a~1b"}`, `1`, "must be null, not an integer"},
		{`{"$defs":{"x":{"$anchor":"here","type":"null"}},"$ref":"#here"}`, `1`, "must be null, not an integer"},
	})
}

// checkCase is a value and the problems that it has.
type checkCase struct{ schema, value, want string }

func checkAll(t *testing.T, tests []checkCase) {
	t.Helper()
	for _, test := range tests {
		if got := check(t, test.schema, test.value); got != test.want {
			t.Errorf("%s against %.80s:\n got %s\nwant %s", test.value, test.schema, got, test.want)
		}
	}
}

func TestSchemasThatCannotBeCheckedAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`:                                    "not JSON",
		`"x"`:                                  "an object or a boolean",
		`{"type":"any"}`:                       `at /type: there is no type "any"`,
		`{"properties":{"a":{"type":1}}}`:      "at /properties/a/type",
		`{"required":1}`:                       "a list of strings",
		`{"minimum":"1"}`:                      "minimum must be a number",
		`{"maxItems":-1}`:                      "0 or more",
		`{"multipleOf":0}`:                     "above 0",
		`{"pattern":"(?=x"}`:                   "ECMA-262: it has a ( without a )",
		`{"patternProperties":{"(":{}}}`:       "ECMA-262",
		`{"$ref":"#/$defs/none"}`:              "has no target",
		`{"$ref":"https://x.example/s"}`:       "leads out of the schema",
		`{"$ref":"file:///etc/passwd"}`:        "leads out of the schema",
		`{"$ref":"#"}`:                         "refers to itself",
		`{"allOf":[{"anyOf":[{"$ref":"#"}]}]}`: "refers to itself",
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}}}`: "refers to itself",
		strings.Repeat(`{"not":`, 300) + "{}" + strings.Repeat("}", 300):        "nested deeper",
		`{"title":"` + strings.Repeat("x", 2<<20) + `"}`:                        "bytes",
		`{"pattern":"` + strings.Repeat("x", 3000) + `"}`:                       "bytes",
	} {
		if _, err := schema.Compile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile(%.100s) = %.200v, want %q", text, err, want)
		}
	}
}

func TestHostileSchemasAndValuesEndSoon(t *testing.T) {
	t.Parallel()
	doubling := `{"$defs":{"n0":{"type":"string"}`
	for i := 1; i <= 40; i++ {
		doubling += fmt.Sprintf(`,"n%d":{"anyOf":[{"allOf":[{"$ref":"#/$defs/n%d"}]},{"$ref":"#/$defs/n%d"}]}`, i, i-1, i-1)
	}
	doubling += `},"$ref":"#/$defs/n40"}`
	nested := `{"items":{"$ref":"#"}}`
	tests := map[string]struct{ schema, value, want string }{
		"alternatives that double":  {doubling, `1`, "too large to be checked"},
		"a deep value":              {nested, strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested too deeply"},
		"a value deeper than JSON":  {nested, strings.Repeat("[", 1_000_000), "is not JSON"},
		"a huge array":              {`{"items":{"type":"string"}}`, "[" + strings.Repeat("1,", 500_000) + "1]", "/7 must be a string"},
		"a huge array that fits":    {`{"items":{"type":"integer"},"uniqueItems":false}`, "[" + strings.Repeat("1,", 500_000) + "1]", ""},
		"a huge exponent":           {`{"minimum":1,"multipleOf":3,"type":"integer"}`, `1e999999999999999999999`, ""},
		"a small exponent":          {`{"type":"integer"}`, `1e-999999999999999999999`, "must be an integer"},
		"many digits":               {`{"multipleOf":7}`, strings.Repeat("9", 1<<20), ""},
		"a pattern that backtracks": {`{"pattern":"^(a+)+$"}`, `"` + strings.Repeat("a", 100_000) + `b"`, "must match"},
		"names without end":         {`{"additionalProperties":false}`, `{"` + strings.Repeat("n", 1<<20) + `":1}`, "is not known"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			if got := check(t, test.schema, test.value); !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %.300s, want %q", got, test.want)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestDefaultsFillMissingMembers(t *testing.T) {
	t.Parallel()
	text := `{"properties":{"n":{"default":12345678901234567890},"o":{"default":{},"properties":{"deep":{"default":"<x>"}}},
		"r":{"$ref":"#/$defs/d"},"keep":{"default":1},"none":{"properties":{"x":{"default":1}}}},
		"allOf":[{"properties":{"all":{"default":true}}}],"$defs":{"d":{"default":[1]}}}`
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.ApplyDefaults([]byte(`{"keep":null,"own":1.0}`))
	want := `{"all":true,"keep":null,"n":12345678901234567890,"o":{"deep":"<x>"},"own":1.0,"r":[1]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	again, err := s.ApplyDefaults([]byte(`{}`))
	if err != nil || strings.Contains(string(again), "own") {
		t.Errorf("got %s, %v, want defaults that the first value has not changed", again, err)
	}
	endless, err := schema.Compile([]byte(`{"properties":{"a":{"default":{},"$ref":"#"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := endless.ApplyDefaults([]byte(`{}`)); err == nil || !strings.Contains(err.Error(), "deeply") {
		t.Errorf("a default without end = %v, want an error", err)
	}
}

// The library that makes schemas of Go types also checks values. It handles numbers less exactly and has
// no limits, but agrees on ordinary schemas and values.
func TestTheAnswerIsThatOfAnotherImplementation(t *testing.T) {
	t.Parallel()
	values := rapid.SampledFrom([]any{nil, true, "a", "ab", 1.0, 2.5, -3.0, []any{}, []any{1.0, "a"}, []any{1.0, 1.0}, map[string]any{}, map[string]any{"a": 1.0}, map[string]any{"a": "x", "b": []any{true}}})
	leaf := rapid.SampledFrom([]string{
		`true`, `false`, `{"type":"string"}`, `{"type":["null","number"]}`, `{"type":"integer"}`, `{"enum":[1,"a",null]}`, `{"const":{"a":1}}`,
		`{"minimum":2}`, `{"exclusiveMaximum":1}`, `{"minLength":2}`, `{"pattern":"b"}`, `{"uniqueItems":true}`, `{"minItems":1}`,
		`{"required":["a"]}`, `{"additionalProperties":false,"properties":{"a":{}}}`, `{"maxProperties":1}`, `{"dependentRequired":{"a":["b"]}}`,
	})
	text := rapid.Custom(func(t *rapid.T) string {
		a, b, c := leaf.Draw(t, "a"), leaf.Draw(t, "b"), leaf.Draw(t, "c")
		form := rapid.SampledFrom([]string{
			`{"allOf":[%s,%s,%s]}`, `{"anyOf":[%s,%s,%s]}`, `{"oneOf":[%s,%s,%s]}`, `{"if":%s,"then":%s,"else":%s}`, `{"not":{"anyOf":[%s,%s]},"anyOf":[true,%s]}`,
			`{"items":%s,"contains":%s,"not":%s}`, `{"properties":{"a":%s},"additionalProperties":%s,"anyOf":[%s,true]}`,
			`{"anyOf":[%s,{"properties":{"b":%s}}],"unevaluatedProperties":%s}`, `{"prefixItems":[%s],"unevaluatedItems":%s,"anyOf":[%s,true]}`,
		}).Draw(t, "form")
		return fmt.Sprintf(form, a, b, c)
	})
	rapid.Check(t, func(t *rapid.T) {
		text, value := text.Draw(t, "schema"), values.Draw(t, "value")
		var theirs jsonschema.Schema
		if err := json.Unmarshal([]byte(text), &theirs); err != nil {
			t.Fatal(err)
		}
		resolved, err := theirs.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := schema.Compile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := ours.Check(raw), resolved.Validate(value); (len(got) == 0) != (want == nil) {
			t.Errorf("%s against %s = %v, the other says %v", raw, text, got, want)
		}
	})
}

func FuzzNoSchemaAndNoValueBreaksTheCheck(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"enum":[1,"b"]}}}`, `{"a":1}`},
		{`{"items":[{"const":1}],"additionalItems":false,"contains":{"minimum":1e3}}`, `[1,-2.5e-7]`},
		{`{"anyOf":[{"pattern":"^a"},{"multipleOf":0.01}],"unevaluatedProperties":false}`, `"\ud800"`},
		{`{"dependencies":{"a":["b"],"c":{"required":["d"]}},"default":{"x":1}}`, `{"a":null,"c":[]}`},
		{`{"$id":"x","$anchor":"y","$ref":"x#y%2F"}`, `0`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		s, err := schema.Compile([]byte(text))
		if err != nil {
			return
		}
		first, second := s.Check([]byte(value)), s.Check([]byte(value))
		if fmt.Sprint(first) != fmt.Sprint(second) {
			t.Errorf("%s against %s = %v, then %v", value, text, first, second)
		}
		if _, err := s.ApplyDefaults([]byte(value)); err == nil && !json.Valid([]byte(value)) {
			t.Errorf("defaults fill %s", value)
		}
	})
}
