package openapigen

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3gen"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/flat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// types collects the schemas of Go types.
type types struct {
	schemas  openapi3.Schemas
	named    map[string]reflect.Type
	messages map[string]protoreflect.FullName
	comments comments
}

// direction decides which fields are required: of an output those without omitempty, of an input
// those with the tag required.
type direction bool

const (
	input  direction = false
	output direction = true
)

// names are public names that differ from those of the types.
var names = map[reflect.Type]string{
	reflect.TypeFor[httpapi.ErrorBody](): "Error",
	reflect.TypeFor[conversation.Page](): "MessagePage",
	reflect.TypeFor[uistream.Metadata](): "MessageMetadata",
	reflect.TypeFor[uistream.Usage]():    "MessageUsage",
}

func newTypes(comments comments) *types {
	return &types{
		schemas: openapi3.Schemas{}, named: map[string]reflect.Type{}, messages: map[string]protoreflect.FullName{}, comments: comments,
	}
}

// of returns the schema of a shape, or of the value's type. Structs and messages become components.
func (t *types) of(value any, d direction) (*openapi3.SchemaRef, error) {
	switch value := value.(type) {
	case flat.Shape:
		return t.ofShape(value, d)
	case flat.OneOf:
		schema := openapi3.NewSchema()
		for _, shape := range value {
			ref, err := t.ofShape(shape, d)
			if err != nil {
				return nil, err
			}
			schema.OneOf = append(schema.OneOf, ref)
		}
		return openapi3.NewSchemaRef("", schema), nil
	default:
		return t.ofType(value, d)
	}
}

func clash(clashes bool, name string) error {
	if clashes {
		return fmt.Errorf("two types are called %s", name)
	}
	return nil
}

func (t *types) ofType(value any, d direction) (*openapi3.SchemaRef, error) {
	var twice error
	name := func(of reflect.Type) string {
		name := names[of]
		if name == "" && of.Name() != "" {
			name = strings.ToUpper(of.Name()[:1]) + of.Name()[1:]
			name = strings.TrimPrefix(name, "Described")
		}
		if known := t.named[name]; known != nil && known != of || t.messages[name] != "" {
			twice = clash(true, name)
		}
		t.named[name] = of
		return name
	}
	ref, err := openapi3gen.NewSchemaRefForValue(value, t.schemas,
		openapi3gen.CreateTypeNameGenerator(name),
		openapi3gen.CreateComponentSchemas(openapi3gen.ExportComponentSchemasOptions{ExportComponentSchemas: true, ExportTopLevelSchema: true}),
		openapi3gen.SchemaCustomizer(d.customize))
	return ref, errors.Join(err, twice)
}

// customize adds the rules in the tags of a field, and the required fields of a struct.
func (d direction) customize(_ string, of reflect.Type, tag reflect.StructTag, schema *openapi3.Schema) error {
	switch {
	case of.Kind() == reflect.Struct:
		schema.Required = d.required(of)
		if of.Implements(reflect.TypeFor[json.Marshaler]()) { // other fields are possible
			yes := true
			schema.AdditionalProperties = openapi3.AdditionalProperties{Has: &yes}
		}
		return nil
	case of == reflect.TypeFor[json.RawMessage](): // any JSON value
		schema.Nullable = true
	case of.Kind() == reflect.Slice && schema.Items != nil && schema.Items.Value != nil && schema.Items.Ref == "":
		schema.Items.Value.Description = ""
	}
	schema.Description = tag.Get("doc")
	if words := tag.Get("enum"); words != "" && of.Kind() == reflect.String {
		for word := range strings.SplitSeq(words, ",") {
			schema.Enum = append(schema.Enum, word)
		}
	}
	return nil
}

func (d direction) requiredOf(value any) []string { return d.required(reflect.TypeOf(value)) }

func (d direction) required(of reflect.Type) []string {
	var out []string
	for _, field := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		if d == output && !strings.Contains(options, "omitempty") || d == input && field.Tag.Get("required") != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
