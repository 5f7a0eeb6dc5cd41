package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// Limits of what a model reads of an operation, in bytes.
const (
	maxDescription = 1024
	maxArgument    = 64 // a name
)

// builder makes the tool of an operation.
type builder struct {
	d    *Document
	s    Selection
	auth httptool.Config
	o    *operation
	used map[string]bool // fixed parameters

	config     httptool.Config
	properties []property
}

// property is an argument of the tool.
type property struct {
	name        string
	schema      *node
	description string
	required    bool
}

func (b *builder) build() (t agent.Tool, c httptool.Config, problem string) {
	b.config = httptool.Config{
		Method: b.o.method, Query: maps.Clone(b.auth.Query), Headers: maps.Clone(b.s.Headers), Basic: b.auth.Basic, Sign: b.s.Sign,
		Body: httptool.BodyNone, MaxBytes: b.s.MaxBytes, ShowErrors: b.s.ShowErrors,
		Styles: map[string]httptool.Style{}, HeaderArguments: map[string]string{},
	}
	if b.config.MaxBytes == 0 {
		b.config.MaxBytes = DefaultMaxBytes
	}
	if b.config.Query == nil {
		b.config.Query = map[string]string{}
	}
	if b.config.Headers == nil {
		b.config.Headers = map[string]string{}
	}
	maps.Copy(b.config.Headers, b.auth.Headers)
	server, problem := b.server()
	if problem != "" {
		return t, c, problem
	}
	segments, problem := b.parameters()
	if problem != "" {
		return t, c, problem
	}
	path := strings.NewReplacer(segments...).Replace(b.o.path)
	if strings.ContainsAny(path, "?#") {
		return t, c, fmt.Sprintf("its path %.100q has a query or a fragment", path)
	}
	b.config.URL = strings.TrimRight(server, "/") + path
	if problem := b.body(); problem != "" {
		return t, c, problem
	}
	t.InputSchema, problem = b.input()
	t.Description = b.description()
	t.ReadOnly = b.o.method == http.MethodGet || b.o.method == http.MethodHead
	return t, b.config, problem
}

// server returns the URL before the path.
func (b *builder) server() (address, problem string) {
	if b.s.BaseURL != "" {
		return b.s.BaseURL, ""
	}
	for _, of := range []*node{b.o.node, b.o.item, b.d.root} {
		servers := of.get("servers")
		if servers == nil || servers.kind != list || len(servers.items) == 0 {
			continue
		}
		first := servers.items[0]
		address = first.textOf("url")
		if variables := first.get("variables"); variables != nil && variables.kind == object {
			for i, name := range variables.names {
				address = strings.ReplaceAll(address, "{"+name+"}", variables.items[i].textOf("default"))
			}
		}
		break
	}
	if strings.ContainsAny(address, "{}") {
		return "", fmt.Sprintf("the URL %.100q under servers has a variable without a default; give baseURL", address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Sprintf("the URL %.100q under servers is none; give baseURL", address)
	}
	if source, err := url.Parse(b.s.Source); err == nil && b.s.Source != "" {
		u = source.ResolveReference(u)
		if address == "" { // a document without servers is at the root of one
			u = &url.URL{Scheme: source.Scheme, Host: source.Host}
		}
	}
	if u.Scheme == "" || u.Host == "" {
		return "", "servers has no absolute URL; give baseURL"
	}
	return u.String(), ""
}

// parameters reads the parameters. It returns each {name} of the path, followed by what replaces it.
func (b *builder) parameters() (segments []string, problem string) {
	var all []*node
	at := map[string]int{} // in and name to the number in all
	for _, of := range []*node{b.o.item, b.o.node} {
		list := of.get("parameters")
		if list == nil {
			continue
		}
		for _, item := range list.items {
			p, problem := b.d.follow(item)
			if problem != "" {
				return nil, "parameters: " + problem
			}
			key := p.textOf("in") + " " + p.textOf("name")
			if i, again := at[key]; again { // the operation's own counts
				all[i] = p
				continue
			}
			at[key] = len(all)
			all = append(all, p)
		}
	}
	for _, p := range all {
		segment, problem := b.parameter(p)
		if problem != "" {
			return nil, fmt.Sprintf("the parameter %.100q %s", p.textOf("name"), problem)
		}
		segments = append(segments, segment...)
	}
	for _, part := range strings.Split(b.o.path, "{")[1:] {
		name, _, closed := strings.Cut(part, "}")
		if _, known := at["path "+name]; !closed || !known {
			return nil, fmt.Sprintf("its path has {%.100s}, which is no parameter of it", name)
		}
	}
	return segments, ""
}

// reserved are headers that the runtime writes, or that other parts of a document describe.
var reserved = []string{"Accept", "Content-Type", "Authorization", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Cookie",
	"Idempotency-Key", "Traceparent", "Tracestate", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}

// parameter places a parameter. The problem continues its name.
func (b *builder) parameter(p *node) (segment []string, problem string) {
	name, in := p.textOf("name"), p.textOf("in")
	fixed, isFixed := b.s.Parameters[name]
	if isFixed {
		b.used[name] = true
	}
	header := http.CanonicalHeaderKey(name)
	schema := p.get("schema")
	_, taken := b.config.Query[name]
	isConfigured := func(of map[string]string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(of)), func(n string) bool { return http.CanonicalHeaderKey(n) == header })
	}
	switch {
	case name == "":
		return nil, "has no name"
	case in == "header" && (slices.Contains(reserved, header) || isConfigured(b.config.Headers)):
		return nil, ""
	case in == "query" && taken:
		return nil, "" // the key of an API
	case isFixed && in == "path":
		return []string{"{" + name + "}", escaped(fixed)}, ""
	case isFixed && in == "query":
		b.config.Query[name] = fixed
		return nil, ""
	case isFixed && in == "header":
		b.config.Headers[name] = fixed
		return nil, ""
	case in == "cookie" || schema == nil:
		if !p.is("required") {
			return nil, ""
		}
		if in == "cookie" {
			return nil, "belongs into a cookie, which is not supported"
		}
		return nil, "has no schema"
	}
	style, explode := p.textOf("style"), p.get("explode")
	exploded := p.is("explode") || explode == nil && (style == "" || style == "form")
	argument := b.argument(in, name)
	b.properties = append(b.properties, property{argument, schema, p.textOf("description"), p.is("required") || in == "path"})
	switch in {
	case "path":
		resolved, _ := b.d.follow(schema)
		if kind := resolved.textOf("type"); kind == "array" || kind == "object" || style == "label" || style == "matrix" {
			return nil, "of the path is more than a plain value, which is not supported"
		}
		return []string{"{" + name + "}", "{" + argument + "}"}, ""
	case "header":
		b.config.HeaderArguments[header] = argument
		return nil, ""
	case "query":
		resolved, _ := b.d.follow(schema)
		if resolved.textOf("type") == "object" && style != "deepObject" {
			return nil, "is an object in the query, which only the style deepObject supports"
		}
		b.config.Query[name] = "{" + argument + "}"
		b.config.Styles[name] = queryStyle(style, exploded)
		return nil, ""
	}
	return nil, fmt.Sprintf("is in %.20q; path, query and header are supported", in)
}

// queryStyle is how a list or an object is written.
func queryStyle(style string, exploded bool) httptool.Style {
	switch {
	case style == "deepObject":
		return httptool.StyleBrackets
	case exploded:
		return httptool.StyleRepeated
	case style == "spaceDelimited":
		return httptool.StyleSpaces
	case style == "pipeDelimited":
		return httptool.StylePipes
	}
	return httptool.StyleCommas
}

// escaped keeps a fixed value of the path from becoming several segments.
func escaped(value string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F", "?", "%3F", "#", "%23").Replace(value)
}

// argument returns a name for an argument that no other has.
func (b *builder) argument(in, name string) string {
	isTaken := func(name string) bool {
		return slices.ContainsFunc(b.properties, func(p property) bool { return p.name == name })
	}
	clean := strings.Trim(squeeze(name), "_")
	if clean == "" {
		clean = in
	}
	clean = clean[:min(len(clean), maxArgument)]
	if isTaken(clean) {
		clean = in + "_" + clean
	}
	for i := 2; isTaken(clean); i++ {
		clean = fmt.Sprintf("%s_%d", strings.TrimRight(clean, "_0123456789"), i)
	}
	return clean
}

// body reads the body of the request, in JSON or as a form.
func (b *builder) body() (problem string) {
	body, problem := b.d.follow(b.o.node.get("requestBody"))
	if problem != "" {
		return "requestBody: " + problem
	}
	content := body.get("content")
	if content == nil || content.kind != object || len(content.names) == 0 || b.o.method == http.MethodGet || b.o.method == http.MethodHead {
		return ""
	}
	kinds := make([]string, len(content.names)) // without parameters
	for i, name := range content.names {
		kind, _, _ := strings.Cut(name, ";")
		kinds[i] = strings.ToLower(strings.TrimSpace(kind))
	}
	isJSON := func(kind string) bool {
		return kind == "application/json" || strings.HasSuffix(kind, "+json") || kind == "*/*" || kind == "application/*"
	}
	isForm := func(kind string) bool { return kind == "application/x-www-form-urlencoded" }
	i := slices.IndexFunc(kinds, isJSON)
	if i < 0 {
		i = slices.IndexFunc(kinds, isForm)
	}
	switch {
	case i < 0 && !body.is("required"):
		return ""
	case i < 0:
		return fmt.Sprintf("its body is %.200s; JSON and application/x-www-form-urlencoded are supported", strings.Join(kinds, ", "))
	case isForm(kinds[i]):
		b.config.Form = b.formStyles(content.items[i])
	case strings.HasSuffix(kinds[i], "+json"):
		b.config.Headers["Content-Type"] = kinds[i]
	}
	argument := b.argument("request", "body")
	schema := content.items[i].get("schema")
	if schema == nil {
		schema = &node{kind: object}
	}
	b.properties = append(b.properties, property{argument, schema, body.textOf("description"), body.is("required")})
	b.config.Body, b.config.BodyArgument = "", argument
	return ""
}

// formStyles are how lists and objects of a form are written.
func (b *builder) formStyles(media *node) map[string]httptool.Style {
	styles := map[string]httptool.Style{}
	encoding := media.get("encoding")
	if encoding == nil || encoding.kind != object {
		return styles
	}
	for i, name := range encoding.names {
		of := encoding.items[i]
		style := of.textOf("style")
		styles[name] = queryStyle(style, of.is("explode") || of.get("explode") == nil && (style == "" || style == "form"))
	}
	return styles
}

// input returns the input schema, as deep as its limits permit.
func (b *builder) input() (json.RawMessage, string) {
	for _, depth := range depths {
		s := &schemas{d: b.d, names: map[*node]string{}, taken: map[string]bool{}}
		b.write(s, depth)
		switch {
		case s.isFull():
			continue
		case s.problem != "":
			return nil, s.problem
		}
		input := json.RawMessage(s.out.Bytes())
		if _, err := agent.CompileSchema(input); err != nil {
			return nil, "its input: " + err.Error()
		}
		return input, ""
	}
	return nil, fmt.Sprintf("its input schema has more than the %d bytes that are allowed", maxSchemaBytes)
}

// write writes the input schema.
func (b *builder) write(s *schemas, depth int) {
	required := []string{}
	s.out.WriteString(`{"type":"object","properties":{`)
	for i, p := range b.properties {
		if i > 0 {
			s.out.WriteByte(',')
		}
		s.string(p.name)
		s.out.WriteByte(':')
		s.write(p.schema, p.description, depth)
		if p.required {
			required = append(required, p.name)
		}
	}
	s.out.WriteByte('}')
	if len(required) > 0 {
		list, _ := json.Marshal(required) // texts
		s.out.WriteString(`,"required":`)
		s.out.Write(list)
	}
	s.out.WriteString(`,"additionalProperties":false`)
	s.definitions()
	s.out.WriteByte('}')
}

// description is the summary and the description of the operation.
func (b *builder) description() string {
	summary, more := strings.TrimSpace(b.o.node.textOf("summary")), strings.TrimSpace(b.o.node.textOf("description"))
	if summary == "" || strings.HasPrefix(more, summary) {
		summary, more = more, ""
	}
	if more != "" {
		summary = strings.TrimSuffix(summary, ".") + ".\n\n" + more
	}
	if summary == "" {
		summary = b.o.method + " " + b.o.path
	}
	return shorten(summary, maxDescription)
}

// shorten cuts a text at the end of a word.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	text = text[:limit-len("…")]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	if i := strings.LastIndexAny(text, " \n"); i > limit/2 {
		text = text[:i]
	}
	return strings.TrimRight(text, " \n") + "…"
}
