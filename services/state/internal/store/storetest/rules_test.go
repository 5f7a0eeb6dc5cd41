package storetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/scenariotest"
)

// sections lists the sections with rules for stores.
var sections = []string{
	"§2.4", "§2.5", "§5.3", "§6.1", "§6.2", "§6.4", "§6.6", "§7.4", "§7.5", "§7.6", "§13.1", "§13.3", "§13.4", "§13.5", "§14.2", "§18",
	"H1", "H2", "H8", "H10", "H11", "H20", "H29", "H30", "H31", "H33", "H36",
}

func TestEveryRuleNamesAnExistingTest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := goTests(t)
	for _, c := range suite() {
		tests[c.name] = true
	}
	for _, title := range scenariotest.Titles() {
		tests[title] = true
	}
	proven := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		rule, test, found := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "//")), " → ")
		if !found {
			continue
		}
		if !tests[test] {
			t.Errorf("test %q, the proof of %q, does not exist", test, rule)
		}
		proven[strings.Fields(rule)[0]] = true
	}
	for _, section := range sections {
		if !proven[section] {
			t.Errorf("no rule of %s names a test", section)
		}
	}
}

func TestEveryCaseHasAUniqueName(t *testing.T) {
	t.Parallel()
	names := scenariotest.Titles()
	for _, c := range suite() {
		names = append(names, c.name)
	}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			t.Errorf("two cases have the name %q", name)
		}
		seen[name] = true
	}
}

// goTests returns the names of the stores' test functions.
func goTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
