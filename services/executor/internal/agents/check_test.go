package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// keywords are the keywords that the reader knows, and those that are for editors and for the validator alone. Both
// demand the same: the reader checks a duration by its format, and defaults field by field.
const keywords = `$ref additionalProperties anyOf const enum errorMessage format items maxProperties maximum minItems minLength
minProperties minimum properties required type uniqueItems ` + `$defs $schema allOf description not pattern patternErrorMessage title`

func TestTheReaderKnowsEveryKeywordOfTheSchema(t *testing.T) {
	t.Parallel()
	var check func(schema map[string]any)
	check = func(schema map[string]any) {
		for keyword, v := range schema {
			if !slices.Contains(strings.Fields(keywords), keyword) {
				t.Errorf("the schema has the keyword %s, which the reader does not check", keyword)
			}
			if list, ok := v.([]any); ok && (keyword == "anyOf" || keyword == "allOf") {
				for _, inner := range list {
					check(inner.(map[string]any))
				}
			}
			object, ok := v.(map[string]any)
			if ok && (keyword == "properties" || keyword == "$defs") {
				for _, inner := range object {
					check(inner.(map[string]any))
				}
			} else if ok {
				check(object)
			}
		}
	}
	var schema map[string]any
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	check(schema)
}

func TestTheSchemaNamesTheFieldsOfAProfile(t *testing.T) {
	t.Parallel()
	got := slices.Sorted(maps.Keys(grammar().Defs["profile"].AnyOf[1].Properties))
	want := slices.Sorted(slices.Values(append(profile.Fields(), "base")))
	if !slices.Equal(got, want) {
		t.Errorf("the schema names %v, want %v", got, want)
	}
}

// drawn is a value of a section that fits its schema, or breaks it at one value.
type drawn struct {
	schema *jsonschema.Schema
	scalar string // JSON in one line; empty for an object or a list of the values below
	isList bool
	names  []string // of the values of an object
	below  []*drawn
	line   int // in the text
}

// draw draws a value that fits a schema. With all it has every field.
func draw(t *rapid.T, s *jsonschema.Schema, all bool) *drawn {
	name, s := definition(grammar(), s)
	d := &drawn{schema: s}
	switch {
	case name == "prose":
		d.scalar = `"Be brief."`
	case name == "schema":
		d.scalar = `{"type":"object","properties":{"a":{"type":"string"}}}`
	case name == "duration":
		d.scalar = rapid.SampledFrom([]string{`"30s"`, `"1.5h"`, `"1h30m"`, `".5s"`, `"+5m"`, `"7µs"`}).Draw(t, "duration")
	case s.AnyOf != nil:
		inner := draw(t, rapid.SampledFrom(s.AnyOf).Draw(t, "alternative"), all)
		inner.schema = s
		return inner
	case s.Const != nil:
		d.scalar = `"Infinity"`
	case s.Enum != nil:
		d.scalar = fmt.Sprintf("%q", rapid.SampledFrom(s.Enum).Draw(t, "choice"))
	case s.Properties != nil:
		most := len(s.Properties)
		if s.MaxProperties != nil {
			most = *s.MaxProperties
		}
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			needed := slices.Contains(s.Required, field) || s.MinProperties != nil
			if len(d.below) < most && (all || needed || rapid.Bool().Draw(t, field)) {
				d.names = append(d.names, field)
				d.below = append(d.below, draw(t, s.Properties[field], all))
				if s == grammar().Defs["provider"] && field == "provider" { // the reader leaves its values to the executor
					d.below[len(d.below)-1].scalar = `"openai"`
				}
			}
		}
	case s.AdditionalProperties != nil:
		for i := range rapid.IntRange(0, 2).Draw(t, "entries") {
			d.names = append(d.names, fmt.Sprintf("key%d", i))
			d.below = append(d.below, draw(t, s.AdditionalProperties, all))
		}
	case s.Items != nil:
		d.isList = true
		if !isSection(s.Items) {
			for i := range rapid.IntRange(1, 3).Draw(t, "items") {
				item := draw(t, s.Items, all)
				if s.UniqueItems {
					item.scalar = fmt.Sprintf(`"text%d"`, i)
				}
				d.below = append(d.below, item)
			}
		}
	case s.Type == "boolean":
		d.scalar = rapid.SampledFrom([]string{"true", "false"}).Draw(t, "boolean")
	case s.Minimum != nil:
		d.scalar = fmt.Sprint(rapid.IntRange(int(*s.Minimum), int(*s.Maximum)).Draw(t, "number"))
	case s.Type == "number":
		d.scalar = "1.5"
	case s.Type == "object":
		d.scalar = `{"a":{"b":[1,null]}}`
	case s.Type == "string":
		d.scalar = rapid.SampledFrom([]string{`"text"`, `"yes"`, `"1.10"`, `"a: b # c"`, `"é"`, `"5m"`}).Draw(t, "text")
	default:
		d.scalar = rapid.SampledFrom([]string{`5`, `"text"`, `[1,{"a":true}]`}).Draw(t, "any")
	}
	return d
}

// write writes the value in block style, so that each value has a line of its own, and notes the lines.
func (d *drawn) write(out *strings.Builder, indent string) {
	if d.scalar == "" && len(d.below) == 0 {
		d.scalar = "{}"
		if d.isList {
			d.scalar = "[]"
		}
	}
	if d.scalar != "" {
		fmt.Fprintf(out, " %s\n", d.scalar)
		return
	}
	out.WriteByte('\n')
	for i, inner := range d.below {
		inner.line = strings.Count(out.String(), "\n") + 1
		if d.isList {
			fmt.Fprintf(out, "%s-", indent)
			if inner.scalar == "" && len(inner.below) > 0 {
				inner.line++ // an object or a list is placed at its first value
			}
		} else {
			fmt.Fprintf(out, "%s%s:", indent, d.names[i])
		}
		inner.write(out, indent+"  ")
	}
}

// all returns the value and those below it.
func (d *drawn) all() []*drawn {
	list := []*drawn{d}
	for _, inner := range d.below {
		list = append(list, inner.all()...)
	}
	return list
}

// ways names the ways to break the schema at a value. The root of a section keeps its required fields: their absence is
// reported by whoever reads the section.
func (d *drawn) ways(isRoot bool) []string {
	s := d.schema
	hasFields := s.Properties != nil && d.scalar == ""
	var possible []string
	add := func(is bool, names ...string) {
		if is {
			possible = append(possible, names...)
		}
	}
	add(hasFields, "an unknown field")
	add(hasFields && len(s.Required) > 0 && !isRoot, "a missing field")
	add(s.UniqueItems && len(d.below) > 0, "twice")
	ofSections := s.Items != nil && isSection(s.Items) // whose items are read one by one
	add((s.Type != "" || s.AnyOf != nil) && !isRoot && !ofSections, "[[7]]")
	add(s.Type == "string" || s.Type == "boolean", "7")
	takesBoolean := slices.ContainsFunc(s.AnyOf, func(one *jsonschema.Schema) bool { return one.Type == "boolean" })
	add(s.AnyOf != nil && !takesBoolean || s.Type == "string" || s.Type == "integer" || s.Type == "number", "true")
	add(s.Enum != nil || s.Format != "" || s.Type == "integer" || s.Type == "boolean", `"unknown"`)
	add(s.Type == "integer", "1.5")
	if s.Maximum != nil {
		add(true, fmt.Sprintf("%.0f", *s.Maximum+1), fmt.Sprintf("%.0f", *s.Minimum-1))
	}
	return possible
}

// breakBy breaks the schema in one of the ways. It returns the value whose line is to be reported.
func (d *drawn) breakBy(way string) *drawn {
	at := d
	switch way {
	case "an unknown field":
		at = &drawn{scalar: "5"}
		d.names = append(d.names, "unknown")
		d.below = append(d.below, at)
	case "a missing field":
		i := slices.Index(d.names, d.schema.Required[0])
		d.names = slices.Delete(d.names, i, i+1)
		d.below = slices.Delete(d.below, i, i+1)
	case "twice":
		at = &drawn{scalar: d.below[0].scalar}
		d.below = append(d.below, at)
	default: // another value
		*d = drawn{schema: d.schema, scalar: way}
	}
	return at
}

// sectionNames are the definitions that are read one by one.
var sectionNames = []string{"agent", "declaredTool", "mcpServer", "mountedTools", "provider", "subAgent", "usedTool"}

// validators are the sections' schemas as pkg/agent validates the arguments of tools.
func validators(t *testing.T) map[string]*agent.Schema {
	t.Helper()
	all := map[string]*agent.Schema{}
	for _, name := range sectionNames {
		var schema map[string]any
		if err := json.Unmarshal(Schema, &schema); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{"$ref": "#/$defs/" + name, "$defs": schema["$defs"]})
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = agent.CompileSchema(text); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// readText reads a section from YAML, and returns its mistakes and its JSON.
func readText(text, name string) ([]mistake, json.RawMessage) {
	r := newReader(testKnown())
	f := r.parse(Source{Name: "a.yaml", Data: []byte(text)})
	if f == nil {
		return r.list, nil
	}
	var decoded any
	read(f.root, name, "", &decoded)
	return r.list, f.root.json()
}

func TestTheReaderTakesWhatFitsTheSchema(t *testing.T) {
	t.Parallel()
	validators := validators(t)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(sectionNames).Draw(t, "section")
		var text strings.Builder
		draw(t, grammar().Defs[name], rapid.Bool().Draw(t, "all")).write(&text, "")
		mistakes, raw := readText(text.String(), name)
		if len(mistakes) > 0 {
			t.Fatalf("%s\nhas the mistakes %v", text.String(), mistakes)
		}
		if err := validators[name].Check(raw); err != nil {
			t.Fatalf("%s\nis refused by the validator: %v", text.String(), err)
		}
	})
}

func TestAMistakeIsReportedAtTheLineOfTheBrokenValue(t *testing.T) {
	t.Parallel()
	validators := validators(t)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(sectionNames).Draw(t, "section")
		root := draw(t, grammar().Defs[name], rapid.Bool().Draw(t, "all"))
		values := slices.DeleteFunc(root.all(), func(d *drawn) bool { return len(d.ways(d == root)) == 0 })
		broken := rapid.SampledFrom(values).Draw(t, "broken")
		at := broken.breakBy(rapid.SampledFrom(broken.ways(broken == root)).Draw(t, "way"))
		var text strings.Builder
		root.write(&text, "")
		mistakes, raw := readText(text.String(), name)
		if len(mistakes) != 1 || mistakes[0].line != at.line {
			t.Fatalf("%s\nhas the mistakes %v, want one in line %d", text.String(), mistakes, at.line)
		}
		if validators[name].Check(raw) == nil {
			t.Fatalf("%s\nis taken by the validator", text.String())
		}
	})
}

func TestEveryFieldOfTheSchemaIsDecoded(t *testing.T) {
	t.Parallel()
	known := testKnown()
	known.Remote = func(string, string) (string, error) { return "", nil }
	known.Connect = func(context.Context, mcptool.Config) (Server, error) { return nil, errors.New("it is down") }
	rapid.Check(t, func(t *rapid.T) {
		for name, file := range map[string]string{
			"agent": `{"agents": [%s]}`, "declaredTool": `{"tools": [%s]}`, "mcpServer": `{"mcpServers": {"a": %s}}`, "provider": `{"models": {"a": %s}}`,
			"mountedTools": `{"agents": [{"name": "a", "tools": [%s]}]}`, "subAgent": `{"agents": [{"name": "a", "tools": [%s]}]}`,
			"usedTool": `{"agents": [{"name": "a", "tools": [%s]}]}`,
		} {
			var text strings.Builder
			draw(t, grammar().Defs[name], true).write(&text, "")
			_, raw := readText(text.String(), name)
			_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: fmt.Appendf(nil, file, raw)}, known)
			if err != nil && strings.Contains(err.Error(), "cannot be decoded") {
				t.Errorf("%s\n%v", text.String(), err)
			}
		}
	})
}
