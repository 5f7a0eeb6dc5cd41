package schemaform

import (
	"encoding/json"
	"maps"
	"slices"
)

// The limits of a schema whose references are replaced. Beyond them a subschema keeps its type alone.
const (
	maxParts = 5000
	maxDepth = 24
)

// narrower rewrites a schema with the keywords of its rules.
type narrower struct {
	Rules
	*document
	parts int
}

// node rewrites a subschema. open are the references that lead to it.
func (n *narrower) node(node map[string]any, open []string) map[string]any {
	n.parts++
	if n.parts > maxParts || len(open) > maxDepth {
		return onlyType(node)
	}
	node = maps.Clone(node)
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			break
		}
		delete(node, "$ref")
		target, _ := clone(n.find(ref)).(map[string]any)
		if slices.Contains(open, ref) {
			return withMissing(node, onlyType(target)) // a recursive schema ends here
		}
		open = append(slices.Clone(open), ref)
		modernize(target) // it may lie outside of the places of schemas
		node = withMissing(node, target)
	}
	open = append(slices.Clone(open), "") // counts the depth
	for _, part := range objects(node["allOf"]) {
		merge(node, n.node(part, open))
	}
	n.rewrite(node)
	maps.DeleteFunc(node, func(keyword string, _ any) bool { return !slices.Contains(n.Keywords, keyword) })
	node = oneType(node)
	edit(node, func(sub any) (any, bool) {
		below, ok := sub.(map[string]any)
		if !ok {
			return sub, false
		}
		return n.node(below, open), false
	})
	if slices.ContainsFunc(objects(node["anyOf"]), func(one map[string]any) bool { return len(one) == 0 }) {
		delete(node, "anyOf") // an alternative that allows everything
	}
	dropUnknownRequired(node)
	return node
}

// onlyType returns a schema with the type of another one.
func onlyType(node map[string]any) map[string]any {
	short := map[string]any{}
	if name, ok := node["type"].(string); ok {
		short["type"] = name
		if name == "array" {
			short["items"] = map[string]any{}
		}
	}
	return short
}

// withMissing returns a schema with what it lacks from another one.
func withMissing(node, from map[string]any) map[string]any {
	for keyword, value := range from {
		if _, has := node[keyword]; !has {
			node[keyword] = value
		}
	}
	return node
}

// merge adds a part of allOf. Bounds of both stay where one keyword can hold both.
func merge(node, part map[string]any) {
	if theirs, ok := part["properties"].(map[string]any); ok {
		own, _ := node["properties"].(map[string]any)
		all := maps.Clone(theirs)
		maps.Copy(all, own)
		node["properties"] = all
	}
	if theirs := texts(part["required"]); len(theirs) > 0 {
		node["required"] = distinct(toAny(append(texts(node["required"]), theirs...)), anyValue)
	}
	for keyword, value := range part {
		_, has := node[keyword]
		if !has && keyword != "additionalProperties" { // it would forbid the properties of the other parts
			node[keyword] = value
		}
	}
}

// rewrite replaces keywords by equivalent or weaker ones known to more providers.
func (n *narrower) rewrite(node map[string]any) {
	if value, ok := node["const"]; ok {
		node["enum"] = []any{value}
	}
	if named, ok := node["patternProperties"].(map[string]any); ok && len(named) > 0 {
		delete(node, "additionalProperties")
		if len(named) == 1 {
			for _, sub := range named {
				node["additionalProperties"] = sub
			}
		}
	}
	for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		if value, ok := node[exclusive]; ok && node[bound] == nil {
			node[bound] = value
		}
	}
	if list, ok := node["oneOf"]; ok && node["anyOf"] == nil {
		node["anyOf"] = list
	}
	delete(node, "oneOf")
	if format, _ := node["format"].(string); n.Formats != nil && !slices.Contains(n.Formats, format) {
		delete(node, "format")
	}
	rewriteEnum(node)
}

// rewriteEnum keeps an enum of strings and numbers alone. Null becomes a type.
func rewriteEnum(node map[string]any) {
	list, ok := node["enum"].([]any)
	if !ok {
		return
	}
	delete(node, "enum")
	kept := slices.DeleteFunc(slices.Clone(list), func(value any) bool { return value == nil })
	null := len(kept) < len(list)
	numbers, strings := 0, 0
	for _, value := range kept {
		switch value.(type) {
		case json.Number:
			numbers++
		case string:
			strings++
		default:
			return // for example booleans: the type says as much
		}
	}
	if len(kept) == 0 || numbers > 0 && strings > 0 {
		return
	}
	if null && hasType(node, "null") {
		// An enum cannot hold null there, and its other values would forbid it.
		values := map[string]any{"enum": kept, "type": "string"}
		if numbers > 0 {
			values["type"] = "number"
		}
		delete(node, "type")
		node["anyOf"] = []any{values, map[string]any{"type": "null"}}
		return
	}
	node["enum"] = kept
	if _, ok := node["type"]; ok {
		return
	}
	node["type"] = "string"
	if numbers > 0 {
		node["type"] = "number"
	}
}

// typeKeywords have an effect on values of some types alone.
var typeKeywords = map[string][]string{
	"properties": {"object"}, "required": {"object"}, "additionalProperties": {"object"}, "propertyOrdering": {"object"},
	"items": {"array"}, "prefixItems": {"array"}, "minItems": {"array"}, "maxItems": {"array"},
	"minimum": {"number", "integer"}, "maximum": {"number", "integer"},
	"format": {"string", "number", "integer"},
}

// oneType turns a list of types into alternatives, except for a type and null.
func oneType(node map[string]any) map[string]any {
	types := texts(node["type"])
	kinds := slices.DeleteFunc(slices.Clone(types), func(name string) bool { return name == "null" })
	switch {
	case len(types) == 1:
		node["type"] = types[0]
		return node
	case len(kinds) < 2:
		return node
	case node["anyOf"] != nil || node["enum"] != nil:
		delete(node, "type")
		return node
	}
	var alternatives []any
	for _, name := range types {
		one := map[string]any{"type": name}
		for keyword, of := range typeKeywords {
			if value, ok := node[keyword]; ok && slices.Contains(of, name) {
				one[keyword] = clone(value)
			}
		}
		alternatives = append(alternatives, one)
	}
	for keyword := range typeKeywords {
		delete(node, keyword)
	}
	delete(node, "type")
	node["anyOf"] = alternatives
	return node
}

// dropUnknownRequired removes required names without a property.
func dropUnknownRequired(node map[string]any) {
	required, ok := node["required"].([]any)
	if !ok {
		return
	}
	properties, _ := node["properties"].(map[string]any)
	known := distinct(required, func(name any) bool {
		text, _ := name.(string)
		_, has := properties[text]
		return has
	})
	node["required"] = known
	if len(known) == 0 {
		delete(node, "required")
	}
}
