package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/openapi"
)

// Limits of what a set imports. The description of an endpoint may be hostile.
const (
	maxImported  = 5000 // operations
	maxDocuments = 50   // that are fetched
	maxFetching  = 8    // at once
	fetchLimit   = 30 * time.Second
)

// Operation is a tool that was made of an operation in an OpenAPI document.
type Operation struct {
	Document, Tool, Method, Path string
	ReadOnly                     bool
}

// openedDocument is an OpenAPI document that was read, or what is wrong with it.
type openedDocument struct {
	name     string // in mistakes
	document *openapi.Document
	mistakes []mistake
}

// fetched is what a URL has answered.
type fetched struct {
	data []byte
	err  error
}

// isURL reports whether a document is fetched.
func isURL(document string) bool { return strings.Contains(document, "://") }

// fetch fetches the OpenAPI documents that files and descriptions name by URL.
func (r *reader) fetch(ctx context.Context) {
	var urls []string
	collect := func(entry value) {
		if entry.file.stored { // its definition is all of it
			return
		}
		if text, _ := entry.field("openapi").text(); isURL(text) && !slices.Contains(urls, text) {
			urls = append(urls, text)
		}
	}
	for _, entry := range r.imports {
		collect(entry)
	}
	for _, a := range r.agents {
		items, _ := a.field("tools").items()
		for _, item := range items {
			collect(item)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	answers := make([]fetched, len(urls))
	slots := make(chan struct{}, maxFetching)
	var fetching sync.WaitGroup
	for i, url := range urls {
		fetching.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			switch {
			case r.known.Fetch == nil:
				answers[i].err = errors.New("nothing is fetched here")
			case i >= maxDocuments:
				answers[i].err = fmt.Errorf("there are more than %d documents", maxDocuments)
			default:
				answers[i].data, answers[i].err = r.known.Fetch(ctx, url, openapi.MaxJSONBytes)
			}
		})
	}
	fetching.Wait()
	for i, url := range urls {
		r.fetched[url] = answers[i]
	}
}

// declareImported declares the operations that are imported for all agents.
func (r *reader) declareImported() {
	for _, entry := range r.imports {
		leave := r.within(Part{Kind: ToolPart, Name: nameOf(entry)})
		for _, t := range r.importTools("tools", entry) {
			entry.file.tools.add(t, string(entry.json()))
		}
		leave()
	}
}

// importTools reads {openapi: …}: operations of a document as tools. Those with a mistake of their own are wrong, and with a
// mistake in the entry all are.
func (r *reader) importTools(what string, entry value) (placed []placedTool) {
	var f struct {
		behaviour
		OpenAPI    json.RawMessage
		Operations []string
		Prefix     string
		BaseURL    string
		Auth       openapi.Auth
		Headers    map[string]string
		Parameters map[string]string
		Sign       *httptool.Sign
		MaxBytes   int
		ShowErrors bool
	}
	name, _ := entry.field("openapi").text()
	s := read(entry, "importedTools", named(what, "document", name), &f)
	if s.wrong["openapi"] {
		return nil
	}
	opened := r.open(s)
	for _, m := range opened.mistakes {
		r.add(m.file, m.position, "%s", m.text)
	}
	if opened.document == nil {
		return nil
	}
	selection := openapi.Selection{
		Operations: f.Operations, Prefix: f.Prefix, BaseURL: f.BaseURL, Auth: f.Auth, Headers: f.Headers, Parameters: f.Parameters,
		Sign: f.Sign, MaxBytes: f.MaxBytes, ShowErrors: f.ShowErrors,
	}
	if isURL(name) {
		selection.Source = name
	}
	f.rule = readApproval(s, f.Approval)
	operations, err := opened.document.Select(selection)
	s.reportFields("", err)
	if r.imported += len(operations); r.imported > maxImported {
		s.mistakeAt("openapi", "more than %d operations are imported; name those that agents need under operations", maxImported)
		return nil
	}
	for _, o := range operations {
		t := placedTool{tool: o.Tool, at: entry.at("openapi"), request: &o.Config}
		leave := r.within(Part{Kind: ToolPart, Name: o.Tool.Name, Agent: r.part.Agent})
		before := r.count()
		f.apply(&t.tool)
		if o.Text != "" {
			r.add(opened.name, position{o.Line, o.Column}, "%s: the operation %s %s cannot be a tool: %s", s.what, o.Method, o.Path, o.Text)
		} else {
			f.rule.checkArguments(s, t.tool)
			made, err := httptool.New(t.tool, o.Config, entry.file.tools.peers)
			if err == nil {
				t.tool = made
			} else {
				entry.at("openapi").mistake("%s: %s", s.what, strings.ReplaceAll(detail(err), "\n", "; "))
			}
		}
		t.wrong = r.count() > before
		leave()
		if !t.wrong {
			r.operations = append(r.operations, Operation{opened.name, t.tool.Name, o.Method, o.Path, t.tool.ReadOnly})
		}
		if t.tool.Name != "" {
			placed = append(placed, t)
		}
	}
	for i := range placed {
		placed[i].wrong = placed[i].wrong || len(s.wrong) > 0
	}
	return placed
}

// open returns the document of an entry. Entries with the same path or URL share it.
func (r *reader) open(s *section) *openedDocument {
	at := s.at("openapi")
	path, isText := s.field("openapi").text()
	switch {
	case !isText:
		return r.opened(s.file.name, func() (*openapi.Document, error) {
			d, err := openapi.FromYAML(s.field("openapi").node, s.file.anchors)
			return d, within(err, at.position)
		})
	case s.file.stored:
		s.mistakeAt("openapi", "openapi: a stored agent cannot name files and URLs of documents; give the document itself")
		return &openedDocument{}
	case isURL(path):
		if answer := r.fetched[path]; answer.err != nil {
			s.mistakeAt("openapi", "openapi: it cannot be fetched: %v", answer.err)
			return &openedDocument{}
		}
	case s.file.binding != nil:
		s.mistakeAt("openapi", "openapi: the description of an endpoint cannot name files; give a URL or the document itself")
		return &openedDocument{}
	default:
		path = s.file.path(path)
	}
	if known := r.documents[path]; known != nil {
		return known
	}
	data := r.fetched[path].data
	if !isURL(path) {
		source, err := r.versions.readUpTo(path, openapi.MaxJSONBytes)
		if err != nil {
			s.mistakeAt("openapi", "openapi: it cannot be read: %v", err)
			return &openedDocument{}
		}
		data = source.Data
	}
	r.documents[path] = r.opened(path, func() (*openapi.Document, error) { return r.parseDocument(path, data) })
	return r.documents[path]
}

// within places a mistake that has no line in a document at the document's place in its file.
func within(err error, at position) error {
	if m, ok := errors.AsType[openapi.Mistake](err); ok && m.Line <= 1 {
		m.Line, m.Column = at.line, at.column
		return m
	}
	return err
}

// opened reads a document and takes its mistakes off the list: each entry that uses the document reports them.
func (r *reader) opened(name string, read func() (*openapi.Document, error)) *openedDocument {
	before := r.count()
	d, err := read()
	opened := &openedDocument{name: name, document: d, mistakes: slices.Clone(r.list[before:])}
	r.list = r.list[:before]
	if m, ok := errors.AsType[openapi.Mistake](err); ok {
		opened.mistakes = append(opened.mistakes, mistake{file: name, position: position{m.Line, m.Column}, text: m.Text})
	}
	if _, numbered := r.order[name]; !numbered {
		r.order[name] = len(r.order)
	}
	return opened
}

// parseDocument reads a document in YAML or JSON. It may record mistakes itself.
func (r *reader) parseDocument(name string, data []byte) (*openapi.Document, error) {
	plain := bytes.TrimLeft(data, "\ufeff \t\r\n")
	switch {
	case bytes.HasPrefix(plain, []byte("{")):
		return openapi.FromJSON(data)
	case len(plain) == 0:
		return nil, openapi.Mistake{Line: 1, Column: 1, Text: "the document is empty"}
	case len(data) > openapi.MaxYAMLBytes:
		return nil, openapi.Mistake{Line: 1, Column: 1, Text: fmt.Sprintf(
			"the document has %d bytes; at most %d are allowed in YAML, and %d in JSON", len(data), openapi.MaxYAMLBytes, openapi.MaxJSONBytes)}
	}
	f := r.parseUpTo(Source{Name: name, Data: data}, openapi.MaxYAMLBytes)
	if f == nil {
		return nil, errors.New("the document is not YAML") // the mistakes say why
	}
	return openapi.FromYAML(f.root.node, f.anchors)
}
