package holdfast_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// qualified matches a package or type and a name in it, such as http.Request, Header.Set or http.Header.Set.
var qualified = regexp.MustCompile(`(?:^|[^\w./"'-])([A-Za-z]\w*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// camelCase matches a word that only code writes so, such as useChat or StartRun.
var camelCase = regexp.MustCompile(`(?:^|[^\w./"'-])([a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)\b`)

// properNames are words in the form of an identifier that name a product, or a thing of another one.
var properNames = []string{"EventSource", "GitHub", "JavaScript", "TypeScript", "contentEncoding", "processUIMessageStream"}

// A scope holds the names that a package declares: its own, and those of each type's fields and methods.
type scope struct {
	names   map[string]bool
	members map[string]map[string]bool
	open    map[string]bool // types that embed another one, whose names are not known here
}

func newScope() *scope {
	return &scope{map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}}
}

// has reports whether the scope declares name and, unless member is empty, whether name is no type or has the member.
func (s *scope) has(name, member string) bool {
	if !s.names[name] {
		return false
	}
	members, isType := s.members[name]
	return member == "" || !isType || members[member] || s.open[name]
}

func (s *scope) add(file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				s.names[d.Name.Name] = true
				continue
			}
			s.addMember(receiver(d.Recv.List[0].Type), d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						s.names[name.Name] = true
					}
				case *ast.TypeSpec:
					s.addType(spec)
				}
			}
		}
	}
}

func (s *scope) addType(spec *ast.TypeSpec) {
	name := spec.Name.Name
	s.names[name] = true
	if s.members[name] == nil {
		s.members[name] = map[string]bool{}
	}
	var fields *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		s.open[name] = true
		return
	}
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			s.open[name] = true
		}
		for _, n := range field.Names {
			s.addMember(name, n.Name)
		}
	}
}

func (s *scope) addMember(typ, name string) {
	if s.members[typ] == nil {
		s.members[typ] = map[string]bool{}
	}
	s.members[typ][name] = true
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// listed is a package as `go list` prints it.
type listed struct{ path, dir, name string }

// dependencies lists the packages of the module, of its tests, and all that they import.
func dependencies(t *testing.T) []listed {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-test", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{.Name}}", "./...").Output()
	if err != nil {
		t.Fatal("list packages:", err)
	}
	var all []listed
	for line := range strings.Lines(string(out)) {
		field := strings.Split(strings.TrimSpace(line), "\t")
		if len(field) == 3 && field[1] != "" && !strings.Contains(field[0], " ") && !strings.HasSuffix(field[0], ".test") {
			all = append(all, listed{field[0], field[1], field[2]})
		}
	}
	return all
}

// names resolves what comments name.
type names struct {
	dirs     map[string]string   // of import paths
	paths    map[string][]string // import paths of the packages with a name
	packages map[string]string   // names of packages, by import path
	scopes   map[string]*scope   // by import path, read when they are needed
}

func (n *names) scope(t *testing.T, importPath string) *scope {
	if s := n.scopes[importPath]; s != nil {
		return s
	}
	s := newScope()
	n.scopes[importPath] = s
	files, err := filepath.Glob(filepath.Join(n.dirs[importPath], "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.add(file)
	}
	return s
}

// exists reports whether left.name, and left.name.member, is declared where a comment of the file could mean it.
func (n *names) exists(t *testing.T, own string, imports map[string]string, left, name, member string) bool {
	if importPath := imports[left]; importPath != "" {
		return n.scope(t, importPath).has(name, member)
	}
	if s := n.scope(t, own); s.names[left] {
		return s.has(left, name)
	}
	if packages := n.paths[left]; len(packages) > 0 {
		return slices.ContainsFunc(packages, func(p string) bool { return n.scope(t, p).has(name, member) })
	}
	found := false // a type of another package of the module
	for p := range n.dirs {
		if !strings.HasPrefix(p, module) && p != strings.TrimSuffix(module, "/") {
			continue
		}
		if s := n.scope(t, p); s.names[left] {
			if s.has(left, name) {
				return true
			}
			found = true
		}
	}
	return !found
}

func TestCommentsNameWhatExists(t *testing.T) {
	t.Parallel()
	n := names{map[string]string{}, map[string][]string{}, map[string]string{}, map[string]*scope{}}
	for _, p := range dependencies(t) {
		n.dirs[p.path] = p.dir
		n.paths[p.name] = append(n.paths[p.name], p.path)
		n.packages[p.path] = p.name
	}
	known := wordsOfCode(t)
	for _, importPath := range slices.Sorted(maps.Keys(n.dirs)) {
		if !strings.HasPrefix(importPath, module) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(n.dirs[importPath], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(file) {
				continue
			}
			if !strings.HasSuffix(name, "_test.go") {
				checkDocs(t, set, file)
			}
			imports := n.imports(file)
			for _, group := range file.Comments {
				for _, line := range group.List {
					if strings.HasPrefix(line.Text, "//\t") || strings.HasPrefix(line.Text, "//    ") { // an example or a picture
						continue
					}
					for _, m := range qualified.FindAllStringSubmatch(line.Text, -1) {
						if !n.exists(t, importPath, imports, m[1], m[2], m[3]) {
							t.Errorf("%s: the comment names %s, which does not exist", set.Position(line.Pos()), strings.Trim(m[0], " ()[]\t,*"))
						}
					}
					for _, m := range camelCase.FindAllStringSubmatch(line.Text, -1) {
						if word := m[1]; !known[word] && !known[strings.TrimSuffix(word, "s")] && !slices.Contains(properNames, word) {
							t.Errorf("%s: the comment names %s, which no code has", set.Position(line.Pos()), word)
						}
					}
				}
			}
		}
	}
}

// checkDocs requires that the doc comments of functions, types and methods of interfaces begin with the name, after an
// article or without one.
func checkDocs(t *testing.T, set *token.FileSet, file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		var name string
		var doc *ast.CommentGroup
		switch node := node.(type) {
		case *ast.FuncDecl:
			name, doc = node.Name.Name, node.Doc
		case *ast.GenDecl:
			if spec, ok := node.Specs[0].(*ast.TypeSpec); ok && len(node.Specs) == 1 {
				name, doc = spec.Name.Name, node.Doc
			}
		case *ast.InterfaceType:
			for _, method := range node.Methods.List {
				if len(method.Names) == 1 {
					checkDoc(t, set, method.Names[0].Name, method.Doc)
				}
			}
		}
		checkDoc(t, set, name, doc)
		_, inside := node.(*ast.BlockStmt)
		return !inside
	})
}

func checkDoc(t *testing.T, set *token.FileSet, name string, doc *ast.CommentGroup) {
	words := strings.Fields(doc.Text())
	if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
		words = words[1:]
	}
	if len(words) > 0 && !strings.HasPrefix(words[0], name) {
		t.Errorf("%s: the comment of %s begins with %s", set.Position(doc.Pos()), name, words[0])
	}
}

// imports returns the import path of each name by which the file imports a package.
func (n *names) imports(file *ast.File) map[string]string {
	imports := map[string]string{}
	for _, i := range file.Imports {
		importPath := strings.Trim(i.Path.Value, `"`)
		local := cmp.Or(n.packages[importPath], path.Base(importPath))
		if i.Name != nil {
			local = i.Name.Name
		}
		imports[local] = importPath
	}
	return imports
}

// wordsOfCode returns the words of the repository's source, contracts, clients and data: all but the comments of Go.
func wordsOfCode(t *testing.T) map[string]bool {
	word := regexp.MustCompile(`[A-Za-z_]\w*`)
	words := map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && slices.Contains([]string{"node_modules", ".git", ".bin"}, d.Name()) {
				return filepath.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".go", ".proto", ".sql", ".ts", ".tsx", ".js", ".mjs", ".json", ".yaml", ".txt"}, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || filepath.Ext(name) != ".go" {
			for _, w := range word.FindAll(text, -1) {
				words[string(w)] = true
			}
			return err
		}
		var s scanner.Scanner
		s.Init(token.NewFileSet().AddFile(name, -1, len(text)), text, nil, 0)
		for {
			_, tok, literal := s.Scan()
			if tok == token.EOF {
				return nil
			}
			for _, w := range word.FindAllString(literal, -1) {
				words[w] = true
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}
