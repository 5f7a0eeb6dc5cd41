package holdfast_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module begins the import paths of the module's packages. The package at its root has the path without the slash.
const module = "github.com/holdfast-run/holdfast/"

// A wall forbids imports from some packages to others, for a reason.
type wall struct {
	from    func(pkg string) bool
	forbids func(pkg, imported string) bool
	reason  string
}

var walls = []wall{
	{
		from: below("pkg/fault", "pkg/grant", "pkg/position", "pkg/fanout", "pkg/outbound", "pkg/rpc", "pkg/process", "pkg/config", "pkg/telemetry"),
		forbids: func(pkg, imported string) bool {
			inner, ours := strings.CutPrefix(imported, module)
			return ours && inner != "pkg/fault" && !strings.HasPrefix(inner, pkg+"/internal/")
		},
		reason: "the ground knows no noun of the product",
	},
	{
		from: is("pkg/step"),
		forbids: func(_, imported string) bool {
			inner, ours := strings.CutPrefix(imported, module)
			return ours && inner != "proto/holdfast/event/v1"
		},
		reason: "the chunks of a step are made of the event contract alone, so that a heart may make them",
	},
	{
		from: below("pkg/service"),
		forbids: func(_, imported string) bool {
			inner, ours := strings.CutPrefix(imported, module)
			return ours && !is("pkg/fault", "pkg/process", "pkg/config", "pkg/telemetry")(inner)
		},
		reason: "the program of a service stands on the ground alone",
	},
	{
		from: func(pkg string) bool { return below("pkg/")(pkg) && pkg != testKit },
		forbids: func(_, imported string) bool {
			return strings.HasPrefix(imported, module+"services/")
		},
		reason: "what users import does not drag a service in; only the test kit runs the services",
	},
	{
		from: func(pkg string) bool { return below("services/")(pkg) && !strings.HasSuffix(pkg, "test") }, // tests run the real peers of a service
		forbids: func(pkg, imported string) bool {
			return strings.HasPrefix(imported, module+"services/") && service(pkg) != service(strings.TrimPrefix(imported, module))
		},
		reason: "services meet on the wire and nowhere else",
	},
	{
		from: below("services/"),
		forbids: func(_, imported string) bool {
			inner, ours := strings.CutPrefix(imported, module)
			return ours && (below("cmd/", "e2e/", "deploy/")(inner) || inner == testKit)
		},
		reason: "what ties services together stands above them",
	},
	{
		from: is(hearts...),
		forbids: func(pkg, imported string) bool {
			if strings.HasPrefix(imported, module) {
				return !heartMayKnow(pkg, strings.TrimPrefix(imported, module))
			}
			return !standard(imported) || doesIO(imported)
		},
		reason: "hearts are pure rules: no input, no output, no clock",
	},
	{
		from: func(pkg string) bool { return implementation(pkg) != "" },
		forbids: func(pkg, imported string) bool {
			other := implementation(strings.TrimPrefix(imported, module))
			return other != "" && other != implementation(pkg) && path.Dir(other) == path.Dir(implementation(pkg))
		},
		reason: "implementations of one interface never lean on each other",
	},
	{
		from: below("cmd/holdfast/internal/cli"),
		forbids: func(_, imported string) bool {
			return strings.HasPrefix(imported, module+"services/") || strings.HasPrefix(imported, module+"proto/holdfast/state/") || strings.HasPrefix(imported, module+"proto/holdfast/stream/")
		},
		reason: "an operator's commands use the public API",
	},
	{
		from: func(pkg string) bool { return pkg != "." && !below("cmd/", "examples/")(pkg) },
		forbids: func(_, imported string) bool {
			return imported+"/" == module
		},
		reason: "the package at the root composes all services: it is for programs",
	},
	{
		from: below("e2e"),
		forbids: func(_, imported string) bool {
			return strings.HasPrefix(imported, module+"services/")
		},
		reason: "black-box tests see what users see",
	},
}

// testKit runs all services in the tests of users.
const testKit = "pkg/agenttest"

var hearts = []string{
	"services/state/internal/session",
	"services/state/internal/governor",
	"services/stream/internal/livelog",
	"services/executor/internal/loop",
	"services/gateway/internal/uistream",
}

// heartMayKnow lists the packages of the module that a heart may import beside pkg/fault and pkg/position: its
// vocabulary.
func heartMayKnow(heart, imported string) bool {
	switch imported {
	case "pkg/fault", "pkg/position":
		return true
	case "pkg/agent", "services/executor/internal/model":
		return heart == "services/executor/internal/loop"
	case "pkg/step", "proto/holdfast/event/v1":
		return heart == "services/gateway/internal/uistream"
	}
	return false
}

// rooms are folders with one implementation of an interface per subfolder.
var rooms = []string{
	"services/state/internal/store",
	"services/stream/internal/log",
	"services/executor/internal/model",
}

// shared lists the packages that the implementations of a room share.
var shared = []string{
	"services/state/internal/store/group",
	"services/state/internal/store/table",
	"services/executor/internal/model/profile",
	"services/executor/internal/model/providerhttp",
	"services/executor/internal/model/schemaform",
}

// implementation returns the folder of a package's implementation, or "". Conformance suites and shared engines
// are not implementations.
func implementation(pkg string) string {
	for _, room := range rooms {
		rest, ok := strings.CutPrefix(pkg, room+"/")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, "/")
		if strings.HasSuffix(name, "test") || slices.Contains(shared, room+"/"+name) {
			return ""
		}
		return room + "/" + name
	}
	return ""
}

func TestEveryImportKeepsTheWalls(t *testing.T) {
	t.Parallel()
	for pkg, imports := range importsOf(t, ".") {
		for imported, file := range imports {
			for _, w := range walls {
				if w.from(pkg) && w.forbids(pkg, imported) {
					t.Errorf("%s imports %s: %s", file, imported, w.reason)
				}
			}
		}
	}
}

func TestEveryHeartIsThere(t *testing.T) {
	t.Parallel()
	packages := importsOf(t, ".")
	for _, heart := range hearts {
		if packages[heart] == nil {
			t.Errorf("%s holds no Go file: the walls around it protect nothing", heart)
		}
	}
}

// importsOf returns, for each package below root, the imports of its non-test files with one importing file
// each.
func importsOf(t *testing.T, root string) map[string]map[string]string {
	t.Helper()
	packages := make(map[string]map[string]string)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || len(d.Name()) > 1 && d.Name()[0] == '.') {
			return filepath.SkipDir
		}
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(file))
		if packages[pkg] == nil {
			packages[pkg] = make(map[string]string)
		}
		return addImports(packages[pkg], file)
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func addImports(imports map[string]string, file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return fmt.Errorf("read the imports of %s: %w", file, err)
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("read the imports of %s: %w", file, err)
		}
		imports[imported] = file
	}
	return nil
}

func below(prefixes ...string) func(string) bool {
	return func(pkg string) bool {
		for _, prefix := range prefixes {
			if strings.HasPrefix(pkg, prefix) {
				return true
			}
		}
		return false
	}
}

func is(packages ...string) func(string) bool {
	return func(pkg string) bool {
		for _, p := range packages {
			if pkg == p {
				return true
			}
		}
		return false
	}
}

func service(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// doesIO reports whether a standard package reaches outside of the process or reads a clock.
func doesIO(imported string) bool {
	switch imported {
	case "os", "net", "time", "syscall", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand":
		return true
	}
	return below("os/", "net/", "io/ioutil")(imported)
}
