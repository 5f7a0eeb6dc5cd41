package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/schema"
)

func repeated(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if strings.Contains(format, "%") {
			fmt.Fprintf(&b, format, i)
		} else {
			b.WriteString(format)
		}
	}
	return b.String()
}

func TestAllWorkOfACheckCounts(t *testing.T) {
	t.Parallel()
	object := "{" + repeated(20_000, `"m%d":1`) + "}"
	text := `"` + strings.Repeat("x", 2<<20) + `"`
	for name, test := range map[string]struct{ schema, value string }{
		"members of many alternatives":      {`{"oneOf":[` + repeated(100, `{"additionalProperties":false}`) + `]}`, object},
		"names that do not exist":           {`{"items":{"properties":{` + repeated(2000, `"p%d":{}`) + `}}}`, "[" + repeated(600, `{`+repeated(2000, `"m%d":1`)+`}`) + "]"},
		"evaluated members of alternatives": {`{"unevaluatedProperties":false,"anyOf":[` + strings.Repeat(`{"anyOf":[`, 60) + `{"additionalProperties":true}` + strings.Repeat(`]}`, 60) + `]}`, object},
		"members without evaluation":        {`{"unevaluatedProperties":true,"allOf":[` + repeated(100, `{"unevaluatedProperties":true}`) + `]}`, object},
		"required members":                  {`{"items":{"required":[` + repeated(5000, `"a"`) + `]}}`, "[" + repeated(500, `{"a":1}`) + "]"},
		"needed members":                    {`{"items":{"dependentRequired":{"a":[` + repeated(5000, `"a"`) + `]}}}`, "[" + repeated(500, `{"a":1}`) + "]"},
		"values to compare":                 {`{"items":{"allOf":[` + repeated(50, `{"enum":[`+text[:15_000]+`"]}`) + `]}}`, `[` + repeated(100, text[:15_000]+`"`) + `]`},
		"items to compare":                  {`{"allOf":[` + repeated(8, `{"uniqueItems":true}`) + `]}`, `[` + text + `]`},
		"long numbers":                      {`{"allOf":[` + repeated(100, `{"type":"integer"}`) + `]}`, "1." + strings.Repeat("0", 2<<20)},
		"long numbers in enums":             {`{"allOf":[` + repeated(100, `{"enum":[[1]]}`) + `]}`, "[1." + strings.Repeat("0", 2<<20) + "]"},
		"divisions":                         {`{"items":{"multipleOf":3}}`, "[" + repeated(50_000, "3e1990") + "]"},
		"lengths":                           {`{"allOf":[` + repeated(100, `{"minLength":1}`) + `]}`, text},
		"a program on a long text":          {`{"pattern":"(?:.*x){50}y"}`, text},
		"programs on many names":            {`{"patternProperties":{"(?:.*[a-c]){300}$":{},"(?:.*[a-d]){300}$":{}}}`, "{" + repeated(20_000, `"abcabcabcabcabcabcabc%d":1`) + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := check(t, test.schema, test.value); !strings.Contains(got, "too large to be checked") {
				t.Errorf("got %.200q, want that the value is too large", got)
			}
		})
	}
}

func TestLargeValuesOfPlainSchemasAreChecked(t *testing.T) {
	t.Parallel()
	object := "{" + repeated(100_000, `"m%d":1`) + "}"
	image := `"data:image/png;base64,` + strings.Repeat("QUJD", 750_000) + `"`
	for schema, value := range map[string]string{
		`{"additionalProperties":{"type":"integer"}}`:                                          object,
		`{"properties":{"m5":{"const":1}},"required":["m5"],"unevaluatedProperties":true}`:     object,
		`{"pattern":"^data:image/(png|jpe?g|webp);base64,[A-Za-z0-9+/]+={0,2}$"}`:              image,
		`{"anyOf":[{"const":"none"},{"enum":["auto","always"]},{"type":"string"}]}`:            image,
		`{"items":{"enum":["a","b"]}}`:                                                         "[" + repeated(300_000, `"a"`) + "]",
		`{"items":{"properties":{"a":{"type":"string","pattern":"^[a-z]{1,20}$"}}}}`:           "[" + repeated(50_000, `{"a":"word"}`) + "]",
		`{"items":{"type":"object","required":["id","n"],"properties":{"id":{},"n":{}}}}`:      "[" + repeated(50_000, `{"id":"x%d","n":1}`) + "]",
		`{"enum":[{"a":[1,"x"],"b":{}}]}`:                                                      `{"b":{},"a":[1.0,"x"]}`,
		`{"pattern":"^[\\p{L}\\p{N} .'-]{1,100}$"}`:                                            `"Zoë"`,
		`{"items":{"multipleOf":0.01}}`:                                                        "[" + repeated(100_000, `12.34`) + "]",
		`{"type":["string","string","null"],"anyOf":[{"type":"string"},{"type":["integer"]}]}`: `"x"`,
	} {
		if got := check(t, schema, value); got != "" {
			t.Errorf("a value of %d bytes against %.80s: %.200s", len(value), schema, got)
		}
	}
}

func TestPatternsThatTakeTooMuchAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"pattern":"` + strings.Repeat("a{1000}", 20) + `"}`:              "instructions; at most 5000 are allowed; repeat less",
		`{"patternProperties":{"a{1000}b{1000}c{1000}d{1000}e{1000}":{}}}`: "at /patternProperties",
		`{"allOf":[` + repeated(60, `{"pattern":"a{1000}b{900}"}`) + `]}`:  "together",
	} {
		if _, err := schema.Compile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile(%.80s) = %.200v, want %q", text, err, want)
		}
	}
}

func TestTheValuesOfAnEnumAreBoundedTogether(t *testing.T) {
	t.Parallel()
	depth := 60
	text := strings.Repeat(`{"enum":[`, depth) + `"` + strings.Repeat("x", 900_000) + `"` + strings.Repeat(`]}`, depth)
	refs := make([]string, 0, depth)
	for i := 1; i < depth; i++ {
		refs = append(refs, `{"$ref":"#/$defs/e`+strings.Repeat("/enum/0", i)+`"}`)
	}
	if _, err := schema.Compile([]byte(`{"anyOf":[` + strings.Join(refs, ",") + `],"$defs":{"e":` + text + `}}`)); err == nil || !strings.Contains(err.Error(), "enum and const") {
		t.Errorf("Compile = %.200v, want that the enums are too large", err)
	}
}

func TestALongPlaceIsCut(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile([]byte(`{"additionalProperties":{"additionalProperties":false}}`))
	if err != nil {
		t.Fatal(err)
	}
	problems := s.Check([]byte(`{"` + strings.Repeat("n", 1<<20) + `":{"x":1}}`))
	if len(problems) != 1 || len(problems[0].Path) > 1100 || !strings.HasPrefix(problems[0].Path, "/nnn") {
		t.Errorf("problems = %.300v, want one with the begin of its place", problems)
	}
}
