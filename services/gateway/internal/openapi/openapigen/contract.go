package openapigen

import (
	"context"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/getkin/kin-openapi/openapi3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/flat"
)

// comments are the comments of the contracts by full name. Descriptors in programs have none.
type comments map[protoreflect.FullName]string

// readComments reads the contracts in the folder proto of the repository.
func readComments(folder string) (comments, error) {
	var files []string
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.agent.v1", func(f protoreflect.FileDescriptor) bool {
		files = append(files, f.Path())
		return true
	})
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.event.v1", func(f protoreflect.FileDescriptor) bool {
		files = append(files, f.Path())
		return true
	})
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(
			protocompile.CompositeResolver{&protocompile.SourceResolver{ImportPaths: []string{folder}}, registered{}},
		),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return nil, err
	}
	out := comments{}
	for _, file := range compiled {
		out.addMessages(file.Messages())
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				out.add(methods.Get(j))
			}
		}
	}
	return out, nil
}

// registered resolves contracts of libraries.
type registered struct{}

// FindFileByPath implements protocompile.Resolver.
func (registered) FindFileByPath(path string) (protocompile.SearchResult, error) {
	found, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: found}, err
}

func (c comments) addMessages(messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		c.add(m)
		for j := range m.Fields().Len() {
			c.add(m.Fields().Get(j))
		}
		c.addMessages(m.Messages())
	}
}

func (c comments) add(d protoreflect.Descriptor) {
	comment := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	c[d.FullName()] = strings.Join(strings.Fields(comment), " ")
}

// ofShape returns the schema of a message, a component.
func (t *types) ofShape(s flat.Shape, d direction) (*openapi3.SchemaRef, error) {
	if s.Inline != "" && s.Message.Fields().Len() == 1 {
		return t.ofShape(flat.Shape{Message: s.Message.Fields().Get(0).Message()}, d)
	}
	name := s.Name
	if name == "" {
		name = string(s.Message.Name())
		if d == input && !strings.HasSuffix(name, "Request") && !strings.HasPrefix(name, "Input") {
			name = "Input" + name // an output has other required fields
		}
	}
	ref := openapi3.NewSchemaRef("#/components/schemas/"+name, nil)
	if known, ok := t.messages[name]; ok || t.named[name] != nil {
		return ref, clash(known != s.Message.FullName(), name)
	}
	t.messages[name] = s.Message.FullName()
	schema := openapi3.NewObjectSchema()
	t.schemas[name] = openapi3.NewSchemaRef("", schema)
	schema.Description = t.comments[s.Message.FullName()]
	return ref, t.addFields(schema, s, d)
}

func (t *types) addFields(schema *openapi3.Schema, s flat.Shape, d direction) error {
	for i := range s.Message.Fields().Len() {
		f := s.Message.Fields().Get(i)
		name := f.JSONName()
		switch {
		case slices.Contains(s.Without, name):
			continue
		case name == s.Inline:
			if err := t.addFields(schema, flat.Shape{Message: f.Message()}, d); err != nil {
				return err
			}
			continue
		case slices.Contains(s.Required, name), d == output && !f.HasPresence() && !eventv1.IsJSONText(f):
			schema.Required = append(schema.Required, name)
		}
		ref, err := t.ofField(f, d)
		if err != nil {
			return err
		}
		if ref.Value != nil {
			ref.Value.Description = t.comments[f.FullName()]
		}
		if value, fixed := s.Fixed[name]; fixed {
			ref.Value.Enum = []any{value}
		}
		schema.WithPropertyRef(name, ref)
	}
	return nil
}

func (t *types) ofField(f protoreflect.FieldDescriptor, d direction) (*openapi3.SchemaRef, error) {
	switch {
	case f.IsList():
		items, err := t.ofValue(f, d)
		schema := openapi3.NewArraySchema()
		schema.Items = items
		return openapi3.NewSchemaRef("", schema), err
	case f.IsMap():
		values, err := t.ofValue(f.MapValue(), d)
		schema := openapi3.NewObjectSchema()
		schema.AdditionalProperties = openapi3.AdditionalProperties{Schema: values}
		return openapi3.NewSchemaRef("", schema), err
	default:
		return t.ofValue(f, d)
	}
}

func (t *types) ofValue(f protoreflect.FieldDescriptor, d direction) (*openapi3.SchemaRef, error) {
	schema := openapi3.NewStringSchema()
	switch {
	case eventv1.IsJSONText(f):
		schema = openapi3.NewSchema() // any JSON value
		schema.Nullable = true
	case f.Kind() == protoreflect.BoolKind:
		schema = openapi3.NewBoolSchema()
	case f.Kind() == protoreflect.Int32Kind:
		schema = openapi3.NewInt32Schema()
	case f.Kind() == protoreflect.Int64Kind:
		schema = openapi3.NewInt64Schema()
	case f.Kind() == protoreflect.DoubleKind:
		schema = openapi3.NewFloat64Schema()
	case f.Kind() == protoreflect.EnumKind:
		for _, word := range flat.Words(f.Enum()) {
			schema.Enum = append(schema.Enum, word)
		}
		if d == output {
			schema.Enum = append(schema.Enum, "")
		}
	case f.Kind() == protoreflect.MessageKind:
		if only := eventv1.Wrapped(f.Message()); only != nil {
			return t.ofField(only, d)
		}
		return t.ofShape(flat.Shape{Message: f.Message()}, d)
	}
	return openapi3.NewSchemaRef("", schema), nil
}
