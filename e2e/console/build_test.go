package console_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	sources    = "../../clients/console"
	build      = "../../services/gateway/internal/page/console"
	buildLimit = 3 * time.Minute
)

func TestTheCheckedInBuildIsWhatTheSourcesGive(t *testing.T) {
	t.Parallel()
	harness.InstallNPM(t, sources)
	made := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), buildLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "run", "build", "--silent", "--", "--outDir", made, "--emptyOutDir")
	npm.Dir = sources
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm run build: %v\n%s", err, out)
	}
	got, want := files(t, build), files(t, made)
	if got, want := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Fatalf("the build has the files %q, the sources give %q: make generate", got, want)
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is not what the sources give: make generate", name)
		}
	}
}

func TestTheSourcesOfTheConsoleHaveNoTypeErrors(t *testing.T) {
	t.Parallel()
	harness.InstallNPM(t, sources)
	ctx, cancel := context.WithTimeout(t.Context(), buildLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "run", "check", "--silent", "--", "--fail-on-warnings")
	npm.Dir = sources
	if out, err := npm.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// files returns the contents of the files in a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	contents := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(os.DirFS(dir), path)
		contents[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return contents
}
