package profile_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

var update = flag.Bool("update", false, "rewrite the tables of the manual")

const page = "../../../../../docs/model-servers.md"

// The page of the manual has the profiles as they are, between two marks, and explains every field.
func TestTheTableOfProfilesIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- profiles: generated, see TestTheTableOfProfilesIsCurrent -->\n", "<!-- end of profiles -->\n"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the marks", page)
	}
	want := before + begin + table() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s is not current: run this test with -update", page)
	}
	for _, field := range profile.Fields() {
		if !strings.Contains(before+after, "| `"+field+"` |") {
			t.Errorf("%s does not explain %s", page, field)
		}
	}
}

func table() string {
	var out bytes.Buffer
	out.WriteString("| profile | chosen by | what differs from `compatible` | sources |\n|---|---|---|---|\n")
	for _, r := range profile.Rows() {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(r.Fields), &fields); err != nil {
			panic(err) // another test names the row
		}
		var differs []string
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			differs = append(differs, fmt.Sprintf("`%s: %s`", name, fields[name]))
		}
		var sources []string
		for i, s := range r.Sources {
			sources = append(sources, fmt.Sprintf("[%d](%s)", i+1, s))
		}
		nothing := func(text string) string {
			if text == "" {
				return "nothing"
			}
			return text
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", r.Name, chosenBy(r), nothing(strings.Join(differs, ", ")), strings.Join(sources, ", "))
	}
	return out.String()
}

func chosenBy(r profile.Row) string {
	code := func(p *regexp.Regexp) string { return "`" + strings.ReplaceAll(p.String(), "|", "\\|") + "`" }
	switch {
	case r.Address != nil && r.Address.String() == "^$":
		return "its name alone"
	case r.Address != nil:
		return "the address " + code(r.Address)
	}
	return "the model " + code(r.Model)
}
