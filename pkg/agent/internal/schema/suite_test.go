package schema_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/schema"
)

// unsupported are cases of the JSON Schema Test Suite for features that the package does not have:
// loading, $id resolution, the dynamic scope of $dynamicRef, and the rule of draft-07 that a $ref hides
// the keywords beside it.
var unsupported = []string{
	"refRemote.json",
	"dynamicRef.json",
	"anchor.json: same $anchor with different base uri",
	"unevaluatedItems.json: unevaluatedItems with $dynamicRef",
	"unevaluatedProperties.json: unevaluatedProperties with $dynamicRef",
	"draft7/ref.json: ref overrides any sibling keywords",
}

// The official suite is part of the module that makes schemas of Go types.
func TestTheOfficialSuitePasses(t *testing.T) {
	t.Parallel()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "jsonschema", "testdata", "draft*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, file := range files {
		passed += checkSuite(t, file)
	}
	if passed < 1850 {
		t.Errorf("%d cases pass, want 1850 or more", passed)
	}
}

// checkSuite returns how many cases of a file pass.
func checkSuite(t *testing.T, file string) (passed int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(raw, &groups); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		name := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file) + ": " + group.Description
		if isUnsupported(name) {
			continue
		}
		s, err := schema.Compile(group.Schema)
		if err != nil {
			if !strings.Contains(err.Error(), "the reference") {
				t.Errorf("%s: %v", name, err)
			}
			continue // refused, so it checks nothing
		}
		for _, test := range group.Tests {
			if problems := s.Check(test.Data); (len(problems) == 0) != test.Valid {
				t.Errorf("%s: %s: problems = %v, want valid = %v", name, test.Description, problems, test.Valid)
				continue
			}
			passed++
		}
	}
	return passed
}

func isUnsupported(name string) bool {
	for _, u := range unsupported {
		if strings.Contains(name, u) {
			return true
		}
	}
	return false
}
