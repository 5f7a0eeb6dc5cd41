package gemini

import "github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform"

// schemaRules are what the API documents for parametersJsonSchema and responseJsonSchema. It also knows references, but
// a recursive one only in places of its choice.
// https://ai.google.dev/api/generate-content#FIELDS.response_json_schema
func schemaRules() schemaform.Rules {
	return schemaform.Rules{
		Complete: true,
		Keywords: []string{
			"additionalProperties", "anyOf", "description", "enum", "format", "items", "maxItems", "maximum", "minItems", "minimum",
			"prefixItems", "properties", "propertyOrdering", "required", "title", "type",
		},
		Formats: []string{"date", "date-time", "double", "float", "int32", "int64", "time"},
	}
}
