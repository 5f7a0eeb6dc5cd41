package schemaform

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// modernize rewrites the idioms of older drafts and of OpenAPI into draft 2020-12, and removes what no draft allows.
func modernize(node map[string]any) {
	for keyword, value := range node {
		if value == nil && !slices.Contains(valueKeywords, keyword) {
			delete(node, keyword) // generators write null for what is missing
		}
	}
	delete(node, "$schema") // it may name an older draft
	requireMarked(node)
	renameKeyword(node, "$recursiveRef", "$ref")
	renameKeyword(node, "$dynamicRef", "$ref")
	renameKeyword(node, "$dynamicAnchor", "$anchor")
	delete(node, "$recursiveAnchor")
	modernizeItems(node)
	modernizeDependencies(node)
	modernizeBounds(node)
	modernizeValues(node)
	for _, keyword := range []string{"title", "description", "format", "pattern", "$ref", "$id", "$anchor", "$comment"} {
		if _, isText := node[keyword].(string); !isText {
			delete(node, keyword)
		}
	}
	edit(node, modernizeSub)
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "prefixItems"} {
		if list, ok := node[keyword].([]any); !ok || len(list) == 0 {
			delete(node, keyword)
		}
	}
}

// modernizeSub rewrites a subschema. Some APIs refuse booleans as schemas: true becomes an empty schema, and a property
// or a false alternative is removed.
func modernizeSub(sub any) (to any, drop bool) {
	switch sub := sub.(type) {
	case map[string]any:
		modernize(sub)
		return sub, false
	case bool:
		return map[string]any{}, !sub
	}
	return nil, true // not a schema
}

// requireMarked requires the properties that say so themselves, as in draft 3.
func requireMarked(node map[string]any) {
	properties, _ := node["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if of, ok := properties[name].(map[string]any); ok && of["required"] == true {
			node["required"] = toAny(append(texts(node["required"]), name))
		}
	}
}

func renameKeyword(node map[string]any, from, to string) {
	value, ok := node[from]
	if !ok {
		return
	}
	delete(node, from)
	if _, taken := node[to]; !taken {
		node[to] = value
	}
}

// modernizeItems rewrites a list of items.
func modernizeItems(node map[string]any) {
	if list, ok := node["items"].([]any); ok {
		delete(node, "items")
		if len(list) > 0 {
			node["prefixItems"] = list
		}
		renameKeyword(node, "additionalItems", "items")
	}
	delete(node, "additionalItems")
}

// modernizeDependencies splits dependencies into dependentRequired and dependentSchemas.
func modernizeDependencies(node map[string]any) {
	old, _ := node["dependencies"].(map[string]any)
	delete(node, "dependencies")
	for name, need := range old {
		keyword := "dependentSchemas"
		if _, isList := need.([]any); isList {
			keyword = "dependentRequired"
		}
		of, ok := node[keyword].(map[string]any)
		if !ok {
			of = map[string]any{}
			node[keyword] = of
		}
		if of[name] == nil {
			of[name] = need
		}
	}
}

// modernizeBounds rewrites the boolean bounds of draft 4, and removes bounds other than numbers.
func modernizeBounds(node map[string]any) {
	for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		switch isExclusive, isBool := node[exclusive].(bool); {
		case !isBool:
		case isExclusive && node[bound] != nil:
			node[exclusive] = node[bound]
			delete(node, bound)
		default:
			delete(node, exclusive)
		}
	}
	for _, keyword := range numberKeywords {
		if _, isNumber := node[keyword].(json.Number); !isNumber {
			delete(node, keyword)
		}
	}
}

// numberKeywords have numbers as values.
var numberKeywords = []string{
	"exclusiveMaximum", "exclusiveMinimum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
	"minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
}

// modernizeValues rewrites type, enum, required and nullable.
func modernizeValues(node map[string]any) {
	switch types := node["type"].(type) {
	case string:
		if !isType(types) {
			delete(node, "type")
		}
	case []any:
		known := distinct(types, isType)
		node["type"] = known
		if len(known) == 0 {
			delete(node, "type")
		}
	default:
		delete(node, "type")
	}
	if list, ok := node["enum"].([]any); ok && len(list) > 0 {
		node["enum"] = distinct(list, anyValue)
	} else {
		delete(node, "enum")
	}
	if list, ok := node["required"].([]any); ok {
		node["required"] = distinct(list, isText)
	} else {
		delete(node, "required") // draft 3 has a boolean
	}
	if node["nullable"] == true {
		allowNull(node)
	}
	delete(node, "nullable")
}

func isText(value any) bool { _, ok := value.(string); return ok }

func isType(name any) bool {
	return slices.Contains([]any{"array", "boolean", "integer", "null", "number", "object", "string"}, name)
}

func anyValue(any) bool { return true }

// allowNull adds null to what a schema allows.
func allowNull(node map[string]any) {
	if list, ok := node["enum"].([]any); ok {
		node["enum"] = distinct(append(slices.Clone(list), nil), anyValue)
	}
	switch types := node["type"].(type) {
	case string:
		node["type"] = distinct([]any{types, "null"}, anyValue)
	case []any:
		node["type"] = distinct(append(slices.Clone(types), "null"), anyValue)
	}
	null := map[string]any{"type": "null"}
	if list, ok := node["anyOf"].([]any); ok {
		node["anyOf"] = append(slices.Clone(list), null)
	}
	if list, ok := node["oneOf"].([]any); ok {
		node["oneOf"] = append(slices.Clone(list), null)
	}
	if ref, ok := node["$ref"]; ok {
		delete(node, "$ref")
		node["anyOf"] = []any{map[string]any{"$ref": ref}, null}
	}
}

// distinct returns the items that fit, each once.
func distinct(list []any, fits func(any) bool) []any {
	kept := make([]any, 0, len(list))
	for _, item := range list {
		if fits(item) && !slices.ContainsFunc(kept, func(other any) bool { return reflect.DeepEqual(item, other) }) {
			kept = append(kept, item)
		}
	}
	return kept
}

// hasType reports whether a schema names a type.
func hasType(node map[string]any, name string) bool {
	list, ok := node["type"].([]any)
	return node["type"] == name || ok && slices.Contains(list, any(name))
}
