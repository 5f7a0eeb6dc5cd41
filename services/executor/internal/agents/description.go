package agents

import (
	"bytes"
	"context"
	_ "embed" // the grammar
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/services/executor/internal/endpoint"
)

// Limits of a description.
const (
	maxBuild     = 128 // bytes
	maxSource    = 256 // bytes
	maxDescribed = 500 // agents
)

// descriptionFields are the fields of a description beside those of a file: of the whole, of its agents and of its tools.
//
//go:embed description.json
var descriptionFields []byte

// describing is the grammar of the descriptions of endpoints, decoded. It must not be modified.
var describing = sync.OnceValue(func() *jsonschema.Schema {
	var s jsonschema.Schema
	var more struct{ Properties, Agent, DeclaredTool map[string]*jsonschema.Schema }
	if err := errors.Join(json.Unmarshal(Schema, &s), json.Unmarshal(descriptionFields, &more)); err != nil {
		panic("agents: description.json: " + err.Error())
	}
	for _, name := range []string{"include", "models", "mcpServers", "endpoints"} {
		delete(s.Properties, name)
	}
	for to, fields := range map[*jsonschema.Schema]map[string]*jsonschema.Schema{
		&s: more.Properties, s.Defs["agent"]: more.Agent, s.Defs["declaredTool"]: more.DeclaredTool,
	} {
		for name, field := range fields {
			to.Properties[name] = field
		}
	}
	return &s
})

// Endpoint is how a file reaches an endpoint. ${NAME} is not resolved.
type Endpoint struct {
	URL     string
	Secrets []string
	Headers map[string]string
	TLS     PEM
}

// PEM has the texts of files in the format PEM; empty for those that are not given.
type PEM struct{ Cert, Key, CA string }

// Described is an endpoint with its description.
type Described struct {
	Client *endpoint.Client
	// Data is the description; nil while there is none.
	Data []byte
}

// declaredEndpoint is an endpoint of a file.
type declaredEndpoint struct {
	at     value
	config Endpoint
	found  Described
	err    error
}

// declareEndpoint reads how an endpoint is reached.
func (r *reader) declareEndpoint(v value) {
	var e Endpoint
	url, _ := v.field("url").text()
	defer r.within(Part{Kind: EndpointPart, Name: url})()
	s := read(v, "endpoint", fmt.Sprintf("endpoint %q", url), &e)
	if !v.has("url") && v.kind() == "object" {
		s.mistakeAt("url", "url is missing: where the endpoint is")
	}
	for name, path := range map[string]*string{"cert": &e.TLS.Cert, "key": &e.TLS.Key, "ca": &e.TLS.CA} {
		if *path == "" {
			continue
		}
		source, err := r.versions.read(v.file.path(*path))
		if err != nil {
			s.mistakeAt("tls."+name, "tls: %s cannot be read: %v", name, err)
		}
		*path = string(source.Data)
	}
	if len(s.wrong) == 0 {
		r.endpoints = append(r.endpoints, &declaredEndpoint{at: v, config: e})
	}
}

// describe takes the descriptions of the endpoints in files.
func (r *reader) describe(ctx context.Context) {
	var asking sync.WaitGroup
	for _, e := range r.endpoints {
		asking.Go(func() { e.found, e.err = r.known.Describe(ctx, e.config) })
	}
	asking.Wait()
	for _, e := range r.endpoints {
		leave := r.within(Part{Kind: EndpointPart, Name: e.config.URL})
		s := &section{value: e.at, what: fmt.Sprintf("endpoint %q", e.config.URL), wrong: map[string]bool{}}
		s.reportFields("", e.err)
		leave()
		if e.err == nil {
			r.takeDescription(e.found)
		}
	}
}

// takeDescription collects the declarations of a description, once per endpoint.
func (r *reader) takeDescription(d Described) {
	name := d.Client.Name()
	if d.Data == nil || r.described[name] != nil {
		return
	}
	r.order[name] = len(r.order)
	r.described[name] = map[string]string{}
	defer r.within(Part{Kind: EndpointPart, Name: name})()
	f := r.parseJSON(name, d.Data, false)
	if f == nil {
		r.unread = append(r.unread, name)
		return
	}
	agents, isList := f.root.field("agents").items()
	if !isList { // an answer of something else must not take all agents out of service
		f.root.mistake("the description has no agents: give the member \"agents\", a list")
		r.unread = append(r.unread, name)
	}
	if len(agents) > maxDescribed {
		f.root.mistake("the description has %d agents; at most %d are allowed", len(agents), maxDescribed)
		r.unread = append(r.unread, name)
		return
	}
	f.binding = &endpoint.Binding{Client: d.Client}
	f.tools = newTools(r.tools.builtIn, r.tools.peers)
	f.tools.peers.Lookup = func(string) (string, error) { return "", errors.New("is not for the description of an endpoint") }
	var head struct {
		Endpoint int
		Build    string
		Sources  map[string]string
	}
	version := f.root.field("endpoint")
	_ = json.Unmarshal(version.json(), &head.Endpoint) // a mistake below
	_ = json.Unmarshal(f.root.field("build").json(), &head.Build)
	_ = json.Unmarshal(f.root.field("sources").json(), &head.Sources)
	switch {
	case head.Endpoint != endpoint.Version:
		version.mistake("the description follows version %d of the wire, and this executor knows version %d: give the member \"endpoint\": %[2]d",
			head.Endpoint, endpoint.Version)
		r.unread = append(r.unread, name)
		return
	case len(head.Build) > maxBuild:
		f.root.field("build").mistake("build has %d bytes; at most %d are allowed", len(head.Build), maxBuild)
	default:
		f.binding.Build = head.Build
	}
	for of, source := range head.Sources {
		r.described[name][of] = strings.Map(printable, source[:min(len(source), maxSource)])
	}
	r.files = append(r.files, f)
	r.declare(f)
}

// printable leaves a character out that would break a line.
func printable(c rune) rune {
	if !unicode.IsPrint(c) {
		return -1
	}
	return c
}

// parseJSON reads a description, or a stored agent, whose values have places. It returns nil, with a mistake, for other texts
// than a JSON object.
func (s *sources) parseJSON(name string, data []byte, places bool) *file {
	f := &file{sources: s, name: name}
	f.root = value{file: f, position: position{1, 1}}
	decoder := jsonReader{Decoder: json.NewDecoder(bytes.NewReader(data)), at: position{1, 1}}
	if places {
		decoder.data = data
	}
	decoder.UseNumber()
	root, err := decoder.node(maxDepth)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more text after the object")
		}
	}
	if _, isObject := root.(*ast.MappingNode); err == nil && !isObject {
		err = errors.New("it is not an object")
	}
	if err != nil {
		f.root.mistake("the description is no JSON object: %v", err)
		return nil
	}
	f.root = f.value(root)
	return f
}

// jsonReader reads JSON as nodes. JSON is not read as YAML, which has other escapes in strings, and merges objects.
type jsonReader struct {
	*json.Decoder
	data []byte // nil for nodes that are all placed at 1:1
	seen int    // bytes of data before at
	at   position
}

// place returns a token at the place of the next JSON token.
func (r *jsonReader) place() *token.Token {
	if r.data != nil {
		next := int(r.InputOffset())
		for next < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[next]) >= 0 {
			next++
		}
		for ; r.seen < next; r.seen++ {
			switch c := r.data[r.seen]; {
			case c == '\n':
				r.at = position{r.at.line + 1, 1}
			case utf8.RuneStart(c):
				r.at.column++
			}
		}
	}
	return &token.Token{Position: &token.Position{Line: r.at.line, Column: r.at.column}}
}

// placeOne is the place of what is in no text.
func placeOne() *token.Token { return &token.Token{Position: &token.Position{Line: 1, Column: 1}} }

// node decodes the next JSON value.
func (r *jsonReader) node(depth int) (ast.Node, error) {
	at := r.place()
	next, err := r.Token()
	if err != nil {
		return nil, err
	}
	switch next := next.(type) {
	case json.Delim:
		if depth == 0 {
			return nil, fmt.Errorf("values are nested deeper than %d levels", maxDepth)
		}
		if next == '[' {
			return r.list(at, depth)
		}
		return r.object(at, depth)
	case string:
		return textOf(at, next), nil
	case bool:
		return &ast.BoolNode{BaseNode: &ast.BaseNode{}, Token: at, Value: next}, nil
	case json.Number:
		return numberOf(at, next)
	}
	return ast.Null(at), nil
}

func (r *jsonReader) list(at *token.Token, depth int) (ast.Node, error) {
	list := ast.Sequence(at, true)
	for r.More() {
		item, err := r.node(depth - 1)
		if err != nil {
			return nil, err
		}
		list.Values = append(list.Values, item)
	}
	_, err := r.Token()
	return list, err
}

func (r *jsonReader) object(at *token.Token, depth int) (ast.Node, error) {
	object := ast.Mapping(at, true)
	names := map[string]bool{}
	for r.More() {
		of := r.place()
		name, err := r.Token()
		if err != nil {
			return nil, err
		}
		key := textOf(of, name.(string))
		if names[key.Value] {
			return nil, fmt.Errorf("an object has the member %.100q twice", key.Value)
		}
		names[key.Value] = true
		value, err := r.node(depth - 1)
		if err != nil {
			return nil, err
		}
		object.Values = append(object.Values, ast.MappingValue(at, key, value))
	}
	_, err := r.Token()
	return object, err
}

func textOf(at *token.Token, text string) *ast.StringNode {
	at.Value = text
	return &ast.StringNode{BaseNode: &ast.BaseNode{}, Token: at, Value: text}
}

func numberOf(at *token.Token, n json.Number) (ast.Node, error) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return &ast.IntegerNode{BaseNode: &ast.BaseNode{}, Token: at, Value: i}, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("the number %.100q is too large", n.String())
	}
	return &ast.FloatNode{BaseNode: &ast.BaseNode{}, Token: at, Value: f}, nil
}
