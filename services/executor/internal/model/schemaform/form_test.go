package schemaform_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform"
)

// oddTool is a tool with a schema like those that public MCP servers publish.
type oddTool struct {
	Of     string          `json:"of"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Good   []string        `json:"good"` // arguments that the schema allows
	Bad    []string        `json:"bad"`  // arguments that it does not
}

func oddTools(t *testing.T) []oddTool {
	t.Helper()
	raw, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var tools []oddTool
	if err := json.Unmarshal(raw, &tools); err != nil {
		t.Fatal(err)
	}
	return tools
}

// provider has the rules of a provider, and a checker of what it publishes.
type provider struct {
	rules schemaform.Rules
	check checker
}

var geminiKeywords = []string{
	"additionalProperties", "anyOf", "description", "enum", "format", "items", "maxItems", "maximum", "minItems", "minimum",
	"prefixItems", "properties", "propertyOrdering", "required", "title", "type",
}

// providers are the rules as the providers' packages have them, beside checkers that are written from what the
// providers document and refuse.
func providers() map[string]provider {
	name := regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	return map[string]provider{
		"anthropic": {schemaform.Rules{PropertyName: name}, checker{rootName: name}},
		"openai":    {schemaform.Rules{Complete: true}, checker{needsItems: true, needsProperties: true}},
		"gemini": {
			schemaform.Rules{Complete: true, Keywords: geminiKeywords, Formats: []string{"date-time"}},
			checker{needsItems: true, needsProperties: true, keywords: geminiKeywords, simple: true},
		},
	}
}

func TestEachOddToolHasAFormThatEachProviderAccepts(t *testing.T) {
	t.Parallel()
	for _, tool := range oddTools(t) {
		for name, p := range providers() {
			form := p.rules.Form(tool.Schema)
			if problems := p.check.root(form); len(problems) > 0 {
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
	tools := oddTools(t)
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
			if problems := p.check.root(form); len(form) > 1<<20 || len(problems) > 0 {
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

// checker is a strict reader of what a provider documents about the schemas of tools, and of the texts of its refusals.
type checker struct {
	rootName        *regexp.Regexp // of the properties of the root
	needsItems      bool
	needsProperties bool
	keywords        []string // nil for those of draft 2020-12, and unknown ones
	simple          bool     // one type beside null, required names are properties, enums of strings or numbers
}

// root returns what is wrong with the schema of a tool.
func (c checker) root(raw json.RawMessage) []string {
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		return []string{"not an object: " + err.Error()}
	}
	f := &findings{checker: c, root: root}
	if root["type"] != "object" {
		f.add("", "type is %v", root["type"])
	}
	for _, keyword := range []string{"oneOf", "anyOf", "allOf", "enum", "const", "not", "if", "$ref"} {
		if _, has := root[keyword]; has {
			f.add("", "%s stands at the root", keyword)
		}
	}
	properties, has := root["properties"].(map[string]any)
	if c.needsProperties && !has {
		f.add("", "properties are missing")
	}
	for name := range properties {
		if c.rootName != nil && !c.rootName.MatchString(name) {
			f.add("", "the property %q has a refused name", name)
		}
	}
	f.schema("", root)
	return f.list
}

type findings struct {
	checker
	root map[string]any
	list []string
}

func (f *findings) add(at, format string, args ...any) {
	f.list = append(f.list, at+": "+fmt.Sprintf(format, args...))
}

var types = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// schema checks one subschema by the metaschema of draft 2020-12 and the rules of the provider.
func (f *findings) schema(at string, value any) {
	node, ok := value.(map[string]any)
	if !ok {
		f.add(at, "it is %v, not an object", value)
		return
	}
	for keyword, value := range node {
		if f.keywords != nil && !slices.Contains(f.keywords, keyword) {
			f.add(at, "the keyword %s is not supported", keyword)
		}
		f.keyword(at+"/"+keyword, keyword, value)
	}
	f.types(at, node)
	if required, ok := node["required"].([]any); ok && f.simple {
		properties, _ := node["properties"].(map[string]any)
		for _, name := range required {
			if _, has := properties[name.(string)]; !has {
				f.add(at, "the required %v is no property", name)
			}
		}
	}
}

func (f *findings) types(at string, node map[string]any) {
	names, _ := node["type"].([]any)
	if name, ok := node["type"].(string); ok {
		names = []any{name}
	}
	for _, name := range names {
		text, _ := name.(string)
		if !slices.Contains(types, text) {
			f.add(at, "there is no type %v", name)
		}
	}
	if f.needsItems && slices.Contains(names, any("array")) && node["items"] == nil {
		f.add(at, "a list without items")
	}
	if f.simple && (len(names) > 2 || len(names) == 2 && !slices.Contains(names, any("null"))) {
		f.add(at, "several types: %v", names)
	}
}

func (f *findings) keyword(at, keyword string, value any) {
	switch keyword {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		named, ok := value.(map[string]any)
		if !ok {
			f.add(at, "it is not an object")
		}
		for name, sub := range named {
			f.schema(at+"/"+name, sub)
		}
	case "allOf", "anyOf", "oneOf", "prefixItems":
		list, ok := value.([]any)
		if !ok || len(list) == 0 {
			f.add(at, "it is not a list of schemas")
		}
		for i, sub := range list {
			f.schema(fmt.Sprintf("%s/%d", at, i), sub)
		}
	case "additionalProperties", "unevaluatedProperties", "unevaluatedItems":
		if _, isBool := value.(bool); !isBool {
			f.schema(at, value)
		}
	case "items", "contains", "not", "if", "then", "else", "propertyNames":
		f.schema(at, value)
	case "required":
		f.distinct(at, value, true)
	case "enum":
		f.distinct(at, value, false)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems":
		if _, ok := value.(float64); !ok {
			f.add(at, "%v is not a number", value)
		}
	case "title", "description", "format", "pattern", "$id", "$anchor":
		if _, ok := value.(string); !ok {
			f.add(at, "%v is not a text", value)
		}
	case "$ref":
		f.reference(at, value)
	case "nullable", "dependencies", "additionalItems", "$recursiveRef", "$dynamicRef", "$schema":
		f.add(at, "it belongs to another draft")
	}
}

func (f *findings) distinct(at string, value any, names bool) {
	list, ok := value.([]any)
	if !ok || len(list) == 0 && !names {
		f.add(at, "it is not a list of values")
	}
	seen := map[string]bool{}
	kinds := map[string]bool{}
	for _, item := range list {
		text := fmt.Sprintf("%T %v", item, item)
		if seen[text] {
			f.add(at, "%v is there twice", item)
		}
		seen[text], kinds[fmt.Sprintf("%T", item)] = true, true
	}
	if names && len(list) > 0 && (len(kinds) > 1 || !kinds["string"]) {
		f.add(at, "it is not a list of names")
	}
	if !names && f.simple && (len(kinds) > 1 || !kinds["string"] && !kinds["float64"]) {
		f.add(at, "it is not a list of texts or of numbers: %v", list)
	}
}

func (f *findings) reference(at string, value any) {
	ref, _ := value.(string)
	pointer, local := strings.CutPrefix(ref, "#")
	if !local || pointer != "" && !strings.HasPrefix(pointer, "/") {
		return // an anchor or an identifier
	}
	var target any = f.root
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if object, ok := target.(map[string]any); ok && pointer != "" {
			target = object[token]
		}
	}
	if _, ok := target.(map[string]any); !ok {
		f.add(at, "%s has no target", ref)
	}
}
