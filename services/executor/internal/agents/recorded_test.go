package agents

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

var update = flag.Bool("update", false, "write the mistakes that are reported into testdata/mistakes.txt")

// TestMistakesReadAsRecorded reads the files of testdata/mistakes.txt. Each begins with a title in a line "## title", and
// its mistakes follow in lines that begin with "=> ". An update shows a change of any sentence as a difference.
func TestMistakesReadAsRecorded(t *testing.T) {
	t.Parallel()
	const path = "testdata/mistakes.txt"
	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var now bytes.Buffer
	for _, section := range strings.Split("\n"+string(recorded), "\n## ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		text, _, _ := strings.Cut(rest, "=> ")
		now.WriteString("## " + title + "\n" + text)
		known := testKnown()
		known.Remote = func(string, string) (string, error) { return "", errors.New("the address is not on the list") }
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, known)
		f, ok := errors.AsType[*fault.Fault](err)
		if !ok {
			t.Errorf("%s: got %v, want mistakes", title, err)
			continue
		}
		for line := range strings.SplitSeq(f.Detail, "\n") {
			now.WriteString("=> " + strings.TrimPrefix(line, "a.yaml:") + "\n")
		}
		now.WriteString("\n")
	}
	got := bytes.TrimSuffix(now.Bytes(), []byte("\n"))
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, recorded) {
		t.Errorf("the mistakes have changed. If that is right, record them with -update:\n%s", got)
	}
}
