package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestAnotherExecutorFinishesTheTextOfAKilledOne(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), Executors: 2})
	asking := s.Chat(t, "story", "teller", "tell me a story")
	asking.UntilText(len(story()) / 2)
	watching := s.Attach(t, "story")
	if watching == nil {
		t.Fatal("there is nothing to attach to (204) in the middle of the story")
	}
	native := s.Native(t, "story", 0)
	native.Until("half of the text", func(n *harness.NativeStream) bool { return len(n.Text()) >= len(story())/2 })

	s.Busy().Kill()
	model.release("tell me a story")

	checkContent(t, "who had asked", asking.ReadAll(), textContent(story()))
	checkContent(t, "who had attached", watching.ReadAll(), textContent(story()))
	native.ReadAll()
	checkNative(t, "who was there", native, nativeContent(story())+"end\n")
	if native.Rewinds == 0 {
		t.Errorf("nothing was taken back of the half that was told twice\n%s", native.Dump())
	}
	checkWhole(t, s, "story", nativeContent(story())+"end\n", "user:", textContent("tell me a story"), "assistant:", textContent(story()))

	s.Gateway.Restart() // which forgets who has seen the end
	again := s.Attach(t, "story")
	if again == nil {
		t.Fatal("there is nothing to attach to (204) at a gateway that does not know that anybody has seen the end")
	}
	checkContent(t, "who came late", again.ReadAll(), textContent(story()))
}

func TestAKilledExecutorsToolsAreNotRunAgainWhenTheirResultIsKnown(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents(), Executors: 2})
	asking := s.Chat(t, "tools", "worker", "three notes")
	asking.Until("the quick tool's result", func(m harness.UIMessage) bool {
		return strings.Contains(m.Content(), noteContent("note", `{"text":"quick"}`, `{"written":true}`))
	})
	s.Effects.Wait("slow-never")
	s.Effects.Wait("slow-safe")
	watching := s.Attach(t, "tools")
	if watching == nil {
		t.Fatal("there is nothing to attach to (204) while tools are at work")
	}
	asking.Close()

	s.Busy().Kill()

	answer := watching.ReadAll()
	for _, text := range []string{"quick", "slow-never", "slow-safe"} {
		if got := s.Effects.Lines(text); len(got) != 1 {
			t.Errorf("the tool with the text %s has left %d effects, want 1: %q", text, len(got), got)
		}
	}
	checkThreeNotes(t, answer)
	stored := s.Messages(t, "tools")
	if got, want := answer.Content(), stored[len(stored)-1].Content(); got != want {
		t.Errorf("the reader holds\n%sbut the conversation is\n%s", got, want)
	}
	late := s.Native(t, "tools", 0)
	late.ReadAll()
	for kind, want := range map[string]int{"run_started": 1, "step_started": 2, "step_committed": 2, "tool_start": 3, "tool_end": 3, "run_completed": 1} {
		if got := late.Count(kind); got != want {
			t.Errorf("the stream holds %d %s, want %d\n%s", got, kind, want, late.Dump())
		}
	}
}

// checkThreeNotes checks the answer with interrupted tools: the outcome of the unsafe tool is unknown, and the
// safe tool ran again with the same key, since it found its own line.
func checkThreeNotes(t *testing.T, answer harness.UIMessage) {
	t.Helper()
	tools := map[string]string{}
	for _, p := range answer.Parts {
		if p.Tool() == "" {
			continue
		}
		var input struct{ Text string }
		if err := json.Unmarshal(p.Input, &input); err != nil {
			t.Fatalf("the input of the tool %s: %v", p.Input, err)
		}
		tools[input.Text] += p.State + string(p.Output)
		if input.Text == "slow-never" && !strings.Contains(p.ErrorText, "not known") {
			t.Errorf("the interrupted tool's error is %q, want one that says that the outcome is not known", p.ErrorText)
		}
	}
	for text, want := range map[string]string{
		"quick":      `output-available{"written":true}`,
		"slow-never": `output-error`,
		"slow-safe":  `output-available{"written":false}`,
	} {
		if tools[text] != want {
			t.Errorf("the tool with the text %s is %s, want %s\n%s", text, tools[text], want, answer.Content())
		}
	}
	if got, want := answer.Text(), "Three notes are made."; got != want {
		t.Errorf("the answer says %q, want %q", got, want)
	}
}

func TestAConversationSurvivesTheDeathOf(t *testing.T) {
	t.Parallel()
	for name, pick := range processes() {
		t.Run("the "+name, func(t *testing.T) {
			t.Parallel()
			o := harness.Options{Agents: agents()}
			if name != "executor" {
				o.StateEnv = []string{harness.PatientState} // the tool's executor must not be declared lost
			}
			s := harness.Start(t, o)
			victim := pick(s)
			asking := s.Chat(t, "talk", "talker", "tell me a story")
			working := s.Chat(t, "work", "worker", "note slowly")
			asking.UntilText(len(story()) / 3)
			s.Effects.Wait("slowly")
			victim.Restart() // in the middle of the answer, and of a tool
			checkContent(t, "the answer in whose middle it died", s.Follow(t, asking, "talk"), textContent(story()))
			checkSlowNote(t, s, s.Follow(t, working, "work"), name != "executor")

			victim.Restart() // between two answers
			checkContent(t, "the answer after it died", s.Follow(t, s.Chat(t, "talk", "talker", "recite"), "talk"),
				textContent("You said: tell me a story, recite"))
			checkWhole(t, s, "talk", nativeContent(story())+nativeContent("You said: tell me a story, recite")+"end\n",
				"user:", textContent("tell me a story"), "assistant:", textContent(story()),
				"user:", textContent("recite"), "assistant:", textContent("You said: tell me a story, recite"))
		})
	}
}

// checkSlowNote checks the answer to "note slowly": the tool ran once, and its result is known unless its
// executor died meanwhile.
func checkSlowNote(t *testing.T, s *harness.System, answer harness.UIMessage, known bool) {
	t.Helper()
	if got := s.Effects.Lines("slowly"); len(got) != 1 {
		t.Errorf("the tool has left %d effects, want 1: %q", len(got), got)
	}
	want := noteContent("note", `{"afterMs":1500,"text":"slowly"}`, `{"written":true}`) + textContent("It is noted.")
	if known && answer.Content() != want {
		t.Errorf("the answer with the tool: got\n%swant\n%s", answer.Content(), want)
	}
	if !known && answer.Text() != "It is noted." {
		t.Errorf("the answer says %q, want that it is noted", answer.Text())
	}
	if got, want := harness.Transcript(s.Messages(t, "work")), answer.Content(); !strings.HasSuffix(strings.ReplaceAll(got, "\n  ", "\n"), want) {
		t.Errorf("the reader holds\n%sbut the conversation is\n%s", want, got)
	}
}

func TestNothingIsLostByAGracefulStopOf(t *testing.T) {
	t.Parallel()
	for name, pick := range processes() {
		t.Run("the "+name, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, harness.Options{Agents: agents()})
			victim := pick(s)
			asking := s.Chat(t, "talk", "talker", "tell me a story")
			asking.UntilText(len(story()) / 3)
			t.Logf("the %s took %v to stop", name, victim.Stop(harness.StopLimit))
			victim.Start()
			checkContent(t, "the answer in whose middle it was stopped", s.Follow(t, asking, "talk"), textContent(story()))
			checkWhole(t, s, "talk", nativeContent(story())+"end\n", "user:", textContent("tell me a story"), "assistant:", textContent(story()))
		})
	}
}

func processes() map[string]func(*harness.System) *harness.Process {
	return map[string]func(*harness.System) *harness.Process{
		"gateway":  func(s *harness.System) *harness.Process { return s.Gateway },
		"stream":   func(s *harness.System) *harness.Process { return s.Stream },
		"state":    func(s *harness.System) *harness.Process { return s.State },
		"executor": func(s *harness.System) *harness.Process { return s.Executors[0] },
	}
}

// checkWhole checks a finished session: its status, its messages, and its native stream from the beginning.
func checkWhole(t *testing.T, s *harness.System, session, native string, transcript ...string) {
	t.Helper()
	s.WaitStatus(t, session, "completed")
	checkTranscript(t, s.Client, session, transcript...)
	late := s.Native(t, session, 0)
	late.ReadAll()
	checkNative(t, "the stream from its beginning", late, native)
}

func checkNative(t *testing.T, who string, s *harness.NativeStream, want string) {
	t.Helper()
	if got := s.Content(); got != want {
		t.Errorf("%s: got\n%swant\n%s\n%s", who, got, want, s.Dump())
	}
}

// nativeContent is the native stream of a run with one text.
func nativeContent(text string) string {
	return "run_started\nstep_started\n" + textContent(text) + "step_committed\nrun_completed\n"
}
