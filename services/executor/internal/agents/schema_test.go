package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOfFiles returns the schema as editors use it.
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

func TestAgentsFilesFitTheSchema(t *testing.T) {
	t.Parallel()
	schema := schemaOfFiles(t)
	texts := map[string][]byte{"the whole grammar": []byte(whole)}
	for _, pattern := range []string{"../../../../examples/agents/*.yaml", "../../../../internal/demo/*.yaml", "../../../../deploy/compose/agents/*.yaml"} {
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
