package console_test

import (
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

var shots = flag.String("shots", "", "a folder for screenshots of what the tests look at")

// options are the input of a scenario in scenarios.mjs and of the browser.
type options struct {
	Gateway string `json:"gateway"`
	Path    string `json:"path,omitempty"` // the first page
	Browser string `json:"browser"`
	Shots   string `json:"shots,omitempty"` // prefix of the files
	Width   int    `json:"width,omitempty"` // pixels
	Height  int    `json:"height,omitempty"`
	Dark    bool   `json:"dark,omitempty"`

	Paths   []string     `json:"paths,omitempty"`
	Session string       `json:"session,omitempty"`
	Half    string       `json:"half,omitempty"`
	Answer  string       `json:"answer,omitempty"`
	Answers []callAnswer `json:"answers,omitempty"`
	Name    string       `json:"name,omitempty"` // of a table
	Row     string       `json:"row,omitempty"`  // a text in one of its rows
	Keys    []string     `json:"keys,omitempty"`
	Steps   any          `json:"steps,omitempty"` // []step, or the number of steps of a run
	Acts    []act        `json:"acts,omitempty"`

	Refused bool `json:"-"` // the gateway refuses a request, or is away
}

// callAnswer is how a person answers a call.
type callAnswer struct {
	Tool    string `json:"tool"`
	Fill    string `json:"fill,omitempty"`
	Invalid string `json:"invalid,omitempty"` // is filled in first, and not sent
	Press   string `json:"press"`
}

// step is the next action of a person, in the order of the fields.
type step struct {
	Go      string `json:"go,omitempty"`   // a path
	Tell    string `json:"tell,omitempty"` // reports to the test
	Open    string `json:"open,omitempty"` // the name of a link
	Link    string `json:"link,omitempty"` // a text beside a link, which is opened
	Fill    string `json:"fill,omitempty"` // the label of the field for Text
	Text    string `json:"text,omitempty"`
	Press   string `json:"press,omitempty"`
	Confirm string `json:"confirm,omitempty"` // a button of the dialog
	Moves   bool   `json:"moves,omitempty"`   // waits for another page
	Status  string `json:"status,omitempty"`  // waits for the session's status
	Shows   string `json:"shows,omitempty"`   // waits for a text
}

type result struct {
	Looks   []look              `json:"looks"`
	Seen    map[string][]string `json:"seen"`
	Records [][]string          `json:"records"`
}

// look is the state of the page at a moment, and its problems so far.
type look struct {
	Path       string   `json:"path"`
	Title      string   `json:"title"`
	SticksOut  []string `json:"sticksOut"`  // elements wider than the window
	Violations []string `json:"violations"` // of the accessibility rules of axe
	Errors     []string `json:"errors"`
	Foreign    []string `json:"foreign"` // addresses on other hosts
}

// run runs a scenario, calls told, if set, for every intermediate report, and performs the checks for any page.
func run(t *testing.T, name string, o options, told func(string)) result {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	o.Browser = browser
	if *shots != "" {
		o.Shots = filepath.Join(*shots, strings.ReplaceAll(t.Name(), "/", "-"))
	}
	r := harness.Scenario[result](t, ".", name, o, told)
	if len(r.Looks) == 0 {
		t.Fatalf("scenario %s looked at nothing", name)
	}
	for _, l := range r.Looks {
		l.check(t, o.Refused)
	}
	return r
}

// Prefixes of the browser's own messages about a refusal and about an absent gateway.
const (
	refusal     = "Failed to load resource: the server responded with a status of 4"
	unreachable = "Failed to load resource: net::ERR_"
)

// check performs the checks for any page at any moment. Refusals and outages may appear on the console only if refused
// is set.
func (l look) check(t *testing.T, refused bool) {
	t.Helper()
	foreseen := func(e string) bool {
		return refused && (strings.HasPrefix(e, refusal) || strings.HasPrefix(e, unreachable))
	}
	if errors := slices.DeleteFunc(slices.Clone(l.Errors), foreseen); len(errors) > 0 {
		t.Errorf("%s: the console of the browser shows %q", l.Path, errors)
	}
	if len(l.Foreign) > 0 {
		t.Errorf("%s: the page asked other hosts: %q", l.Path, l.Foreign)
	}
	if len(l.SticksOut) > 0 {
		t.Errorf("%s: elements stick out: %q", l.Path, l.SticksOut)
	}
	if len(l.Violations) > 0 {
		t.Errorf("%s: violations of accessibility rules:\n%s", l.Path, strings.Join(l.Violations, "\n"))
	}
	if !strings.HasSuffix(l.Title, " · Holdfast console") && !strings.HasSuffix(l.Title, " · Holdfast manual") {
		t.Errorf("%s: the title is %q", l.Path, l.Title)
	}
}

// checkSeen compares what the scenario has seen under a name.
func (r result) checkSeen(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := r.Seen[name]; !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}
