package page

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/holdfast-run/holdfast/docs"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

const (
	manualPattern = "/manual/{page...}"
	firstPage     = "README.md"
)

// manual has the pages of the manual as HTML, by name without the ending. The first page has the empty name.
var manual = sync.OnceValues(func() (map[string][]byte, error) {
	around, err := template.ParseFS(assets, "assets/manual.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(docs.Pages, "*.md")
	if err != nil {
		return nil, err
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(
		parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(links{}, 0))))
	pages := make(map[string][]byte, len(names))
	for _, name := range names {
		source, err := docs.Pages.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var body, page bytes.Buffer
		if err := markdown.Convert(source, &body); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(source), "# "), "\n")
		// The manual is our own text, and goldmark leaves out HTML in it.
		if err := around.Execute(&page, map[string]any{"Title": title, "Body": template.HTML(body.String())}); err != nil { //nolint:gosec // see above
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		pages[pageName(name)] = page.Bytes()
	}
	return pages, nil
})

// pageName returns the name under which a file of the manual is served.
func pageName(file string) string {
	if file == firstPage {
		return ""
	}
	return strings.TrimSuffix(file, ".md")
}

// links makes links between files lead to the served pages. A link to a file of the repository becomes its text.
type links struct{}

func (links) Transform(document *ast.Document, _ text.Reader, _ parser.Context) {
	var outside []*ast.Link
	// Walk fails only if its function does.
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		link, ok := n.(*ast.Link)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		target, anchor, _ := strings.Cut(string(link.Destination), "#")
		switch {
		case strings.HasPrefix(target, "../"):
			outside = append(outside, link)
		case strings.HasSuffix(target, ".md") && !strings.Contains(target, "/"):
			link.Destination = []byte("/manual/" + pageName(target))
			if anchor != "" {
				link.Destination = append(link.Destination, "#"+anchor...)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, link := range outside {
		for parent := link.Parent(); link.FirstChild() != nil; {
			parent.InsertBefore(parent, link, link.FirstChild())
		}
		link.Parent().RemoveChild(link.Parent(), link)
	}
}

// serveManual serves a page of the manual. NotFound (ROUTE_NOT_FOUND): there is no such page.
func serveManual(w http.ResponseWriter, r *http.Request, _ string) error {
	pages, err := manual()
	if err != nil {
		return err
	}
	text, ok := pages[r.PathValue("page")]
	if !ok {
		return fault.New(fault.NotFound, "ROUTE_NOT_FOUND", "the manual has no page %s; /manual/ lists them", r.PathValue("page"))
	}
	write(w, text, "text/html; charset=utf-8", "no-cache")
	return nil
}
