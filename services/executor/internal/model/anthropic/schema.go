package anthropic

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// propertyName is the API's rule for the name of a tool's property.
var propertyName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// unsupportedKeywords are refused by constrained decoding.
var unsupportedKeywords = []string{
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}

// outputFormat requests a JSON reply. The API accepts only strict schemas, so it closes the objects of any other
// schema and drops the bounds of its values. The reply is validated against the original schema later.
func outputFormat(o model.Output) (json.RawMessage, error) {
	var tree map[string]any
	decoder := json.NewDecoder(bytes.NewReader(o.Schema))
	decoder.UseNumber() // keeps numbers as written
	if err := decoder.Decode(&tree); err != nil || tree == nil {
		return nil, model.InvalidRequest("the schema of the output is not a JSON object: %.100s", o.Schema)
	}
	schema := o.Schema
	if !isStrictSchema(schema) {
		walkSchema(tree, func(node map[string]any) {
			if _, decided := node["additionalProperties"]; !decided && isObjectSchema(node) {
				node["additionalProperties"] = false
			}
			for _, keyword := range unsupportedKeywords {
				delete(node, keyword)
			}
		})
		// A decoded tree can be encoded.
		schema, _ = json.Marshal(tree)
	}
	return json.Marshal(struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}{"json_schema", schema})
}

// isStrictSchema reports whether constrained decoding accepts a schema: every object must forbid additional
// properties, and values have no bounds.
func isStrictSchema(schema json.RawMessage) bool {
	var tree map[string]any
	if json.Unmarshal(schema, &tree) != nil || tree == nil {
		return false
	}
	strict := true
	walkSchema(tree, func(node map[string]any) {
		if isObjectSchema(node) && node["additionalProperties"] != false {
			strict = false
		}
		for _, keyword := range unsupportedKeywords {
			if _, has := node[keyword]; has {
				strict = false
			}
		}
	})
	return strict
}

func isObjectSchema(schema map[string]any) bool {
	_, has := schema["properties"]
	return has || schema["type"] == "object"
}

// walkSchema visits a schema and its subschemas.
func walkSchema(node any, visit func(map[string]any)) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			walkSchema(child, visit)
		}
	case map[string]any:
		visit(node)
		for key, child := range node {
			switch key {
			case "properties", "$defs", "definitions":
				// The keys are the user's names, not keywords.
				if named, ok := child.(map[string]any); ok {
					for _, schema := range named {
						walkSchema(schema, visit)
					}
				}
			case "enum", "const", "default", "examples":
			default:
				walkSchema(child, visit)
			}
		}
	}
}
