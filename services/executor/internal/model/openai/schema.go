package openai

import (
	"encoding/json"
	"slices"
)

// unsupportedKeywords are refused by constrained decoding.
var unsupportedKeywords = []string{
	"allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "propertyNames",
	"dependentRequired", "dependentSchemas", "minLength", "maxLength",
}

// isStrictSchema reports whether constrained decoding accepts a schema: every object must forbid additional
// properties and require all its properties. The API refuses strict requests with other schemas, so they are
// sent without Strict.
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

// followsStrictRules checks one schema without its subschemas.
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
			// Values, not schemas.
		case "properties", "$defs", "definitions":
			// The keys are the user's names, not keywords.
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
