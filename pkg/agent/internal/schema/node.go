package schema

// node is a compiled schema. Fields of missing keywords are nil.
type node struct {
	never bool // the schema false

	types []string
	// allowed contains the canonical values of enum and const, allowedText lists them.
	allowed     map[string]bool
	allowedText string
	longest     int // bytes of the longest canonical value

	multipleOf, minimum, maximum, exclusiveMinimum, exclusiveMaximum *decimalBound

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
	dependencies                 []dependency

	ref                             *node
	allOf, anyOf, oneOf             []*node
	not, ifNode, thenNode, elseNode *node

	defaultValue any // the default
	hasDefault   bool
}

type decimalBound struct {
	decimal
	text string
}

type patternNode struct {
	pattern *pattern
	node    *node
}

// dependency applies to objects with a member: they need other members, or must fit a schema.
type dependency struct {
	name     string
	required []string
	node     *node
}

// inPlace returns the subschemas for the same value.
func (n *node) inPlace() []*node {
	var list []*node
	for _, one := range []*node{n.ref, n.not, n.ifNode, n.thenNode, n.elseNode} {
		if one != nil {
			list = append(list, one)
		}
	}
	list = append(list, n.allOf...)
	list = append(list, n.anyOf...)
	list = append(list, n.oneOf...)
	for _, need := range n.dependencies {
		if need.node != nil {
			list = append(list, need.node)
		}
	}
	return list
}
