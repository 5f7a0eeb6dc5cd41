package page_test

import (
	"flag"
	"fmt"
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
	Gateway string   `json:"gateway"`
	Browser string   `json:"browser"`
	Shots   string   `json:"shots,omitempty"` // prefix of the files
	Width   int      `json:"width,omitempty"` // pixels
	Height  int      `json:"height,omitempty"`
	Dark    bool     `json:"dark,omitempty"`
	Agent   string   `json:"agent,omitempty"` // the user's choice; empty for the page's
	Texts   []string `json:"texts"`
	Half    int      `json:"half,omitempty"` // characters
	Steps   []step   `json:"steps,omitempty"`
	Refused bool     `json:"-"`                // the server refuses an action of the user
	Direct  string   `json:"direct,omitempty"` // the gateway's own address if Gateway is a proxy
}

// step is the user's next action, in the order of the fields.
type step struct {
	// Until reports the session's id to the test and waits for this status, or until the server is "gone".
	Until string `json:"until,omitempty"`
	// AsksNobody waits until the page sends no more requests.
	AsksNobody bool `json:"asksNobody,omitempty"`

	Fill     string `json:"fill,omitempty"` // the label of the field for Text
	Text     string `json:"text,omitempty"`
	Press    string `json:"press,omitempty"`    // the name of a button
	Keyboard bool   `json:"keyboard,omitempty"` // by keyboard
	Say      string `json:"say,omitempty"`
	Notice   string `json:"notice,omitempty"` // reports to the test when the page shows this notice
	Reload   bool   `json:"reload,omitempty"`
}

type result struct {
	Looks []look `json:"looks"`
	Cut   string `json:"cut"`
}

// look is the visible page at a moment, and its problems so far.
type look struct {
	Title     string    `json:"title"`
	Notice    string    `json:"notice"`
	Messages  []message `json:"messages"`
	Ideas     []string  `json:"ideas"`
	Made      []string  `json:"made"`      // elements in messages beyond the page's own
	SticksOut []string  `json:"sticksOut"` // elements wider than their container
	Ground    string    `json:"ground"`
	Ink       string    `json:"ink"`
	Errors    []string  `json:"errors"`
	Foreign   []string  `json:"foreign"` // addresses on other hosts
}

type message struct {
	Who      string   `json:"who"`
	Texts    []string `json:"texts"`
	Tools    []tool   `json:"tools"`
	Failures []string `json:"failures"`
}

type tool struct {
	Name  string   `json:"name"`
	State string   `json:"state"`
	Asks  []string `json:"asks"` // the user's choices: question, fields, buttons
	Rows  []string `json:"rows"` // of the open card
}

// run runs a scenario, calls told, if set, for every intermediate report, and performs the common checks.
func run(t *testing.T, name string, o options, told func(string)) result {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	o.Browser = browser
	if *shots != "" {
		o.Shots = filepath.Join(*shots, t.Name())
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

// Prefixes of the browser's own messages about an absent server or a refusal.
const (
	unreachable = "Failed to load resource: net::ERR_"
	saidNo      = "Failed to load resource: the server responded with a status of 4"
)

// check performs the checks for any page at any moment. Refusals may appear on the console and the page only if
// refused is set.
func (l look) check(t *testing.T, refused bool) {
	t.Helper()
	foreseen := func(e string) bool {
		return strings.HasPrefix(e, unreachable) || refused && strings.HasPrefix(e, saidNo)
	}
	if errors := slices.DeleteFunc(slices.Clone(l.Errors), foreseen); len(errors) > 0 {
		t.Errorf("the console shows %q", errors)
	}
	if len(l.Foreign) > 0 {
		t.Errorf("the page asked other hosts: %q", l.Foreign)
	}
	if len(l.Made) > 0 {
		t.Errorf("texts made elements: %q", l.Made)
	}
	if len(l.SticksOut) > 0 {
		t.Errorf("elements stick out: %q", l.SticksOut)
	}
	if l.Title != "Holdfast" {
		t.Errorf("the title is %q, want Holdfast", l.Title)
	}
	if want := l.notice(); l.Notice != want && !refused {
		t.Errorf("the page says %q at the end, want %q", l.Notice, want)
	}
}

// notice returns the page's notice while nothing is in progress.
func (l look) notice() string {
	for _, m := range l.Messages {
		for _, t := range m.Tools {
			if len(t.Asks) > 0 {
				return "The agent waits for your answer."
			}
		}
	}
	return ""
}

// checkReachable verifies that the server was always reachable.
func (r result) checkReachable(t *testing.T) {
	t.Helper()
	if errors := r.last().Errors; len(errors) > 0 {
		t.Errorf("the console shows %q", errors)
	}
}

// checkCut verifies that the event happened in the middle of the answer; otherwise the test proves nothing.
func (r result) checkCut(t *testing.T, whole string) {
	t.Helper()
	if r.Cut == "" || len(r.Cut) >= len(whole) {
		t.Errorf("the answer was cut when it had %d bytes, want some of %d", len(r.Cut), len(whole))
	}
}

func (r result) last() look { return r.Looks[len(r.Looks)-1] }

// checkMessages compares the visible messages with lines in the form of transcript.
func (l look) checkMessages(t *testing.T, want ...string) {
	t.Helper()
	if got, want := l.transcript(), strings.Join(want, "\n"); got != want {
		t.Errorf("got the conversation\n%s\nwant\n%s", got, want)
	}
}

// transcript describes the conversation, one line per part.
func (l look) transcript() string {
	var lines []string
	for _, m := range l.Messages {
		for _, text := range m.Texts {
			lines = append(lines, m.Who+": "+text)
		}
		for _, tool := range m.Tools {
			lines = append(lines, m.Who+" calls "+tool.Name+", "+tool.State)
			lines = append(lines, tool.Rows...)
		}
		for _, failure := range m.Failures {
			lines = append(lines, m.Who+" fails: "+failure)
		}
	}
	return strings.Join(lines, "\n")
}

// brightness returns the mean of a computed colour's channels, 0 to 255.
func brightness(t *testing.T, colour string) int {
	t.Helper()
	var red, green, blue int
	if _, err := fmt.Sscanf(colour, "rgb(%d, %d, %d)", &red, &green, &blue); err != nil {
		t.Fatalf("read the colour %q: %v", colour, err)
	}
	return (red + green + blue) / 3
}
