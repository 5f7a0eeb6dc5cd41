package schemaform

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Where a schema has subschemas, by keyword.
var (
	schemaKeywords = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
		"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
	}
	listKeywords = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	mapKeywords  = []string{"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)

// valueKeywords have values of any kind, so null is a value there.
var valueKeywords = []string{"const", "default", "enum", "example", "examples"}

// switchKeywords are subschemas with frequent boolean values, accepted there by every API.
var switchKeywords = []string{"additionalProperties", "unevaluatedItems", "unevaluatedProperties"}

// edit replaces each subschema of a schema by the result of change. drop removes it.
func edit(node map[string]any, change func(sub any) (to any, drop bool)) {
	for _, keyword := range schemaKeywords {
		sub, ok := node[keyword]
		if _, isBool := sub.(bool); !ok || isBool && slices.Contains(switchKeywords, keyword) {
			continue
		}
		if to, drop := change(sub); drop {
			delete(node, keyword)
		} else {
			node[keyword] = to
		}
	}
	for _, keyword := range listKeywords {
		list, ok := node[keyword].([]any)
		if !ok {
			continue
		}
		kept := make([]any, 0, len(list))
		for _, sub := range list {
			if to, drop := change(sub); !drop {
				kept = append(kept, to)
			}
		}
		node[keyword] = kept
	}
	for _, keyword := range mapKeywords {
		named, ok := node[keyword].(map[string]any)
		if !ok {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if to, drop := change(named[name]); drop {
				delete(named, name)
			} else {
				named[name] = to
			}
		}
	}
}

// clone copies a value.
func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for key, member := range value {
			copied[key] = clone(member)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, item := range value {
			copied[i] = clone(item)
		}
		return copied
	}
	return value
}

// document is a schema with the targets of its references.
type document struct {
	root  map[string]any
	named map[string]map[string]any // by anchor and $id; nil before the first use
}

// find returns the target of a reference, or nil if the document does not have it.
func (d *document) find(ref string) map[string]any {
	if d.named == nil {
		d.named = map[string]map[string]any{}
		d.collect(d.root)
	}
	if target, ok := d.named[ref]; ok {
		return target
	}
	base, fragment, _ := strings.Cut(ref, "#")
	from := d.root
	if base != "" {
		if from = d.named[base]; from == nil {
			return nil
		}
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return nil
	}
	return follow(from, pointer)
}

func (d *document) collect(node map[string]any) {
	if name, ok := node["$anchor"].(string); ok {
		d.named["#"+name] = node
	}
	if name, ok := node["$id"].(string); ok {
		d.named[name] = node
	}
	edit(node, func(sub any) (any, bool) {
		if below, ok := sub.(map[string]any); ok {
			d.collect(below)
		}
		return sub, false
	})
}

// follow returns the object at a JSON pointer (RFC 6901); nil without one.
func follow(from map[string]any, pointer string) map[string]any {
	var at any = from
	if pointer != "" {
		for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			switch value := at.(type) {
			case map[string]any:
				at = value[token]
			case []any:
				i, err := strconv.Atoi(token)
				if err != nil || i < 0 || i >= len(value) {
					return nil
				}
				at = value[i]
			default:
				return nil
			}
		}
	}
	target, _ := at.(map[string]any)
	return target
}
