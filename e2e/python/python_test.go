// Package python_test tests the Python package as its users get it: built as a wheel, installed, and imported by a Python
// that does not see the sources.
package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m, 2) }

const source = "../../clients/python"

// interpreter is the distribution's Python, for which e2e/setup installs what the tests need.
const interpreter = "/usr/bin/python3"

// python is a Python with the package installed in a folder.
type python struct{ folder string }

// run runs Python in a folder and returns its output.
func (p python) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), interpreter, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "PYTHONPATH="+p.folder, "PYTHONDONTWRITEBYTECODE=1", "HOLDFAST_BIN="+harness.Binary(t, "holdfast"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("python %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// install builds the wheel and installs it in a folder. pip reaches no registry: the package builds itself.
func install(t *testing.T) python {
	t.Helper()
	folder := t.TempDir()
	p := python{folder: filepath.Join(folder, "package")}
	sources, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	p.run(t, folder, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--wheel-dir", folder, sources)
	wheels, err := filepath.Glob(filepath.Join(folder, "holdfast-*-py3-none-any.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("got the wheels %q, %v, want one for every machine", wheels, err)
	}
	p.run(t, folder, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", p.folder, wheels[0])
	return p
}

func TestTheInstalledPackage(t *testing.T) {
	t.Parallel()
	p := install(t)

	t.Run("needs nothing but Python", func(t *testing.T) {
		t.Parallel()
		out := p.run(t, t.TempDir(), "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import holdfast, holdfast.testing; print(holdfast.__file__)",
			p.folder)
		if !strings.HasPrefix(out, p.folder) {
			t.Errorf("imported %s, want the installed package", out)
		}
	})

	t.Run("passes its tests", func(t *testing.T) {
		t.Parallel()
		out := p.run(t, source, "-W", "error", "-m", "unittest", "discover", "--start-directory", "tests", "--top-level-directory", ".")
		if !regexp.MustCompile(`\nRan [1-9]\d* tests`).MatchString(out) || strings.Contains(out, "skipped") {
			t.Errorf("not all tests ran:\n%s", out)
		}
	})

	t.Run("runs agents in the real runtime, as the documents say", func(t *testing.T) {
		t.Parallel()
		p.run(t, source, "-W", "error", "-m", "unittest", "discover", "--start-directory", "e2e", "--top-level-directory", ".")
		p.run(t, "../../examples/support-python", "-W", "error", "-m", "unittest")
	})

	t.Run("has types that mypy accepts in strict mode, also inside", func(t *testing.T) {
		t.Parallel()
		p.run(t, source, "-m", "mypy", "--strict", "--python-version", "3.10", "--cache-dir", t.TempDir(), "src", "tests/typed.py")
	})

	t.Run("has types that pyright accepts in strict mode", func(t *testing.T) {
		t.Parallel()
		if out, err := exec.CommandContext(t.Context(), "node", "node_modules/pyright/index.js", "--pythonpath", interpreter).CombinedOutput(); err != nil {
			t.Fatalf("pyright: %v\n%s", err, out)
		}
	})

	t.Run("has the types of the current API", func(t *testing.T) {
		t.Parallel()
		p.run(t, source, "generate.py", "--check")
	})
}
