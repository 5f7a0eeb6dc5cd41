package e2e

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestReadersGoOnFromTheirCursors(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents(), StateEnv: []string{harness.PatientState}})

	t.Run("in the native stream", func(t *testing.T) {
		t.Parallel()
		s.Chat(t, "native", "worker", "note and tell").UntilText(1)
		first := s.Native(t, "native", 0)
		first.Until("half of the story", func(n *harness.NativeStream) bool { return len(n.Text()) >= len(story())/2 })
		first.Close()
		second := s.Native(t, "native", first.Cursor)
		second.ReadAll()
		if got, want := first.Text()+second.Text(), "Let me see. "+story(); got != want {
			t.Errorf("the two halves are %q, want %q\n%s\n%s", got, want, first.Dump(), second.Dump())
		}
		for kind, want := range map[string]int{"run_started": 1, "tool_start": 1, "tool_end": 1, "run_completed": 1} {
			if got := first.Count(kind) + second.Count(kind); got != want {
				t.Errorf("the two halves hold %d %s, want %d", got, kind, want)
			}
		}
		after := s.Native(t, "native", second.Cursor)
		after.ReadAll()
		if after.End != "end" || len(after.Chunks) != 0 {
			t.Errorf("behind the last chunk stands\n%swant the end alone", after.Dump())
		}
	})

	t.Run("in the UI message stream", func(t *testing.T) {
		t.Parallel()
		asking := s.Chat(t, "ui", "worker", "note and tell")
		asking.UntilText(len(story()) / 2)
		again := s.Resume(t, "ui", asking)
		checkContent(t, "who went on", again.ReadAll(),
			textContent("Let me see. ")+noteContent("note", `{"text":"it"}`, `{"written":true}`)+textContent(story()))
	})
}
