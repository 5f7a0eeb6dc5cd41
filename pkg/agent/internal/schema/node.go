package schema

// node is a compiled schema. What a keyword does not limit is nil.
type node struct {
	never bool // the schema false

	types []string
	// allowed has the keys of enum and const, allowedText what to say of them.
	allowed     map[string]bool
	allowedText string
	longest     int // bytes of the longest key

	multipleOf, minimum, maximum, above, below *decimalBound

	minLength, maxLength *int
	pattern              *pattern

	prefix                   []*node
	items                    *node
	minItems, maxItems       *int
	unique                   bool
	contains                 *node
	minContains, maxContains *int
	unevaluatedItems         *node

	properties                   map[string]*node
	names                        []string // of properties, sorted
	patterns                     []patternNode
	additional                   *node
	propertyNames                *node
	unevaluated                  *node
	required                     []string
	minProperties, maxProperties *int
	needs                        []need

	ref                        *node
	allOf, anyOf, oneOf        []*node
	not, when, then, otherwise *node

	fallback    any // the default
	hasFallback bool
}

type decimalBound struct {
	decimal
	text string
}

type patternNode struct {
	pattern *pattern
	node    *node
}

// need is what a member brings along: other members, a schema of the object.
type need struct {
	member  string
	members []string
	node    *node
}

// inPlace gives the schemas that hold for the same value.
func (n *node) inPlace() []*node {
	var list []*node
	for _, one := range []*node{n.ref, n.not, n.when, n.then, n.otherwise} {
		if one != nil {
			list = append(list, one)
		}
	}
	list = append(list, n.allOf...)
	list = append(list, n.anyOf...)
	list = append(list, n.oneOf...)
	for _, need := range n.needs {
		if need.node != nil {
			list = append(list, need.node)
		}
	}
	return list
}
