package agents

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// schemaOfFiles returns the schema, ready to validate.
func schemaOfFiles(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// reads matches what the reader calls with the name of a field.
var reads = regexp.MustCompile(`\.(?:text|oneOf|integer|number|boolean|isTrue|duration|list|words|distinct|entries|texts|json|prose|schema|field|has|content)\("(\w+)"|\blimit\("(\w+)"\)|\{"(\w+)", \w+\},`)

func TestTheSchemaNamesTheFieldsThatTheReaderKnows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range reads.FindAllStringSubmatch(string(text), -1) {
			known[found[1]+found[2]+found[3]] = true
		}
	}
	for _, name := range append(profile.Fields(), "base") { // of a profile, which reads itself
		known[name] = true
	}
	var schema any
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	properties(schema, named)
	got, want := slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(known))
	if len(want) < 80 || !slices.Equal(got, want) {
		t.Errorf("the schema names\n%v\nand the reader knows\n%v", got, want)
	}
}

// properties collects the names of all properties in a schema.
func properties(schema any, into map[string]bool) {
	switch s := schema.(type) {
	case map[string]any:
		if list, ok := s["properties"].(map[string]any); ok {
			for name, inner := range list {
				into[name] = true
				properties(inner, into)
			}
		}
		for keyword, inner := range s {
			if keyword != "properties" {
				properties(inner, into)
			}
		}
	case []any:
		for _, inner := range s {
			properties(inner, into)
		}
	}
}

func TestAgentsFilesFitTheSchema(t *testing.T) {
	t.Parallel()
	schema := schemaOfFiles(t)
	texts := map[string][]byte{"the whole grammar": []byte(whole)}
	for _, pattern := range []string{"../../../../examples/agents/*.yaml", "../../../../cmd/holdfast/demo/*.yaml", "../../../../deploy/compose/agents/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if strings.Contains(filepath.Base(file), "script.") {
				continue // of a scripted model
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = text
		}
	}
	for name, text := range texts {
		var document any
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSchemaRefusesMistakes(t *testing.T) {
	t.Parallel()
	schema := schemaOfFiles(t)
	for _, text := range []string{
		"agents: [{name: a, modle: x/y}]", "agents: [{model: x/y}]", "agents: {}", "agent: []", "agents: [{name: a, maxSteps: 0}]",
		"agents: [{name: a, onBusy: wait}]", "agents: [{name: a, tools: [{use: calculate, aproval: always}]}]", "models: {openai: {limits: {}}}",
		"agents: [{name: a, runTimeout: 10 minutes}]", "mcpServers: {a: {comand: x}}", "agents: [{name: a, stopWhen: {}}]",
	} {
		var document any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		if schema.Validate(document) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}
