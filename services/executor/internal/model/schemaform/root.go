package schemaform

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxMerged bounds how deep references and alternatives of a root are followed.
const maxMerged = 16

// rootKeywords must not be at the root of a tool's schema: Anthropic refuses the alternatives, OpenAI the others too.
var rootKeywords = []string{"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas"}

// asObject returns a root as an object without alternatives. It has the properties of all alternatives, and requires
// the properties required by all of them.
func (d *document) asObject(root map[string]any) map[string]any {
	flat := slices.ContainsFunc(rootKeywords, func(keyword string) bool { return root[keyword] != nil })
	if flat {
		all := d.shape(root, 0)
		root = maps.Clone(root)
		if target, ok := d.target(root); ok {
			for _, keyword := range []string{"additionalProperties", "description", "title"} {
				if _, own := root[keyword]; !own && target[keyword] != nil {
					root[keyword] = clone(target[keyword])
				}
			}
		}
		if note := d.alternatives(root); note != "" {
			text, _ := root["description"].(string)
			root["description"] = strings.TrimSpace(text + " " + note)
		}
		for _, keyword := range rootKeywords {
			delete(root, keyword)
		}
		delete(root, "unevaluatedProperties") // what an alternative evaluates is no longer known
		root["properties"] = all.properties
		delete(root, "required")
		if len(all.required) > 0 {
			root["required"] = toAny(slices.Sorted(maps.Keys(all.required)))
		}
	}
	root["type"] = "object"
	(&document{root: root}).dropDangling(root)
	return root
}

// target returns the target of a schema's reference.
func (d *document) target(node map[string]any) (map[string]any, bool) {
	ref, ok := node["$ref"].(string)
	if !ok {
		return nil, false
	}
	target := d.find(ref)
	return target, target != nil
}

// shape is what a schema and its alternatives say about an object.
type shape struct {
	properties map[string]any
	required   map[string]bool
}

func (d *document) shape(node map[string]any, depth int) shape {
	s := shape{map[string]any{}, map[string]bool{}}
	if own, ok := node["properties"].(map[string]any); ok {
		maps.Copy(s.properties, own)
	}
	for _, name := range texts(node["required"]) {
		s.required[name] = true
	}
	if depth == maxMerged {
		return s
	}
	if target, ok := d.target(node); ok {
		s.add(d.shape(target, depth+1), "allOf")
	}
	for _, sub := range objects(node["allOf"]) {
		s.add(d.shape(sub, depth+1), "allOf")
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		s.add(d.union(objects(node[keyword]), depth+1), "allOf")
	}
	var sometimes []map[string]any
	for _, keyword := range []string{"then", "else"} {
		if sub, ok := node[keyword].(map[string]any); ok {
			sometimes = append(sometimes, sub)
		}
	}
	if named, ok := node["dependentSchemas"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if sub, ok := named[name].(map[string]any); ok {
				sometimes = append(sometimes, sub)
			}
		}
	}
	if len(sometimes) > 0 {
		optional := d.union(sometimes, depth+1)
		clear(optional.required)
		s.add(optional, "anyOf")
	}
	return s
}

// union returns the properties of all alternatives. It requires the properties required by all of them.
func (d *document) union(alternatives []map[string]any, depth int) shape {
	all := shape{map[string]any{}, map[string]bool{}}
	for i, node := range alternatives {
		one := d.shape(node, depth)
		if i == 0 {
			maps.Copy(all.required, one.required)
		}
		maps.DeleteFunc(all.required, func(name string, _ bool) bool { return !one.required[name] })
		clear(one.required)
		all.add(one, "anyOf")
	}
	return all
}

// add adds the properties of another shape. combine is how two schemas of one property are combined: allOf or anyOf.
func (s *shape) add(other shape, combine string) {
	maps.Copy(s.required, other.required)
	for _, name := range slices.Sorted(maps.Keys(other.properties)) {
		own, ok := s.properties[name]
		theirs := other.properties[name]
		switch {
		case !ok:
			s.properties[name] = theirs
		case reflect.DeepEqual(own, theirs) || isEmpty(theirs) && combine == "allOf":
		case isEmpty(own) && combine == "allOf":
			s.properties[name] = theirs
		default:
			s.properties[name] = map[string]any{combine: []any{own, theirs}}
		}
	}
}

func isEmpty(schema any) bool {
	node, ok := schema.(map[string]any)
	return ok && len(node) == 0
}

// maxAlternatives is the most alternatives that a description names.
const maxAlternatives = 20

// alternatives says in words which properties the alternatives of a root require; "" if they require none.
func (d *document) alternatives(root map[string]any) string {
	var notes []string
	for _, keyword := range []string{"anyOf", "oneOf"} {
		branches := objects(root[keyword])
		var groups []string
		for _, branch := range branches {
			if required := d.shape(branch, 1).required; len(required) > 0 {
				groups = append(groups, strings.Join(slices.Sorted(maps.Keys(required)), " and "))
			}
		}
		slices.Sort(groups)
		groups = slices.Compact(groups)
		if len(branches) < 2 || len(groups) < 2 || len(groups) > maxAlternatives {
			continue
		}
		count := "At least one"
		if keyword == "oneOf" {
			count = "Exactly one"
		}
		notes = append(notes, fmt.Sprintf("%s of these is required: %s.", count, strings.Join(groups, "; ")))
	}
	return strings.Join(notes, " ")
}

// dropDangling removes references without a target.
func (d *document) dropDangling(node map[string]any) {
	if _, ok := node["$ref"]; ok {
		if _, ok := d.target(node); !ok {
			delete(node, "$ref")
		}
	}
	edit(node, func(sub any) (any, bool) {
		if below, ok := sub.(map[string]any); ok {
			d.dropDangling(below)
		}
		return sub, false
	})
}

// dropProperties removes the properties whose names the provider refuses, and names them in the description: the model
// may send them all the same.
func (r Rules) dropProperties(root map[string]any) {
	properties, _ := root["properties"].(map[string]any)
	var dropped []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !r.PropertyName.MatchString(name) {
			dropped = append(dropped, name)
			delete(properties, name)
		}
	}
	if len(dropped) == 0 {
		return
	}
	required := slices.DeleteFunc(texts(root["required"]), func(name string) bool { return slices.Contains(dropped, name) })
	root["required"] = toAny(required)
	if root["additionalProperties"] == false {
		delete(root, "additionalProperties")
	}
	text, _ := root["description"].(string)
	root["description"] = strings.TrimSpace(fmt.Sprintf("%s It also takes: %s.", text, strings.Join(dropped, ", ")))
}

// texts returns the strings of a list.
func texts(list any) []string {
	items, _ := list.([]any)
	var found []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			found = append(found, text)
		}
	}
	return found
}

// objects returns the objects of a list.
func objects(list any) []map[string]any {
	items, _ := list.([]any)
	var found []map[string]any
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			found = append(found, object)
		}
	}
	return found
}

func toAny(texts []string) []any {
	list := make([]any, len(texts))
	for i, text := range texts {
		list[i] = text
	}
	return list
}
