package openai

import (
	"encoding/json"
	"slices"
)

// unsupportedKeywords are the keywords that constrained decoding refuses.
var unsupportedKeywords = []string{
	"allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "propertyNames",
	"dependentRequired", "dependentSchemas", "minLength", "maxLength",
}

// isStrictSchema says whether constrained decoding takes a schema: each object in it must
// forbid further properties and require all that it has. Where it does not, a
// strict request would be refused, and asking without is the next best.
func isStrictSchema(schema json.RawMessage) bool {
	var tree map[string]any
	return json.Unmarshal(schema, &tree) == nil && tree["type"] == "object" && isStrictNode(tree)
}

func isStrictNode(node any) bool {
	switch node := node.(type) {
	case []any:
		return !slices.ContainsFunc(node, func(child any) bool { return !isStrictNode(child) })
	case map[string]any:
		return followsStrictRules(node) && hasStrictChildren(node)
	}
	return true
}

// followsStrictRules looks at one schema, not at those in it.
func followsStrictRules(schema map[string]any) bool {
	for _, keyword := range unsupportedKeywords {
		if _, has := schema[keyword]; has {
			return false
		}
	}
	properties := asObject(schema["properties"])
	if schema["type"] != "object" && properties == nil {
		return true
	}
	required, _ := schema["required"].([]any)
	return schema["additionalProperties"] == false && len(required) == len(properties)
}

func hasStrictChildren(schema map[string]any) bool {
	for key, child := range schema {
		switch key {
		case "enum", "const", "default", "examples":
			// Values, whatever they look like.
		case "properties", "$defs", "definitions":
			// Names of the user's, which may be anything.
			for _, named := range asObject(child) {
				if !isStrictNode(named) {
					return false
				}
			}
		default:
			if !isStrictNode(child) {
				return false
			}
		}
	}
	return true
}

func asObject(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}
