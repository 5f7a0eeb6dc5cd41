package scenariotest

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

//go:embed testdata/*.txt
var scenarios embed.FS

var rewrite = flag.Bool("update", false, "write the results of the scenarios anew, as they come out")

// Run plays each file of scenarios in its own world. With -update it writes the results of files in the folder of the package
// scenariotest, relative to the tested package; only the runner of the heart does.
func Run(t *testing.T, folder string, open func(*testing.T) World) {
	t.Helper()
	files, err := fs.Glob(scenarios, "testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v; want scenarios", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			read := scenarios.ReadFile
			if *rewrite && folder != "" {
				read = func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(folder, name)) }
			}
			text, err := read(file)
			if err != nil {
				t.Fatal(err)
			}
			got := Play(string(text), open(t))
			switch {
			case strings.Contains(got, "\n> error:"):
				t.Error("a step failed with an error that is no refusal:\n" + got)
			case got == string(text):
			case *rewrite && folder != "":
				if err := os.WriteFile(filepath.Join(folder, file), []byte(got), 0o600); err != nil {
					t.Error(err)
				}
			default:
				t.Error(firstDifference(got, string(text)))
			}
		})
	}
}

// Titles returns the titles of all scenarios.
func Titles() (titles []string) {
	files, _ := fs.Glob(scenarios, "testdata/*.txt") // the pattern is valid
	for _, file := range files {
		text, err := scenarios.ReadFile(file)
		if err != nil {
			panic(err) // embedded files can be read
		}
		for line := range strings.Lines(string(text)) {
			if title, found := strings.CutPrefix(line, "= "); found {
				titles = append(titles, strings.TrimSuffix(title, "\n"))
			}
		}
	}
	return titles
}

// firstDifference shows the scenario whose results differ first, up to the differing line.
func firstDifference(got, want string) string {
	lines, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	title := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "=") {
			title = i
		}
		if i >= len(wanted) || line != wanted[i] {
			missing := "the end"
			if i < len(wanted) {
				missing = wanted[i]
			}
			return fmt.Sprintf("%s\n  got %s\n want %s", strings.Join(lines[title:i], "\n"), line, missing)
		}
	}
	return "got the end, want " + wanted[len(lines)]
}

// Play returns the text of a file with the results of its steps in place of those in the text. It deletes the sessions of
// each scenario before the next one.
func Play(text string, world World) string {
	var out strings.Builder
	var s *scene
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ">"):
			continue
		case strings.HasPrefix(line, "="):
			s.clear()
			s = newScene(world)
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "=") || strings.HasPrefix(line, "#") {
			continue
		}
		for _, result := range s.play(line) {
			out.WriteString("> " + result + "\n")
		}
	}
	return out.String()
}

// beginning is when a scenario begins. Each step takes a millisecond.
const beginning session.Millis = 1_700_000_000_000

// The session and the agent of steps that name no other ones.
const (
	home  = "s"
	agent = "support"
)

// Tenant is the tenant of all sessions in scenarios.
const Tenant = "acme"

// scene is the state of a scenario between two steps.
type scene struct {
	world       World
	now         session.Millis
	ids         int
	sessions    []string             // that the steps have named, in order
	calls       []string             // as sessions
	runs        []string             // ids, in the order in which they appeared; the first is named r1
	claims      map[string]Claimed   // the newest of each session
	early       map[string]Claimed   // claims that no step has asked for yet, by session
	checkpoints map[[2]string]string // ids by session and step
	commits     map[string]session.Commit
	rows        []row
}

func newScene(w World) *scene {
	return &scene{
		world: w, now: beginning, sessions: []string{home},
		claims: map[string]Claimed{}, early: map[string]Claimed{}, checkpoints: map[[2]string]string{}, commits: map[string]session.Commit{},
	}
}

// clear deletes the sessions of a scenario. It may be nil.
func (s *scene) clear() {
	if s == nil {
		return
	}
	for _, id := range s.sessions {
		_, _ = s.world.Do(session.DeleteSession{Key: s.key(id)}) // a scenario may have deleted it, or refused to create it
	}
}

// play runs the steps of a line, and returns the answer to the last one, all refusals, and the changed rows.
func (s *scene) play(line string) []string {
	var results []string
	steps := strings.Split(line, "; ")
	for i, text := range steps {
		answer, err := s.run(text)
		if i == len(steps)-1 || err != nil {
			results = append(results, answer)
		}
	}
	before := s.rows
	s.rows = nil
	for _, id := range s.sessions {
		rows, err := s.world.Rows(id, s.calls)
		if err != nil {
			return append(results, "error: "+err.Error())
		}
		if rows != nil {
			s.rows = append(s.rows, s.rowsOf(id, rows)...)
		}
	}
	results = append(results, difference(before, s.rows)...)
	for i := range results {
		for n, id := range s.runs {
			results[i] = strings.ReplaceAll(results[i], id, fmt.Sprint("r", n+1))
		}
	}
	return results
}

// run runs a step.
func (s *scene) run(text string) (answer string, err error) {
	s.now++
	a, err := parse(text)
	if err == nil {
		answer, err = s.do(a)
	}
	if f, ok := fault.From(err); ok {
		return "refused: " + f.Reason + ", " + f.Kind.String(), err
	}
	if err != nil {
		return "error: " + err.Error(), err
	}
	return answer, nil
}

// name returns the name of a run. A run that appears first gets the next name.
func (s *scene) name(runID string) string {
	if runID == "" {
		return "no run"
	}
	if !slices.Contains(s.runs, runID) {
		s.runs = append(s.runs, runID)
	}
	return fmt.Sprint("r", slices.Index(s.runs, runID)+1)
}

// runID returns the id of a named run, or the argument itself.
func (s *scene) runID(name string) string {
	for i, id := range s.runs {
		if name == fmt.Sprint("r", i+1) {
			return id
		}
	}
	return name
}

// newID returns the id of a run, a message or a checkpoint. No id is part of another one.
func (s *scene) newID() string {
	s.ids++
	return fmt.Sprintf("id%04d", s.ids)
}

// step is a line of a scenario: a word, arguments, a quoted text, and options as name=value.
type step struct {
	word    string
	args    []string
	text    string
	options map[string][]string
}

func parse(line string) (step, error) {
	before, rest, quoted := strings.Cut(line, `"`)
	text, behind, closed := strings.Cut(rest, `"`)
	if quoted && !closed {
		return step{}, errors.New("a quotation has no end")
	}
	words := strings.Fields(before + behind)
	a := step{word: words[0], text: text, options: map[string][]string{}}
	for _, word := range words[1:] {
		if name, value, found := strings.Cut(word, "="); found {
			a.options[name] = append(a.options[name], value)
		} else {
			a.args = append(a.args, word)
		}
	}
	return a, nil
}

// option returns the value of an option; empty if it is not given.
func (a step) option(name string) string {
	if values := a.options[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// list returns the values of an option with commas between them.
func (a step) list(name string) []string {
	if a.option(name) == "" {
		return nil
	}
	return strings.Split(a.option(name), ",")
}
