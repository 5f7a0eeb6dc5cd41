package endpoint_test

import (
	"strings"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// scenario is one row of the table: what the model says, what the client does, and what must be seen. It knows nothing of the
// language of the agents.
type scenario struct {
	name  string
	agent string
	// start has the custom state, the user, the tags and the metadata of the session; nil for none. message is the first
	// message of the user, behind the name of the script.
	start   *agentv1.StartRequest
	message string
	// session is the id of the session; empty makes one from the name.
	session string
	// model are the replies of the agent's model, worker those of the sub-agent's.
	model, worker []turn
	// shortened is true if the model does not see the whole conversation.
	shortened bool
	client    []deed
	// want is the transcript: see talk.transcript.
	want string
	// native is the transcript of agents in Go where it must differ, and because is the reason.
	native, because string
	// check checks more; nil checks nothing.
	check func(*talk)
}

// table has all scenarios of a language.
func table(language string) []scenario {
	var all []scenario
	if language != native {
		all = append(all, onlyDescribed...)
	}
	for _, part := range [][]scenario{
		results, failures, inputs, options, approvals, states, events, callbacks, hooks, stops, contexts, names,
	} {
		all = append(all, part...)
	}
	return all
}

func TestAgentsOfEveryLanguageBehaveAlike(t *testing.T) {
	t.Parallel()
	for _, language := range languages {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			w := language.start(t)
			t.Run("methods", func(t *testing.T) {
				t.Parallel()
				w.playMethods(t)
			})
			for _, s := range table(language.name) {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					w.play(t, s, language.name)
				})
			}
		})
	}
}

// play plays a scenario in a session of its own and compares the transcript.
func (w *world) play(t *testing.T, s scenario, language string) {
	p := w.begin(t, s)
	for _, do := range s.client {
		do(p)
	}
	p.wait()
	want := s.want
	if language == native && s.because != "" {
		want = s.native
	}
	got, want := p.transcript(), lines(want)
	if !fits(got, want) {
		t.Errorf("got\n%s\nwant\n%s", indent(got), indent(want))
	}
	if s.check != nil {
		s.check(p)
	}
}

// lines removes the indentation of the table from a text.
func lines(text string) string {
	var list []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if trimmed := strings.TrimLeft(line, "\t"); trimmed != "" {
			list = append(list, trimmed)
		}
	}
	return strings.Join(list, "\n")
}

// fits compares transcripts line by line. A wanted line that ends with "…" has only the beginning, and says nothing about what
// the model reads.
func fits(got, want string) bool {
	gotten := strings.Split(got, "\n")
	for line := range strings.SplitSeq(want, "\n") {
		beginning, open := strings.CutSuffix(line, "…")
		if len(gotten) == 0 || gotten[0] != line && !(open && strings.HasPrefix(gotten[0], beginning)) {
			return false
		}
		gotten = gotten[1:]
		for open && len(gotten) > 0 && strings.HasPrefix(gotten[0], "  model: ") {
			gotten = gotten[1:]
		}
	}
	return len(gotten) == 0
}

func indent(text string) string { return "\t" + strings.ReplaceAll(text, "\n", "\n\t") }
