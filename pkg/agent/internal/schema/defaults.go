package schema

import "errors"

// ApplyDefaults returns the value with the defaults of missing members, in nested objects too. Existing
// members stay. A value other than an object is returned unchanged.
func (s *Schema) ApplyDefaults(raw []byte) ([]byte, error) {
	value, err := decode(raw)
	if err != nil {
		return nil, errors.New("the value is not JSON")
	}
	k := &checker{}
	k.fillDefaults(s.root, value)
	if k.exceeded != "" {
		return nil, errors.New("the value " + k.exceeded)
	}
	return encode(value)
}

// fillDefaults adds the defaults to an object in place.
func (k *checker) fillDefaults(n *node, value any) {
	object, ok := value.(map[string]any)
	k.depth++
	defer func() { k.depth-- }()
	if k.depth > maxDepth && k.exceeded == "" {
		k.exceeded = "is nested too deeply; make it flatter"
	}
	if !ok || !k.spend(1+len(n.names)) {
		return
	}
	for _, name := range n.names {
		property := n.properties[name]
		inner, has := object[name]
		if fallback, ok := property.findDefault(); !has && ok {
			inner, has = k.clone(fallback), true
			object[name] = inner
		}
		if has {
			k.fillDefaults(property, inner)
		}
	}
	if n.ref != nil {
		k.fillDefaults(n.ref, object)
	}
	for _, one := range n.allOf {
		k.fillDefaults(one, object)
	}
}

// findDefault returns the default of the schema, or of the target of its $ref.
func (n *node) findDefault() (any, bool) {
	for ; n != nil; n = n.ref { // acyclic: see compile
		if n.hasDefault {
			return n.defaultValue, true
		}
	}
	return nil, false
}

// clone copies a default, which fillDefaults may modify.
func (k *checker) clone(value any) any {
	if !k.spend(1) {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, inner := range v {
			object[name] = k.clone(inner)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = k.clone(item)
		}
		return list
	case string:
		k.spend(len(v) / visitBytes)
	}
	return value
}
