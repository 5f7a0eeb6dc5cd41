package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxText limits the text of one template or part, in bytes.
const maxText = 16 << 20

var errTooLong = fmt.Errorf("the text exceeds %d bytes", maxText)

// templateData is the input of templates.
type templateData struct {
	LastUser   string
	Users      []string
	UserCount  int
	Results    map[string]string
	LastResult string
	NewResults []string
	System     string
	Match      []string
	Group      map[string]string
}

type textTemplate struct{ parsed *template.Template }

// UnmarshalYAML parses the template.
func (t *textTemplate) UnmarshalYAML(node ast.Node) error {
	source, ok := scalarText(node)
	if !ok {
		return nodeError(node, "expected a text")
	}
	parsed, err := parseText(source)
	if err != nil {
		return nodeError(node, "%v", err)
	}
	*t = parsed
	return nil
}

func parseText(source string) (textTemplate, error) {
	functions := template.FuncMap{
		"join":  func(list []string, separator string) string { return strings.Join(list, separator) },
		"json":  func(value any) (string, error) { b, err := json.Marshal(value); return string(b), err },
		"field": jsonField,
	}
	parsed, err := template.New("text").Option("missingkey=zero").Funcs(functions).Parse(source)
	return textTemplate{parsed}, err
}

func (t textTemplate) render(v templateData) (string, error) {
	var out limitedBuffer
	err := t.parsed.Execute(&out, v)
	return out.String(), err
}

// limitedBuffer grows to at most maxText: a template may loop.
type limitedBuffer struct{ bytes.Buffer }

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxText {
		return 0, errTooLong
	}
	return l.Buffer.Write(p)
}

// jsonField reads a value from a JSON text: strings without quotes, other values as JSON. A missing value is "".
func jsonField(source string, keys ...string) string {
	value := json.RawMessage(source)
	for _, key := range keys {
		var object map[string]json.RawMessage
		// Anything but an object has no value for the key.
		_ = json.Unmarshal(value, &object)
		value = object[key]
	}
	return model.PlainText(value)
}

type jsonValue struct{ json json.RawMessage }

// UnmarshalYAML turns the value into JSON.
func (v *jsonValue) UnmarshalYAML(node ast.Node) (err error) {
	var value any
	if err := decode(node, &value); err != nil {
		return err
	}
	if v.json, err = json.Marshal(value); err != nil {
		return nodeError(node, "cannot be encoded as JSON: %v", err)
	}
	return nil
}

// arguments are the arguments of a call: text or tree.
type arguments struct {
	text *textTemplate // template for the complete text
	tree any           // JSON with templates as its texts
}

// UnmarshalYAML parses the templates.
func (a *arguments) UnmarshalYAML(node ast.Node) error {
	if _, ok := scalarText(node); ok {
		a.text = new(textTemplate)
		return a.text.UnmarshalYAML(node)
	}
	var value any
	if err := decode(node, &value); err != nil {
		return err
	}
	if _, ok := value.(map[string]any); !ok {
		return nodeError(node, "arguments are a mapping or a text")
	}
	if _, err := json.Marshal(value); err != nil {
		return nodeError(node, "cannot be encoded as JSON: %v", err)
	}
	tree, err := mapLeaves(value, func(s string) (any, error) { return parseText(s) })
	if err != nil {
		return nodeError(node, "%v", err)
	}
	a.tree = tree
	return nil
}

// render returns the text of the arguments, "" without any.
func (a *arguments) render(v templateData) (string, error) {
	switch {
	case a == nil:
		return "", nil
	case a.text != nil:
		return a.text.render(v)
	}
	tree, err := mapLeaves(a.tree, func(t textTemplate) (any, error) { return t.render(v) })
	if err != nil {
		return "", err
	}
	out, err := json.Marshal(tree)
	if len(out) > maxText {
		return "", errors.Join(err, errTooLong)
	}
	return string(out), err
}

// mapLeaves copies a tree of maps and lists and replaces its leaves of type T.
func mapLeaves[T any](tree any, replace func(T) (any, error)) (any, error) {
	switch node := tree.(type) {
	case T:
		return replace(node)
	case map[string]any:
		out := make(map[string]any, len(node))
		for key, child := range node {
			mapped, err := mapLeaves(child, replace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = mapped
		}
		return out, nil
	case []any:
		out := make([]any, len(node))
		for i, child := range node {
			mapped, err := mapLeaves(child, replace)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i, err)
			}
			out[i] = mapped
		}
		return out, nil
	}
	return tree, nil
}
