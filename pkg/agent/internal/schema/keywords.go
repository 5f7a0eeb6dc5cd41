package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// reader reads the keywords of one schema. err is the first mistake.
type reader struct {
	*compiler
	object   map[string]any
	location *location
	depth    int
	err      error
}

func (r *reader) read(n *node) {
	r.readName("$id", "")
	r.readName("$anchor", "#")
	r.readName("$dynamicAnchor", "#")
	for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		if ref, ok := r.text(keyword); ok {
			r.links = append(r.links, link{from: r.location, ref: ref})
		}
	}
	n.defaultValue, n.hasDefault = r.object["default"]
	r.readValue(n)
	r.readArray(n)
	r.readObject(n)
	n.allOf, n.anyOf, n.oneOf = r.list("allOf"), r.list("anyOf"), r.list("oneOf")
	n.not, n.ifNode = r.schema("not"), r.schema("if")
	n.thenNode, n.elseNode = r.schema("then"), r.schema("else")
	for _, keyword := range []string{"$defs", "definitions"} {
		r.schemas(keyword)
	}
}

func (r *reader) readName(keyword, prefix string) {
	if name, ok := r.text(keyword); ok && name != "" {
		if _, taken := r.names[prefix+name]; !taken {
			r.names[prefix+name] = r.location
		}
	}
}

func (r *reader) readValue(n *node) {
	n.types = r.types()
	if n.types != nil && r.object["nullable"] == true && !slices.Contains(n.types, "null") {
		n.types = append(n.types, "null") // of OpenAPI 3.0
	}
	if list, ok := r.value("enum"); ok {
		values, ok := list.([]any)
		if r.object["nullable"] == true {
			values = append(slices.Clone(values), nil)
		}
		if !ok {
			r.fail("enum", "a list")
			return
		}
		r.allow(n, values)
	}
	if value, ok := r.object["const"]; ok && (n.allowed == nil || n.allowed[canonical(value)]) {
		r.allow(n, []any{value})
	} else if ok {
		r.allow(n, nil)
	}
	n.multipleOf = r.bound("multipleOf")
	if n.multipleOf != nil && n.multipleOf.sign() <= 0 {
		r.fail("multipleOf", "a number above 0")
	}
	n.minimum, n.exclusiveMinimum = r.bounds("minimum", "exclusiveMinimum")
	n.maximum, n.exclusiveMaximum = r.bounds("maximum", "exclusiveMaximum")
	n.minLength, n.maxLength = r.count("minLength"), r.count("maxLength")
	if text, ok := r.text("pattern"); ok {
		pattern, err := r.pattern(text)
		if err != nil && r.err == nil {
			r.err = r.location.errorAt("pattern", "%v", err)
		}
		n.pattern = pattern
	}
}

func (r *reader) allow(n *node, values []any) {
	n.allowed = make(map[string]bool, len(values))
	shown := make([]string, 0, maxListed+1)
	for _, v := range values {
		text := canonical(v)
		if r.allowedBytes += len(text); r.allowedBytes > maxAllowedBytes {
			if r.err == nil {
				r.err = r.location.errorAt("", "the values of enum and const take more than %d bytes", maxAllowedBytes)
			}
			return
		}
		n.allowed[text] = true
		n.longest = max(n.longest, len(text))
		if len(shown) == maxListed {
			continue
		}
		if text, err := encode(v); err == nil {
			shown = append(shown, clip(string(text), maxShown))
		}
	}
	if len(values) > len(shown) {
		shown = append(shown, "…")
	}
	n.allowedText = strings.Join(shown, ", ")
}

func (r *reader) readArray(n *node) {
	n.prefix = r.list("prefixItems")
	if _, old := r.object["items"].([]any); old {
		n.prefix, n.items = r.list("items"), r.schema("additionalItems")
	} else {
		n.items = r.schema("items")
	}
	n.minItems, n.maxItems = r.count("minItems"), r.count("maxItems")
	n.unique = r.object["uniqueItems"] == true
	n.contains = r.schema("contains")
	n.minContains, n.maxContains = r.count("minContains"), r.count("maxContains")
	n.unevaluatedItems = r.schema("unevaluatedItems")
}

func (r *reader) readObject(n *node) {
	n.properties = r.schemas("properties")
	n.names = slices.Sorted(maps.Keys(n.properties))
	for text, node := range sorted(r.schemas("patternProperties")) {
		pattern, err := r.pattern(text)
		if err != nil && r.err == nil {
			r.err = r.location.errorAt("patternProperties", "%v", err)
		}
		n.patterns = append(n.patterns, patternNode{pattern, node})
	}
	n.additional = r.schema("additionalProperties")
	n.propertyNames = r.schema("propertyNames")
	n.unevaluated = r.schema("unevaluatedProperties")
	r.tracks = r.tracks || n.unevaluated != nil || n.unevaluatedItems != nil
	if _, ofDraft3 := r.object["required"].(bool); !ofDraft3 { // a boolean is about the object around it
		n.required = r.texts("required", r.object["required"])
	}
	for name, property := range sorted(r.members("properties")) {
		if of, ok := property.(map[string]any); ok && of["required"] == true && !slices.Contains(n.required, name) {
			n.required = append(n.required, name)
		}
	}
	n.minProperties, n.maxProperties = r.count("minProperties"), r.count("maxProperties")
	r.readDependencies(n)
}

func (r *reader) readDependencies(n *node) {
	for member, list := range sorted(r.members("dependentRequired")) {
		n.dependencies = append(n.dependencies, dependency{name: member, required: r.texts("dependentRequired", list)})
	}
	for member, node := range sorted(r.schemas("dependentSchemas")) {
		n.dependencies = append(n.dependencies, dependency{name: member, node: node})
	}
	for member, value := range sorted(r.members("dependencies")) {
		if _, list := value.([]any); list {
			n.dependencies = append(n.dependencies, dependency{name: member, required: r.texts("dependencies", value)})
			continue
		}
		n.dependencies = append(n.dependencies, dependency{name: member, node: r.compiled(r.location.child("dependencies").child(member))})
	}
}

// sorted iterates over a map by name, so that errors are the same each time.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

func (r *reader) fail(keyword, want string) {
	if r.err == nil {
		r.err = r.location.errorAt(keyword, "%s must be %s, not %s", keyword, want, describe(r.object[keyword]))
	}
}

// value returns the value of a keyword. Null counts as missing: generators write it for what they do not set.
func (r *reader) value(keyword string) (any, bool) {
	value := r.object[keyword]
	return value, value != nil
}

func (r *reader) text(keyword string) (string, bool) {
	value, ok := r.value(keyword)
	if !ok {
		return "", false
	}
	text, ok := value.(string)
	if !ok {
		r.fail(keyword, "a string")
	}
	return text, ok
}

func (r *reader) texts(keyword string, value any) []string {
	if value == nil {
		return nil
	}
	list, ok := value.([]any)
	texts := make([]string, 0, len(list))
	for _, item := range list {
		text, isText := item.(string)
		ok = ok && isText
		texts = append(texts, text)
	}
	if !ok {
		r.fail(keyword, "a list of strings")
	}
	return texts
}

func (r *reader) types() []string {
	var types []string
	switch value := r.object["type"].(type) {
	case nil:
		return nil
	case string:
		types = []string{value}
	default:
		types = r.texts("type", value)
	}
	var distinct []string
	for _, name := range types {
		if _, known := typeNames[name]; !known && r.err == nil {
			r.err = r.location.errorAt("type", "there is no type %q", clip(name, maxShown))
		} else if known && !slices.Contains(distinct, name) {
			distinct = append(distinct, name)
		}
	}
	return distinct
}

// bounds returns a bound and its exclusive form, which is a boolean in draft 4.
func (r *reader) bounds(inclusive, exclusive string) (including, excluding *decimalBound) {
	isExclusive, ofDraft4 := r.object[exclusive].(bool)
	switch {
	case !ofDraft4:
		return r.bound(inclusive), r.bound(exclusive)
	case isExclusive:
		return nil, r.bound(inclusive)
	}
	return r.bound(inclusive), nil
}

func (r *reader) bound(keyword string) *decimalBound {
	value, ok := r.value(keyword)
	if !ok {
		return nil
	}
	number, ok := value.(json.Number)
	if !ok {
		r.fail(keyword, "a number")
		return nil
	}
	return &decimalBound{parseDecimal(number), clip(string(number), maxShown)}
}

func (r *reader) count(keyword string) *int {
	bound := r.bound(keyword)
	if bound == nil {
		return nil
	}
	if !bound.isInteger() || bound.negative {
		r.fail(keyword, "a whole number, 0 or more")
		return nil
	}
	const most = 1 << 40
	n := most
	if bound.exponent < 13 && len(bound.digits) < 13 && bound.digits != "" {
		n, _ = strconv.Atoi(bound.digits + strings.Repeat("0", int(bound.exponent))) // digits always parse
	} else if bound.digits == "" {
		n = 0
	}
	n = min(n, most)
	return &n
}

func (r *reader) members(keyword string) map[string]any {
	value, ok := r.value(keyword)
	if !ok {
		return nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		r.fail(keyword, "an object")
	}
	return object
}

func (r *reader) schema(keyword string) *node {
	if _, ok := r.value(keyword); !ok {
		return nil
	}
	return r.compiled(r.location.child(keyword))
}

func (r *reader) list(keyword string) []*node {
	value, ok := r.value(keyword)
	if !ok {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		r.fail(keyword, "a list of schemas")
	}
	at := r.location.child(keyword)
	nodes := make([]*node, 0, len(list))
	for i := range list {
		nodes = append(nodes, r.compiled(at.child(strconv.Itoa(i))))
	}
	return nodes
}

func (r *reader) schemas(keyword string) map[string]*node {
	nodes := map[string]*node{}
	at := r.location.child(keyword)
	for name := range sorted(r.members(keyword)) {
		nodes[name] = r.compiled(at.child(name))
	}
	return nodes
}

func (r *reader) compiled(at *location) *node {
	n, err := r.compile(at, r.depth+1)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}
