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
const pointsFile = "../../services/executor/internal/worker/point.go"

// kill is where an executor dies.
type kill struct {
	point string
	after int // the passing at which it does, from 1
	last  bool
}

func TestARunEndsAsIfNobodyHadDiedWhereverItsExecutorIsKilled(t *testing.T) {
	t.Parallel()
	// An executor that lives is not given up where the machine is busy.
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

// points reads the points' names where they are declared.
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

// kills gives where to kill: at the first and the last passing of each point.
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

// compare compares what is left with what the undisturbed run left.
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

// Points at which a call may have begun and left no record: one that is recorded, and the last one of
// a step, which the commit makes durable.
var (
	openUntilRecorded  = []string{"plan_recorded", "call_begins", "call_ended"}
	openUntilCommitted = []string{"plan_recorded", "call_begins", "call_ended", "call_recorded", "call_told", "calls_ended", "commit_begins"}
)

// neverDone matches, in every text, the end of a call that never runs twice.
var neverDone = regexp.MustCompile(`(?m)(SESSION never"\}) (-> ok|output-available) .*$`)

// allowed gives what may be left: what the undisturbed run left and, where a call
// that never runs twice may have been under way, that with an outcome which is not
// known. A call that was alone had left no record for sure.
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
	case "never tool", "client tool": // the call is alone in the first step
		if open && k.after == 1 {
			return []snapshot{uncertain}
		}
	case "parallel calls and state": // it may be the last one of the first step
		if open && (k.after == 1 || strings.HasPrefix(k.point, "call_")) {
			return []snapshot{want, uncertain}
		}
	case "look-up beside effects": // it is alone in the second step
		if open {
			return []snapshot{want, uncertain}
		}
	case "approvals": // answers are recorded as they are used
		if slices.Contains(openUntilRecorded, k.point) {
			return []snapshot{want, uncertain}
		}
	}
	return []snapshot{want}
}

// partial matches what was said of a reply that is cut short, and what counts it.
var partial = regexp.MustCompile(`(?m)^assistant step \d+ interrupted=\w+:\n( .*\n)+|^assistant:\n(  text .*\n)*(  data-error\n)?|^ *(step_started|step_committed|text ".*")\n| steps \d+`)

// lookedUp matches what is said of look-ups, and what counts their step and its tokens.
var lookedUp = regexp.MustCompile(`(?m)^(assistant|tool)( step \d+)?:\n( .*\n)+|^tool_(start|end) .*\n|^ *(step_started|step_committed)\n| steps \d+|^tokens .*\n|\{"promptTokens.*`)

// loose gives what to leave out before two snapshots are compared; nil for nothing. A
// reply in flight that is stopped or fails is told as far as it came, and taken back when
// its executor dies before its end is durable. How far it comes until a deadline is up to
// the machine.
func (s script) loose(k kill) func(string) string {
	if s.name == "interrupt of look-ups" { // before their commit nothing of them is durable
		return func(text string) string { return lookedUp.ReplaceAllString(text, "") }
	}
	if s.timeout == 0 && !slices.Contains(s.voided, k.point) {
		return nil
	}
	return func(text string) string { return partial.ReplaceAllString(text, "") }
}
