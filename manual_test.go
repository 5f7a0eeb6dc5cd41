package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor"
)

// link is a link of a Markdown text.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// heading is a heading of a Markdown text.
var heading = regexp.MustCompile(`(?m)^#+ (.+)$`)

func TestTheLinksOfTheManualLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "README.md", "ARCHITECTURE.md", "SECURITY.md", "deploy/compose/README.md")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, found[1])
			} else if anchor != "" && !hasHeading(t, target, anchor) {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
}

func hasHeading(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		if slug(found[1]) == anchor {
			return true
		}
	}
	return false
}

// slug is the anchor of a heading, as GitHub makes it.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// block is a block of YAML in a Markdown text.
var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestTheAgentsOfTheQuickStartLoad(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("the quick start has no YAML")
	}
	for _, found := range blocks {
		agents, err := executor.ParseAgents([]byte(found[1]), "", nil)
		if err != nil {
			t.Errorf("%v in\n%s", err, found[1])
			continue
		}
		agents.Close()
	}
}

func TestTheAPIOfTheManualIsImported(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/agents-yaml.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## APIs with an OpenAPI document\n")
	blocks := block.FindAllStringSubmatch(section, 2)
	if len(blocks) != 2 {
		t.Fatal("the section has no document and no agents")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(blocks[0][1]), 0o600); err != nil {
		t.Fatal(err)
	}
	agents, err := executor.ParseAgents([]byte(blocks[1][1]), dir, func(name string) (string, bool) {
		value, ok := map[string]string{"HOLDFAST_EXECUTOR_TOOL_HOSTS": "shop.example", "SHOP_TOKEN": "t"}[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agents.Close()
	var tools []string
	for _, tool := range agents.Definitions()[0].Tools {
		tools = append(tools, tool.Name)
	}
	if want := "listOrders getOrder shop_refundOrder"; strings.Join(tools, " ") != want {
		t.Errorf("the agent has the tools %q, want %s", tools, want)
	}
}

// decision is an entry of DECISIONS.md: its number, its title, and its date if it has one.
var decision = regexp.MustCompile(`(?m)^## (\d+\. .+)\n(\*\d{4}-\d{2}-\d{2}\.\* )?`)

func TestEachDecisionHasADateAndAPlaceInTheIndex(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("DECISIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range decision.FindAllStringSubmatch(string(text), -1) {
		title := found[1]
		if found[2] == "" {
			t.Errorf("decision %q has no date", title)
		}
		if link := "- [" + title + "](#" + slug(title) + ")\n"; strings.Count(string(text), link) != 1 {
			t.Errorf("the index has %d lines %q, want 1", strings.Count(string(text), link), link)
		}
	}
}
