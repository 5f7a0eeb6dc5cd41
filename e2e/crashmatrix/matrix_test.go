package crashmatrix_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// pointsFile declares the points between two effects of a run.
const pointsFile = "../../services/executor/internal/worker/points.go"

// kill is the place of an executor's death.
type kill struct {
	point string
	after int // count of the passing, from 1
	last  bool
}

func TestARunEndsAsIfNobodyHadDiedWhereverItsExecutorIsKilled(t *testing.T) {
	t.Parallel()
	// A busy machine must not lose a live executor.
	w := newWorld(t, nil, []string{"HOLDFAST_STATE_SILENT_AFTER=5s"})
	var mu sync.Mutex
	killed := map[string]bool{}
	t.Run("script", func(t *testing.T) {
		for i, s := range scripts {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				file := trace(t)
				want, _ := w.play(t, s, fmt.Sprintf("undisturbed-%d", i), "FAULT_TRACE="+file)
				t.Logf("undisturbed:\n%v", want)
				if t.Failed() {
					return
				}
				for n, k := range kills(passed(t, file)) {
					t.Run(fmt.Sprintf("%s/%d", k.point, k.after), func(t *testing.T) {
						t.Parallel()
						got, died := w.play(t, s, fmt.Sprintf("killed-%d-%d", i, n), "FAULT_POINT="+k.point, "FAULT_AFTER="+strconv.Itoa(k.after))
						if !died && k.after == 1 {
							t.Errorf("the executor has not come by %s", k.point)
						}
						s.compare(t, k, got, want)
						mu.Lock()
						defer mu.Unlock()
						killed[k.point] = killed[k.point] || died
					})
				}
			})
		}
	})
	for _, point := range points(t) {
		if !killed[point] {
			t.Errorf("no executor was killed at %s: add a script to scripts_test.go that comes by", point)
		}
	}
}

// points reads the names of the points from their declaration.
func points(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), pointsFile, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if literal, ok := v.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			name, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return true
	})
	if len(names) == 0 {
		t.Fatalf("%s declares no points", pointsFile)
	}
	return names
}

// passed reads a trace.
func passed(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the undisturbed run came by no point: %v", err)
	}
	return strings.Fields(string(text))
}

// kills returns the first and the last passing of each point.
func kills(trace []string) []kill {
	count := map[string]int{}
	var all []kill
	for _, point := range trace {
		count[point]++
		all = append(all, kill{point: point, after: count[point]})
	}
	for i := range all {
		all[i].last = all[i].after == count[all[i].point]
	}
	return slices.DeleteFunc(all, func(k kill) bool { return !*everyPassing && k.after > 1 && !k.last })
}

// compare compares the result with an undisturbed run.
func (s script) compare(t *testing.T, k kill, got, want snapshot) {
	t.Helper()
	for _, allowed := range s.allowed(k, want) {
		if got == allowed {
			return
		}
	}
	if loosen := s.loose(k); loosen != nil && got.each(loosen) == want.each(loosen) {
		return
	}
	t.Errorf("what is left is\n%v\nwant what the undisturbed run left:\n%v", got, want)
}

// openUntilCommitted has the points at which the last call of a step may have begun without a record: the commit makes it
// durable.
var openUntilCommitted = []string{"plan_recorded", "call_begins", "call_ended", "call_recorded", "call_reported", "calls_ended", "commit_begins"}

// neverDone matches the end of a call that never runs twice, in every text.
var neverDone = regexp.MustCompile(`(?m)(SESSION never"\}) (-> ok|output-available) .*$`)

// allowed returns the permitted results: the undisturbed one and, if a call that never runs twice may have been
// in progress, the same with an unknown outcome. A single call in a step certainly had no record.
func (s script) allowed(k kill, want snapshot) []snapshot {
	uncertain := want.each(func(text string) string {
		return neverDone.ReplaceAllStringFunc(text, func(line string) string {
			before, _, shown := strings.Cut(line, " output-available")
			if shown {
				return before + " unknown"
			}
			before, _, _ = strings.Cut(line, " -> ok")
			return before + " -> unknown"
		})
	})
	open := slices.Contains(openUntilCommitted, k.point)
	switch s.name {
	case "never tool", "client tool": // the only call of the first step
		if open && k.after == 1 {
			return []snapshot{uncertain}
		}
	case "parallel calls and state": // possibly the last call of the first step
		if open && (k.after == 1 || strings.HasPrefix(k.point, "call_")) {
			return []snapshot{want, uncertain}
		}
	case "look-up beside effects": // the only call of the second step
		if open {
			return []snapshot{want, uncertain}
		}
	case "approvals": // the approved call is the only one that runs in the second step
		if open && (k.point != "commit_begins" || k.after == 2) {
			return []snapshot{want, uncertain}
		}
	}
	return []snapshot{want}
}

// partial matches the text of a truncated reply, and its counters.
var partial = regexp.MustCompile(`(?m)^assistant step \d+ interrupted=\w+:\n( .*\n)+|^assistant:\n(  text .*\n)*(  data-error\n)?|^ *(step_started|step_committed|text ".*")\n| steps \d+`)

// lookedUp matches look-ups, and the counters of their step and tokens.
var lookedUp = regexp.MustCompile(`(?m)^(assistant|tool)( step \d+)?:\n( .*\n)+|^tool_(start|end) .*\n|^ *(step_started|step_committed)\n| steps \d+|^tokens .*\n|\{"promptTokens.*`)

// loose removes what may differ before two snapshots are compared; nil removes nothing. A reply in flight that
// is stopped or fails is streamed in part, and voided if its executor dies before the end is durable. Its length
// at a deadline depends on the machine.
func (s script) loose(k kill) func(string) string {
	if s.name == "interrupt of look-ups" { // nothing is durable before their commit
		return func(text string) string { return lookedUp.ReplaceAllString(text, "") }
	}
	if s.timeout == 0 && !slices.Contains(s.voided, k.point) {
		return nil
	}
	return func(text string) string { return partial.ReplaceAllString(text, "") }
}
