package anthropic

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// loose are the keywords that constrained decoding refuses.
var loose = []string{
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}

// format asks for a reply that is JSON. The API takes only schemas that fit; one that
// does not is sent with its objects closed and without the bounds of its values,
// which the reply is held against anyway when it has come.
func format(o model.Output) (json.RawMessage, error) {
	var tree map[string]any
	numbers := json.NewDecoder(bytes.NewReader(o.Schema))
	numbers.UseNumber() // they stay as they were written
	if err := numbers.Decode(&tree); err != nil || tree == nil {
		return nil, model.Invalid("the schema of the output is not a JSON object: %.100s", o.Schema)
	}
	schema := o.Schema
	if !fits(schema) {
		walk(tree, func(node map[string]any) {
			if _, decided := node["additionalProperties"]; !decided && isObject(node) {
				node["additionalProperties"] = false
			}
			for _, keyword := range loose {
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

// fits says whether constrained decoding takes a schema: each object in it must
// forbid further properties, and values have no bounds.
func fits(schema json.RawMessage) bool {
	var tree map[string]any
	if json.Unmarshal(schema, &tree) != nil || tree == nil {
		return false
	}
	fit := true
	walk(tree, func(node map[string]any) {
		if isObject(node) && node["additionalProperties"] != false {
			fit = false
		}
		for _, keyword := range loose {
			if _, has := node[keyword]; has {
				fit = false
			}
		}
	})
	return fit
}

func isObject(schema map[string]any) bool {
	_, has := schema["properties"]
	return has || schema["type"] == "object"
}

// walk visits a schema and the schemas in it.
func walk(node any, visit func(map[string]any)) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			walk(child, visit)
		}
	case map[string]any:
		visit(node)
		for key, child := range node {
			switch key {
			case "properties", "$defs", "definitions":
				// Names of the user's, which may be anything.
				if named, ok := child.(map[string]any); ok {
					for _, schema := range named {
						walk(schema, visit)
					}
				}
			case "enum", "const", "default", "examples":
			default:
				walk(child, visit)
			}
		}
	}
}
