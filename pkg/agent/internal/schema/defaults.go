package schema

import "errors"

// ApplyDefaults gives the value with the defaults of the members that it leaves out,
// in nested objects too. Members that are there stay as they are. What is no
// object is given back as it is.
func (s *Schema) ApplyDefaults(raw []byte) ([]byte, error) {
	value, err := decode(raw)
	if err != nil {
		return nil, errors.New("the value is not JSON")
	}
	k := &checker{}
	k.fill(s.root, value)
	if k.tooMuch != "" {
		return nil, errors.New("the value " + k.tooMuch)
	}
	return encode(value)
}

// fill adds what is missing to objects in place.
func (k *checker) fill(n *node, value any) {
	object, ok := value.(map[string]any)
	k.frames++
	defer func() { k.frames-- }()
	if k.frames > maxFrames && k.tooMuch == "" {
		k.tooMuch = "is nested too deeply; make it flatter"
	}
	if !ok || !k.spend(1+len(n.names)) {
		return
	}
	for _, name := range n.names {
		property := n.properties[name]
		inner, has := object[name]
		if fallback, ok := property.defaultValue(); !has && ok {
			inner, has = k.clone(fallback), true
			object[name] = inner
		}
		if has {
			k.fill(property, inner)
		}
	}
	if n.ref != nil {
		k.fill(n.ref, object)
	}
	for _, one := range n.allOf {
		k.fill(one, object)
	}
}

// defaultValue is the schema's own, or that of what it refers to.
func (n *node) defaultValue() (any, bool) {
	for ; n != nil; n = n.ref { // references do not lead back: see acyclic
		if n.hasFallback {
			return n.fallback, true
		}
	}
	return nil, false
}

// clone copies what fill may change, as far as there may be more.
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
