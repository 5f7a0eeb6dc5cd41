package openai

import (
	"encoding/json"
	"slices"
)

// loose are the keywords that constrained decoding refuses.
var loose = []string{
	"allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "propertyNames",
	"dependentRequired", "dependentSchemas", "minLength", "maxLength",
}

// closed says whether constrained decoding takes a schema: each object in it must
// forbid further properties and require all that it has. Where it does not, a
// strict request would be refused, and asking without is the next best.
func closed(schema json.RawMessage) bool {
	var tree map[string]any
	return json.Unmarshal(schema, &tree) == nil && tree["type"] == "object" && shut(tree)
}

func shut(node any) bool {
	switch node := node.(type) {
	case []any:
		return !slices.ContainsFunc(node, func(child any) bool { return !shut(child) })
	case map[string]any:
		return fits(node) && shutWithin(node)
	}
	return true
}

// fits looks at one schema, not at those in it.
func fits(schema map[string]any) bool {
	for _, keyword := range loose {
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

func shutWithin(schema map[string]any) bool {
	for key, child := range schema {
		switch key {
		case "enum", "const", "default", "examples":
			// Values, whatever they look like.
		case "properties", "$defs", "definitions":
			// Names of the user's, which may be anything.
			for _, named := range asObject(child) {
				if !shut(named) {
					return false
				}
			}
		default:
			if !shut(child) {
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
