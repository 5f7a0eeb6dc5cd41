package anthropic

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// unsupportedKeywords are the keywords that constrained decoding refuses.
var unsupportedKeywords = []string{
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}

// outputFormat asks for a reply that is JSON. The API takes only schemas that strict; one that
// does not is sent with its objects closed and without the bounds of its values,
// which the reply is held against anyway when it has come.
func outputFormat(o model.Output) (json.RawMessage, error) {
	var tree map[string]any
	decoder := json.NewDecoder(bytes.NewReader(o.Schema))
	decoder.UseNumber() // they stay as they were written
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
		// What was JSON stays JSON.
		schema, _ = json.Marshal(tree)
	}
	return json.Marshal(struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}{"json_schema", schema})
}

// isStrictSchema says whether constrained decoding takes a schema: each object in it must
// forbid further properties, and values have no bounds.
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

// walkSchema visits a schema and the schemas in it.
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
				// Names of the user's, which may be anything.
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
