package schemaform_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform/schemaformtest"
)

// provider has the rules of a provider, and the checker of what it publishes.
type provider struct {
	rules schemaform.Rules
	check schemaformtest.Checker
}

// providers are the rules as the providers' packages have them, beside their checkers.
func providers() map[string]provider {
	gemini := schemaform.Rules{Complete: true, Keywords: schemaformtest.GeminiKeywords, Formats: []string{"date-time"}}
	return map[string]provider{
		"anthropic": {schemaform.Rules{PropertyName: regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)}, schemaformtest.Anthropic},
		"openai":    {schemaform.Rules{Complete: true}, schemaformtest.OpenAI},
		"gemini":    {gemini, schemaformtest.Gemini},
	}
}

func TestEachOddToolHasAFormThatEachProviderAccepts(t *testing.T) {
	t.Parallel()
	for _, tool := range schemaformtest.Tools(t) {
		for name, p := range providers() {
			form := p.rules.Form(tool.Schema)
			if problems := p.check.Problems(form); len(problems) > 0 {
				t.Errorf("%s, %s: %s\n\t%s", tool.Name, name, form, strings.Join(problems, "\n\t"))
			}
			if again := p.rules.Form(form); string(again) != string(form) {
				t.Errorf("%s, %s: the form of the form is\n%s, want\n%s", tool.Name, name, again, form)
			}
			compiled, err := agent.CompileSchema(form)
			if err != nil {
				t.Errorf("%s, %s: %s: %v", tool.Name, name, form, err)
				continue
			}
			for _, arguments := range tool.Good {
				if problems := compiled.Check(json.RawMessage(arguments)); problems != nil {
					t.Errorf("%s, %s: the form refuses %s: %v\n%s", tool.Name, name, arguments, problems, form)
				}
			}
		}
	}
}

func TestTheOriginalOfEachOddToolDecidesWhatItsArgumentsAre(t *testing.T) {
	t.Parallel()
	tools := schemaformtest.Tools(t)
	if len(tools) < 20 {
		t.Fatalf("got %d tools, want 20 or more", len(tools))
	}
	for _, tool := range tools {
		compiled, err := agent.CompileSchema(tool.Schema)
		if err != nil {
			t.Errorf("%s (%s): %v", tool.Name, tool.Of, err)
			continue
		}
		for _, arguments := range tool.Good {
			if problems := compiled.Check(json.RawMessage(arguments)); problems != nil {
				t.Errorf("%s: %s is refused: %v", tool.Name, arguments, problems)
			}
		}
		for _, arguments := range tool.Bad {
			if problems := compiled.Check(json.RawMessage(arguments)); problems == nil {
				t.Errorf("%s: %s is accepted, want a problem", tool.Name, arguments)
			}
		}
	}
}

func TestFormsRewriteWhatMustChangeAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ about, provider, schema, want string }{
		{"a plain schema stays as it is written", "anthropic",
			`{"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "array"}}}`,
			`{"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "array"}}}`},
		{"alternatives that only require become words", "anthropic",
			`{"type":"object","properties":{"a":{},"b":{}},"oneOf":[{"required":["a"]},{"required":["b"]}]}`,
			`{"description":"Exactly one of these is required: a; b.","properties":{"a":{},"b":{}},"type":"object"}`},
		{"what all alternatives require stays required", "openai",
			`{"anyOf":[{"properties":{"a":{"type":"string"},"b":{}},"required":["a","b"]},{"properties":{"a":{"type":"integer"}},"required":["a"]}]}`,
			`{"description":"At least one of these is required: a; a and b.","properties":{"a":{"anyOf":[{"type":"string"},{"type":"integer"}]},"b":{}},"required":["a"],"type":"object"}`},
		{"refused names are dropped and named", "anthropic",
			`{"type":"object","properties":{"a[b]":{},"c":{}},"required":["a[b]","c"],"additionalProperties":false}`,
			`{"description":"It also takes: a[b].","properties":{"c":{}},"required":["c"],"type":"object"}`},
		{"a reference without a target is open", "openai", `{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}`, `{"properties":{"a":{}},"type":"object"}`},
		{"a recursive reference ends with its type", "gemini",
			`{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}}`,
			`{"properties":{"n":{"properties":{"n":{"type":"object"}},"type":"object"}},"type":"object"}`},
		{"a list of types becomes alternatives", "gemini",
			`{"type":"object","properties":{"v":{"type":["string","integer"],"minimum":1,"description":"d"}}}`,
			`{"properties":{"v":{"anyOf":[{"type":"string"},{"minimum":1,"type":"integer"}],"description":"d"}},"type":"object"}`},
		{"what is no object stays", "openai", `true`, `true`},
	} {
		if got := providers()[c.provider].rules.Form(json.RawMessage(c.schema)); string(got) != c.want {
			t.Errorf("%s: got\n%s, want\n%s", c.about, got, c.want)
		}
	}
}

func TestAFormOfAHostileSchemaIsBounded(t *testing.T) {
	t.Parallel()
	// Each level refers twice to the next one: 2^40 parts, if all were copied.
	var defs []string
	for i := range 40 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}}`, i, i+1, i+1))
	}
	schema := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{` + strings.Join(append(defs, `"d40":{"type":"string"}`), ",") + `}}`
	var branches []string
	for i := range 40 {
		branches = append(branches, fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	unions := `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(append(branches, `"d40":{"type":"object"}`), ",") + `}}`
	for name, p := range providers() {
		for _, hostile := range []string{schema, unions} {
			form := p.rules.Form(json.RawMessage(hostile))
			if problems := p.check.Problems(form); len(form) > 1<<20 || len(problems) > 0 {
				t.Errorf("%s: got a form of %d bytes with the problems %v", name, len(form), problems)
			}
		}
	}
}

func TestFormsRememberWhatTheyHaveRewritten(t *testing.T) {
	t.Parallel()
	forms := schemaform.NewForms(schemaform.Rules{Complete: true})
	tools := []model.Tool{{Name: "a", InputSchema: json.RawMessage(`{"type":"object"}`)}, {Name: "b"}}
	first, second := forms.Tools(tools), forms.Tools(tools)
	if want := `{"properties":{},"type":"object"}`; string(first[0].InputSchema) != want || &first[0].InputSchema[0] != &second[0].InputSchema[0] {
		t.Errorf("got %s and another one, want %s once", first[0].InputSchema, want)
	}
	if string(tools[0].InputSchema) != `{"type":"object"}` || second[1].InputSchema != nil {
		t.Errorf("got %s and %s, want the tools of the caller unchanged and no schema where there is none", tools[0].InputSchema, second[1].InputSchema)
	}
	list := &model.Output{Name: "o", Schema: json.RawMessage(`{"type":"array"}`)}
	if got := forms.Output(list); string(got.Schema) != `{"type":"array"}` || forms.Output(nil) != nil {
		t.Errorf("got %s, want the schema of a list unchanged", got.Schema)
	}
}
