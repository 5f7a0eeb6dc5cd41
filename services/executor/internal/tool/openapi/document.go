package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// Limits of one selection.
const (
	MaxSelected = 200 // operations
	maxPatterns = 500
)

// maxRefs bounds a chain of references.
const maxRefs = 32

// Mistake is what is wrong with a document, and where. Lines and columns start at 1; 0 is the whole document.
type Mistake struct {
	Line, Column int
	Text         string
}

func (m Mistake) Error() string { return m.Text }

// Document is a document that was read. Safe for concurrent use.
type Document struct {
	root       *node
	operations []*operation
}

// operation is an operation of a document.
type operation struct {
	name         string // operationId, or made of method and path
	method, path string
	node, item   *node // itself and the object of its path
	problem      string
}

// FromJSON reads a document in JSON. The error is a Mistake.
func FromJSON(data []byte) (*Document, error) {
	if len(data) > MaxJSONBytes {
		return nil, Mistake{1, 1, fmt.Sprintf("the document has %d bytes; at most %d are allowed", len(data), MaxJSONBytes)}
	}
	root, err := readJSON(data)
	if err != nil {
		return nil, placed(err)
	}
	return read(root)
}

// FromYAML reads a document from YAML that was parsed, with the anchors that its aliases may name. The error is a Mistake.
func FromYAML(tree ast.Node, anchors map[string]ast.Node) (*Document, error) {
	root, err := readYAML(tree, anchors)
	if err != nil {
		return nil, placed(err)
	}
	return read(root)
}

// placed returns an error as a mistake.
func placed(err error) error {
	if m, ok := errors.AsType[Mistake](err); ok {
		return m
	}
	return Mistake{1, 1, err.Error()}
}

func read(root *node) (*Document, error) {
	version := root.get("openapi")
	switch {
	case root.get("swagger") != nil:
		return nil, Mistake{1, 1, "it is a document of Swagger 2.0; convert it to OpenAPI 3"}
	case version == nil:
		return nil, Mistake{1, 1, `it is no OpenAPI document: it has no member "openapi" with a version`}
	case !strings.HasPrefix(version.text, "3.0") && !strings.HasPrefix(version.text, "3.1"):
		text := fmt.Sprintf("it follows OpenAPI %.20q; the versions 3.0 and 3.1 are known", version.text)
		return nil, Mistake{version.line, version.column, text}
	}
	d := &Document{root: root}
	paths := root.get("paths")
	if paths == nil || paths.kind != object {
		return nil, Mistake{1, 1, "it has no paths"}
	}
	for i, path := range paths.names {
		if !strings.HasPrefix(path, "/") {
			continue // an extension
		}
		item, problem := d.follow(paths.items[i])
		for _, method := range []string{"get", "head", "options", "post", "put", "patch", "delete"} {
			if n := item.get(method); n != nil {
				o := &operation{name: n.textOf("operationId"), method: strings.ToUpper(method), path: path, node: n, item: item}
				if o.name == "" {
					o.name = strings.TrimRight(squeeze(method+"_"+path), "_")
				}
				d.operations = append(d.operations, o)
			}
		}
		if problem != "" {
			d.operations = append(d.operations, &operation{name: path, method: "*", path: path, node: paths.items[i], problem: problem})
		}
	}
	return d, nil
}

// follow returns what a $ref refers to, and any other value itself. The problem is a reference that leads nowhere.
func (d *Document) follow(n *node) (target *node, problem string) {
	for range maxRefs {
		ref := n.textOf("$ref")
		if ref == "" {
			return n, ""
		}
		if n, problem = d.at(ref); problem != "" {
			return nil, problem
		}
	}
	return nil, fmt.Sprintf("the $ref %.100q refers to itself", n.textOf("$ref"))
}

// at returns the value at a reference within the document.
func (d *Document) at(ref string) (*node, string) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, fmt.Sprintf("the $ref %.100q leads out of the document; put everything into one document", ref)
	}
	n := d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if i, err := strconv.Atoi(part); err == nil && n != nil && n.kind == list && i >= 0 && i < len(n.items) {
			n = n.items[i]
			continue
		}
		if n = n.get(part); n == nil {
			return nil, fmt.Sprintf("the $ref %.100q leads nowhere", ref)
		}
	}
	return n, ""
}

// Selection says which operations become tools, and how they are called.
type Selection struct {
	// Operations are operationIds and patterns: * stands for any text, as in list* and "GET /orders*", and ! before one takes
	// operations away. A pattern with * does not select deprecated operations. Empty means all.
	Operations []string
	// Prefix is before the names of the tools.
	Prefix string
	// BaseURL replaces the servers of the document.
	BaseURL string
	// Source is the URL of the document, empty for a file. A server's URL may be relative to it.
	Source string
	Auth   Auth
	// Headers are those of each request: see httptool.Config.
	Headers map[string]string
	// Parameters are parameters with a fixed value, by name: a template as in httptool.Config.Query. The model does not see them.
	Parameters map[string]string
	Sign       *httptool.Sign
	// MaxBytes limits a response; 0 means DefaultMaxBytes.
	MaxBytes   int
	ShowErrors bool
}

// Auth is how requests authenticate, at most one of them. ${NAME} is an environment variable.
type Auth struct {
	Bearer string
	// APIKey goes where the only API key among the document's securitySchemes belongs.
	APIKey string
	Basic  *Basic
}

// Basic is Basic authentication.
type Basic struct{ User, Password string }

// DefaultMaxBytes is the default limit on a response.
const DefaultMaxBytes = 256 << 10

// Operation is an operation as a tool. With a Problem, the tool has a name alone, and no name if another operation has it.
type Operation struct {
	Tool         agent.Tool
	Config       httptool.Config
	Method, Path string
	Mistake      // at the operation; an empty Text for none
}

// Select makes tools of operations, in the order of the document. The error has one line for each mistake in the selection, beginning with
// the field, as in "operations: …".
func (d *Document) Select(s Selection) ([]Operation, error) {
	var mistakes []string
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	if len(s.Operations) > maxPatterns {
		return nil, fmt.Errorf("operations: there are %d entries; at most %d are allowed", len(s.Operations), maxPatterns)
	}
	chosen := map[*operation]bool{}
	if len(s.Operations) == 0 || strings.HasPrefix(s.Operations[0], "!") {
		s.Operations = append([]string{"*"}, s.Operations...)
	}
	for _, pattern := range s.Operations {
		without, takesAway := strings.CutPrefix(pattern, "!")
		found := false
		for _, o := range d.operations {
			if !o.matches(without) {
				continue
			}
			found = true
			chosen[o] = !takesAway
		}
		if !found {
			mistake("operations: no operation is %q: give an operationId such as %q, or a pattern such as list* or \"GET /orders*\"",
				pattern, d.example())
		}
	}
	auth, err := d.auth(s.Auth)
	if err != nil {
		mistake("auth: %v", err)
	}
	var made []Operation
	names := map[string]*operation{}
	used := map[string]bool{}
	for _, o := range d.operations {
		if !chosen[o] {
			continue
		}
		if len(made) == MaxSelected {
			mistake("operations: there are more than %d; name those that the agent needs", MaxSelected)
			break
		}
		name := toolName(s.Prefix, o.name)
		m := Operation{Method: o.method, Path: o.path, Mistake: Mistake{Line: o.node.line, Column: o.node.column}}
		switch first := names[name]; {
		case first != nil:
			m.Text = fmt.Sprintf("its tool would be named %q, as that of %s %s; select one of them", name, first.method, first.path)
		case o.problem != "":
			m.Text = o.problem
		default:
			names[name] = o
			b := builder{d: d, s: s, auth: auth, o: o, used: used}
			m.Tool, m.Config, m.Text = b.build()
			m.Tool.Name = name
		}
		made = append(made, m)
	}
	if len(mistakes) == 0 {
		for name := range s.Parameters {
			if !used[name] {
				mistake("parameters: no selected operation has a parameter %q", name)
			}
		}
	}
	slices.Sort(mistakes)
	if len(mistakes) > 0 {
		return made, errors.New(strings.Join(mistakes, "\n"))
	}
	return made, nil
}

// matches reports whether a pattern selects the operation.
func (o *operation) matches(pattern string) bool {
	if strings.Contains(pattern, "*") && o.node.is("deprecated") {
		return false
	}
	method, path, both := strings.Cut(pattern, " ")
	if !both {
		return wild(pattern, o.name)
	}
	return (method == "*" || strings.EqualFold(method, o.method)) && wild(strings.TrimSpace(path), o.path)
}

// wild reports whether a text matches a pattern in which * stands for any text.
func wild(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !more {
		return ok && text == ""
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		_, behind, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = behind
	}
	return strings.HasSuffix(text, last)
}

// example is the name of an operation.
func (d *Document) example() string {
	if len(d.operations) == 0 {
		return "listOrders"
	}
	return d.operations[0].name
}

// auth returns the headers and the query of an authentication.
func (d *Document) auth(a Auth) (made httptool.Config, err error) {
	given := 0
	for _, is := range []bool{a.Bearer != "", a.APIKey != "", a.Basic != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return made, errors.New("give one of bearer, basic and apiKey")
	case a.Bearer != "":
		made.Headers = map[string]string{"Authorization": "Bearer " + a.Bearer}
	case a.Basic != nil:
		made.Basic = &httptool.Basic{User: a.Basic.User, Password: a.Basic.Password}
	case a.APIKey != "":
		return d.apiKey(a.APIKey)
	}
	return made, nil
}

func (d *Document) apiKey(value string) (made httptool.Config, err error) {
	var keys []*node
	schemes := d.root.get("components").get("securitySchemes")
	if schemes != nil && schemes.kind == object {
		for _, scheme := range schemes.items {
			if scheme, _ = d.follow(scheme); scheme.textOf("type") == "apiKey" {
				keys = append(keys, scheme)
			}
		}
	}
	if len(keys) != 1 {
		return made, fmt.Errorf("apiKey: the document has %d API keys under securitySchemes; put the key into headers or parameters", len(keys))
	}
	name := keys[0].textOf("name")
	switch in := keys[0].textOf("in"); in {
	case "header":
		made.Headers = map[string]string{name: value}
	case "query":
		made.Query = map[string]string{name: value}
	default:
		return made, fmt.Errorf("apiKey: an API key in %.20q is not supported", in)
	}
	return made, nil
}

// toolName makes a name that all providers accept.
func toolName(prefix, name string) string {
	name = prefix + squeeze(name)
	return name[:min(len(name), 64)]
}

// squeeze replaces each run of other characters than A-Z a-z 0-9 _ - by one _.
func squeeze(name string) string {
	var out strings.Builder
	gap := false
	for _, c := range name {
		if c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			if gap {
				out.WriteByte('_')
			}
			gap = false
			out.WriteRune(c)
			continue
		}
		gap = !strings.HasSuffix(out.String(), "_") && out.Len() > 0
	}
	return out.String()
}
