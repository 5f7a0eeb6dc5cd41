// Package schemaformtest has tools with schemas like the ones of public MCP servers, and checks the forms for
// providers.
package schemaformtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Tool is a tool with an odd schema.
type Tool struct {
	Of     string          `json:"of"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Good   []string        `json:"good"` // arguments that the schema allows
	Bad    []string        `json:"bad"`  // arguments that it does not
}

//go:embed tools.json
var tools []byte

// Tools returns the tools.
func Tools(t testing.TB) []Tool {
	t.Helper()
	var list []Tool
	if err := json.Unmarshal(tools, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// GeminiKeywords are the keywords that Gemini documents.
var GeminiKeywords = []string{
	"additionalProperties", "anyOf", "description", "enum", "format", "items", "maxItems", "maximum", "minItems", "minimum",
	"prefixItems", "properties", "propertyOrdering", "required", "title", "type",
}

// The checkers are written from what the providers document and refuse.
var (
	Anthropic = Checker{rootName: regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)}
	OpenAI    = Checker{needsItems: true, needsProperties: true}
	Gemini    = Checker{needsItems: true, needsProperties: true, keywords: GeminiKeywords, simple: true}
)

// Checker is a strict reader of what a provider documents about the schemas of tools, and of the texts of its refusals.
type Checker struct {
	rootName        *regexp.Regexp // of the properties of the root
	needsItems      bool
	needsProperties bool
	keywords        []string // nil for those of draft 2020-12, and unknown ones
	simple          bool     // one type beside null, required names are properties, enums of strings or numbers
}

// Problems returns what is wrong with the schema of a tool.
func (c Checker) Problems(raw json.RawMessage) []string {
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		return []string{"not an object: " + err.Error()}
	}
	f := &findings{Checker: c, root: root}
	if root["type"] != "object" {
		f.add("", "type is %v", root["type"])
	}
	for _, keyword := range []string{"oneOf", "anyOf", "allOf", "enum", "const", "not", "if", "$ref"} {
		if _, has := root[keyword]; has {
			f.add("", "%s is at the root", keyword)
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
	Checker
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
			f.add(at, "%v is repeated", item)
		}
		seen[text] = true
		kinds[fmt.Sprintf("%T", item)] = true
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

// StrictProblems returns what constrained decoding of OpenAI refuses about a schema: each object must be closed and require
// all of its properties.
// https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
func StrictProblems(raw json.RawMessage) (problems []string) {
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return []string{"not JSON: " + err.Error()}
	}
	var visit func(at string, value any)
	visit = func(at string, value any) {
		node, isObject := value.(map[string]any)
		if !isObject {
			return
		}
		properties, _ := node["properties"].(map[string]any)
		if node["type"] == "object" || properties != nil {
			required, _ := node["required"].([]any)
			if node["additionalProperties"] != false || len(required) != len(properties) {
				problems = append(problems, at+": an object is open, or a property is optional")
			}
		}
		for name, sub := range properties {
			visit(at+"/properties/"+name, sub)
		}
		for _, keyword := range []string{"items", "additionalProperties", "not"} {
			visit(at+"/"+keyword, node[keyword])
		}
		for _, keyword := range []string{"anyOf", "oneOf", "allOf", "prefixItems"} {
			list, _ := node[keyword].([]any)
			for i, sub := range list {
				visit(fmt.Sprintf("%s/%s/%d", at, keyword, i), sub)
			}
		}
	}
	visit("", root)
	return problems
}
