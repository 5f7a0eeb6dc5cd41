// Package openapigen writes the OpenAPI description of routes. Only tests and the generator use it,
// so that the gateway's binary does not contain the library.
package openapigen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

const about = "Holdfast is a durable runtime for LLM agents. The API key decides the tenant. " +
	"Times are milliseconds since the Unix epoch. Answers may get more fields."

// Document returns the description of the routes in JSON. contracts is the folder proto of the
// repository, whose comments describe the fields. It fails if a route has no answer, or if
// two operations or two types have the same name.
func Document(routes []httpapi.Route, contracts string) ([]byte, error) {
	comments, err := readComments(contracts)
	if err != nil {
		return nil, err
	}
	types := newTypes(comments)
	doc := &openapi3.T{
		OpenAPI: "3.0.3",
		Info:    &openapi3.Info{Title: "Holdfast", Version: "1.0.0", Description: about, License: &openapi3.License{Name: "Apache-2.0"}},
		Paths:   openapi3.NewPaths(),
	}
	names := map[string]bool{}
	for _, route := range routes {
		if route.About.Name == "" {
			continue
		}
		if names[route.About.Name] || len(route.About.Answers) == 0 {
			return nil, fmt.Errorf("%s %s: the name %q is taken, or there is no answer", route.Method, route.Pattern, route.About.Name)
		}
		names[route.About.Name] = true
		operation, err := operationOf(types, route)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", route.Method, route.Pattern, err)
		}
		doc.AddOperation(route.Pattern, route.Method, operation)
	}
	doc.Components = &openapi3.Components{
		Schemas:         types.schemas,
		SecuritySchemes: openapi3.SecuritySchemes{"apiKey": {Value: openapi3.NewSecurityScheme().WithType("http").WithScheme("bearer")}},
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, text, "", "  ")
	return append(out.Bytes(), '\n'), err
}

func operationOf(types *types, route httpapi.Route) (*openapi3.Operation, error) {
	operation := openapi3.NewOperation()
	operation.OperationID, operation.Summary = route.About.Name, route.About.Summary
	if !route.Public {
		operation.Security = openapi3.NewSecurityRequirements().With(openapi3.NewSecurityRequirement().Authenticate("apiKey"))
	}
	for _, p := range route.About.Parameters {
		operation.AddParameter(types.parameterOf(p))
	}
	if err := addBody(types, operation, route.About); err != nil {
		return nil, err
	}
	operation.Responses = openapi3.NewResponsesWithCapacity(len(route.About.Answers))
	for _, answer := range route.About.Answers {
		if err := addAnswer(types, operation, answer); err != nil {
			return nil, err
		}
	}
	refusal, err := types.of(httpapi.ErrorBody{}, output)
	if err != nil {
		return nil, err
	}
	for status, reasons := range route.AllFaults() {
		if operation.Responses.Value(strconv.Itoa(status)) == nil {
			response := openapi3.NewResponse().WithDescription(strings.Join(reasons, ", ")).WithJSONSchemaRef(refusal)
			if route.TextErrors {
				response.Content["text/plain"] = openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema())
			}
			operation.AddResponse(status, response)
		}
	}
	return operation, nil
}

func addBody(types *types, operation *openapi3.Operation, about httpapi.About) error {
	if about.BodyType != "" {
		body := openapi3.NewRequestBody().
			WithRequired(true).
			WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), []string{about.BodyType}))
		body.Description = fmt.Sprintf("at most %d bytes", about.MaxBytes)
		operation.RequestBody = &openapi3.RequestBodyRef{Value: body}
		return nil
	}
	if about.Body == nil {
		return nil
	}
	schema, err := types.of(about.Body, input)
	if err != nil {
		return err
	}
	body := openapi3.NewRequestBody().WithRequired(!about.OptionalBody).WithJSONSchemaRef(schema)
	body.Description = fmt.Sprintf("at most %d bytes", about.MaxBytes)
	operation.RequestBody = &openapi3.RequestBodyRef{Value: body}
	return nil
}

func addAnswer(types *types, operation *openapi3.Operation, answer httpapi.Answer) error {
	response := openapi3.NewResponse().WithDescription(answer.About)
	switch {
	case answer.Body != nil:
		schema, err := types.of(answer.Body, output)
		if err != nil {
			return err
		}
		response.WithJSONSchemaRef(schema)
	case answer.Type != "":
		response.Content = openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{answer.Type})
	case answer.Status == http.StatusOK:
		return fmt.Errorf("the answer %q has no content", answer.About)
	}
	operation.AddResponse(answer.Status, response)
	return nil
}

// maxSafe is the largest integer that JavaScript represents exactly. Larger limits are none.
const maxSafe = 1<<53 - 1

func (t *types) parameterOf(p httpapi.Parameter) *openapi3.Parameter {
	out := &openapi3.Parameter{Name: p.Name, In: cmp.Or(p.In, openapi3.ParameterInQuery), Required: p.Required}
	out.Description = cmp.Or(p.Doc, t.comments[p.Field])
	schema := schemaOf(p)
	switch {
	case p.Many:
		list := openapi3.NewArraySchema().WithItems(schema)
		return out.WithSchema(list)
	case p.Pairs:
		explode := true
		out.Style, out.Explode = openapi3.SerializationDeepObject, &explode
		return out.WithSchema(openapi3.NewObjectSchema().WithAdditionalProperties(schema))
	default:
		return out.WithSchema(schema)
	}
}

func schemaOf(p httpapi.Parameter) *openapi3.Schema {
	switch p.Type {
	case httpapi.ID:
		return openapi3.NewStringSchema().WithMinLength(1).WithMaxLength(256)
	case httpapi.Integer:
		schema := openapi3.NewInt64Schema().WithMin(float64(p.Min))
		if p.Max <= maxSafe {
			schema.WithMax(float64(p.Max))
		}
		if p.Default >= p.Min && !p.Required {
			schema.WithDefault(p.Default)
		}
		return schema
	case httpapi.Boolean:
		return openapi3.NewBoolSchema().WithDefault(p.True)
	default:
		schema := openapi3.NewStringSchema()
		for _, word := range p.Words {
			schema.Enum = append(schema.Enum, word)
		}
		return schema
	}
}
