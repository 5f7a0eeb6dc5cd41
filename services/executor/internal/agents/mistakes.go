package agents

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// maxMistakes bounds the mistakes in the text of one error.
const maxMistakes = 100

// position is a place in a file. Lines and columns start at 1.
type position struct{ line, column int }

func (p position) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

type mistake struct {
	file string
	position
	text string
	part Part
}

// Kinds of parts.
const (
	FilePart     = "file"
	EndpointPart = "endpoint"
	ProviderPart = "provider"
	ServerPart   = "mcpServer"
	ToolPart     = "tool"
	AgentPart    = "agent"
)

// Part is what a mistake takes out of service.
type Part struct {
	Kind string
	// Name is the path of a file, the URL of an endpoint, and the name of anything else. It may be empty: an agent may lack a name.
	Name string
	// Agent has the tool or the fallback; empty for a part of its own.
	Agent string
}

// Problem is a part out of service or incomplete.
type Problem struct {
	Part
	// Text is the reason. It names no secret, but may name files and addresses.
	Text string
	// Output is the end of what the child process of a server wrote to its standard error. It may have secrets.
	Output string
}

// mistakes collects what is wrong with the files of a set.
type mistakes struct {
	list  []mistake
	order map[string]int // file name to its number, in the order of reading
	part  Part           // what is read now
	// described has the sources of descriptions, by the name of the endpoint: the places of agents (NAME) and of tools
	// (AGENT/TOOL) in the code of the application.
	described map[string]map[string]string
}

func (m *mistakes) add(file string, at position, format string, args ...any) {
	m.list = append(m.list, mistake{file, at, fmt.Sprintf(format, args...), m.part})
}

func (m *mistakes) count() int { return len(m.list) }

// within attributes the mistakes until leave to a part.
func (m *mistakes) within(p Part) (leave func()) {
	outer := m.part
	m.part = p
	return func() { m.part = outer }
}

// line is a mistake with its place.
func (m *mistakes) line(found mistake) string {
	return m.placeOf(found.file, found.position, found.part) + ": " + found.text
}

// placeOf says where a part is: in a file, or in the code behind the description of an endpoint, as far as it says so.
func (m *mistakes) placeOf(file string, at position, part Part) string {
	sources, described := m.described[file]
	if !described {
		return fmt.Sprintf("%s:%v", file, at)
	}
	owner := part.Name
	if part.Kind != AgentPart {
		owner = part.Agent
	}
	return cmp.Or(sources[part.Agent+"/"+part.Name], sources[owner], file)
}

// problems returns the mistakes as problems of their parts, one for each part.
func (m *mistakes) problems() []Problem {
	var parts []Part
	lines := map[Part][]string{}
	for _, found := range m.list {
		before := lines[found.part]
		if before == nil {
			parts = append(parts, found.part)
		}
		if line := m.line(found); len(before) < maxMistakes && !slices.Contains(before, line) {
			lines[found.part] = append(before, line)
		}
	}
	problems := make([]Problem, len(parts))
	for i, part := range parts {
		problems[i] = Problem{Part: part, Text: strings.Join(lines[part], "\n")}
	}
	return problems
}

// err lists the mistakes by file and line: Invalid (AGENTS_INVALID). Nil without mistakes.
func (m *mistakes) err() error {
	if len(m.list) == 0 {
		return nil
	}
	slices.SortStableFunc(m.list, func(a, b mistake) int {
		return cmp.Or(m.order[a.file]-m.order[b.file], a.line-b.line, a.column-b.column)
	})
	var lines []string
	seen := map[string]bool{}
	for _, at := range m.list {
		line := m.line(at)
		if !seen[line] {
			lines = append(lines, line)
		}
		seen[line] = true
	}
	if more := len(lines) - maxMistakes; more > 0 {
		lines = append(lines[:maxMistakes], fmt.Sprintf("and %d more", more))
	}
	return fault.New(fault.Invalid, "AGENTS_INVALID", "%s", strings.Join(lines, "\n"))
}

// detail returns the detail of a fault, and the text of any other error.
func detail(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Detail
	}
	return err.Error()
}

// suggest returns "; did you mean …?" with the known name closest to a misspelled
// one, and "" if none is close.
func suggest(name string, known []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the Damerau-Levenshtein distance (optimal string alignment) of two words.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
