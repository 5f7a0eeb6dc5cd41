package schemaform

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Rules are what a provider accepts beyond the rules of all providers.
type Rules struct {
	// Keywords, if not nil, are the only keywords that stay. References are replaced by their targets then, and
	// keywords with an equivalent among these are rewritten.
	Keywords []string
	// Formats, if not nil, are the only values of the keyword format that stay.
	Formats []string
	// Complete adds items to lists and properties to the root where they are missing.
	Complete bool
	// PropertyName matches the names of properties that the root may have; nil allows all.
	PropertyName *regexp.Regexp
}

// Form returns the form of a schema. What is not a JSON object has none and stays as it is.
func (r Rules) Form(raw json.RawMessage) json.RawMessage {
	before, ok := decode(raw)
	if !ok {
		return raw
	}
	root, _ := decode(raw) // a copy to rewrite
	modernize(root)
	root = (&document{root: root}).asObject(root)
	if r.PropertyName != nil {
		r.dropProperties(root)
	}
	if r.Keywords != nil {
		root = (&narrower{Rules: r, document: &document{root: root}}).node(root, nil)
	}
	if r.Complete {
		complete(root)
		if root["properties"] == nil {
			root["properties"] = map[string]any{}
		}
	}
	if reflect.DeepEqual(before, root) {
		return raw
	}
	form, err := json.Marshal(root)
	if err != nil { // cannot happen: a decoded tree can be encoded
		return raw
	}
	return form
}

// complete adds items to the lists of a schema.
func complete(node map[string]any) {
	if hasType(node, "array") && node["items"] == nil {
		node["items"] = map[string]any{}
	}
	edit(node, func(sub any) (any, bool) {
		if below, ok := sub.(map[string]any); ok {
			complete(below)
		}
		return sub, false
	})
}

// decode decodes a JSON object. Numbers stay as they are written.
func decode(raw json.RawMessage) (object map[string]any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err := decoder.Decode(&object)
	return object, err == nil && object != nil
}

// The limits of the cache of Forms. Larger schemas are rewritten for each request.
const (
	maxCached      = 2000
	maxCachedBytes = 16 << 10
)

// Forms gives the schemas of requests the form of a provider. It remembers forms, because each request of an agent has
// the same tools. Safe for concurrent use.
type Forms struct {
	rules Rules

	mu    sync.Mutex
	known *simplelru.LRU[string, json.RawMessage]
}

// NewForms returns the forms of a provider.
func NewForms(r Rules) *Forms {
	known, err := simplelru.NewLRU[string, json.RawMessage](maxCached, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Forms{rules: r, known: known}
}

// Tools returns the tools with schemas in the form of the provider.
func (f *Forms) Tools(tools []model.Tool) []model.Tool {
	tools = slices.Clone(tools)
	for i := range tools {
		if len(tools[i].InputSchema) > 0 {
			tools[i].InputSchema = f.form(tools[i].InputSchema)
		}
	}
	return tools
}

// Output returns the output with its schema in the form of the provider; nil for nil. A schema of something else than
// an object stays as it is.
func (f *Forms) Output(o *model.Output) *model.Output {
	if o == nil {
		return nil
	}
	changed := *o
	if root, ok := decode(o.Schema); ok && (root["type"] == nil || hasType(root, "object")) {
		changed.Schema = f.form(o.Schema)
	}
	return &changed
}

func (f *Forms) form(raw json.RawMessage) json.RawMessage {
	if len(raw) > maxCachedBytes {
		return f.rules.Form(raw)
	}
	f.mu.Lock()
	form, ok := f.known.Get(string(raw))
	f.mu.Unlock()
	if ok {
		return form
	}
	form = f.rules.Form(raw)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.Add(string(raw), form)
	return form
}
