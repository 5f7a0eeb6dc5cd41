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

// place is a position in a file. Lines and columns start at 1.
type place struct{ line, column int }

func (p place) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

type mistake struct {
	file string
	place
	text string
}

// mistakes collects what is wrong with the files of a set.
type mistakes struct {
	list  []mistake
	order map[string]int // file name to its number, in the order of reading
	// unavailable counts the mistakes that are MCP servers without an answer.
	unavailable int
}

func (m *mistakes) add(file string, at place, format string, args ...any) {
	m.list = append(m.list, mistake{file, at, fmt.Sprintf(format, args...)})
}

func (m *mistakes) count() int { return len(m.list) }

// err lists the mistakes by file and line: Invalid (AGENTS_INVALID), or Unavailable
// (MCP_UNAVAILABLE) if MCP servers that do not answer are the only ones. Nil without mistakes.
func (m *mistakes) err() error {
	if len(m.list) == 0 {
		return nil
	}
	slices.SortStableFunc(m.list, func(a, b mistake) int {
		return cmp.Or(m.order[a.file]-m.order[b.file], a.line-b.line, a.column-b.column)
	})
	var lines []string
	seen := map[mistake]bool{}
	for _, at := range m.list {
		if !seen[at] {
			lines = append(lines, fmt.Sprintf("%s:%v: %s", at.file, at.place, at.text))
		}
		seen[at] = true
	}
	if more := len(lines) - maxMistakes; more > 0 {
		lines = append(lines[:maxMistakes], fmt.Sprintf("and %d more", more))
	}
	if len(m.list) == m.unavailable {
		return fault.New(fault.Unavailable, "MCP_UNAVAILABLE", "%s", strings.Join(lines, "\n"))
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

// suggest returns "; did you mean …?" with the known name that is closest to a misspelled
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
