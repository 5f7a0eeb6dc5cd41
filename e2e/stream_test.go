package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// impatient executors go on without readers after a second.
func impatient(executors int) harness.Options {
	return harness.Options{
		Agents: agents(), Executors: executors,
		ExecutorEnv: []string{"HOLDFAST_EXECUTOR_STREAM_PATIENCE=1s"},
	}
}

func TestAnAnswerIsFinishedWhileTheStreamServiceIsAway(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, impatient(1))
	asking := s.Chat(t, "alone", "talker", "tell me a story")
	asking.UntilText(len(story()) / 3)
	s.Stream.Kill()
	s.WaitStatus(t, "alone", "completed")
	checkTranscript(t, s.Client, "alone", "user:", said("tell me a story"), "assistant:", said(story()))

	s.Stream.Start()
	checkContent(t, "who had asked", s.Follow(asking, "alone"), said(story()))
	checkContent(t, "the next answer", s.Chat(t, "alone", "talker", "recite").Whole(), said("You said: tell me a story, recite"))
	checkWhole(t, s, "alone", told(story())+told("You said: tell me a story, recite")+"end\n",
		"user:", said("tell me a story"), "assistant:", said(story()),
		"user:", said("recite"), "assistant:", said("You said: tell me a story, recite"))
}

func TestAnAnswerIsToldWholeWhenItsExecutorDiesBeforeTheStreamServiceIsBack(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, impatient(1))
	asking := s.Chat(t, "alone", "talker", "tell me a story")
	asking.UntilText(len(story()) / 3)
	s.Stream.Kill()
	s.WaitStatus(t, "alone", "completed")
	s.Executors[0].Kill()

	s.Stream.Start()
	s.Executors[0].Start()
	checkContent(t, "who had asked", s.Follow(asking, "alone"), said(story()))
	checkContent(t, "the next answer", s.Chat(t, "alone", "talker", "recite").Whole(), said("You said: tell me a story, recite"))
	checkWhole(t, s, "alone", told(story())+told("You said: tell me a story, recite")+"end\n",
		"user:", said("tell me a story"), "assistant:", said(story()),
		"user:", said("recite"), "assistant:", said("You said: tell me a story, recite"))
}

func TestAConversationGoesOnAfterTheStreamServiceHasLostItsData(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents()})
	checkContent(t, "the answer before", s.Chat(t, "lost", "talker", "hello").Whole(), said("You said: hello"))
	before := s.Native(t, "lost", 0)
	before.Whole()

	s.Stream.Kill()
	if err := os.RemoveAll(s.StreamDir); err != nil {
		t.Fatal(err)
	}
	s.Stream.Start()

	checkContent(t, "the answer after", s.Chat(t, "lost", "talker", "recite").Whole(), said("You said: hello, recite"))
	checkTranscript(t, s.Client, "lost",
		"user:", said("hello"), "assistant:", said("You said: hello"),
		"user:", said("recite"), "assistant:", said("You said: hello, recite"))
	after := s.Native(t, "lost", before.Cursor)
	after.Whole()
	if after.End == "truncated" {
		return // the reader reloads the conversation
	}
	checkNative(t, "who comes with an old cursor", after, told("You said: hello, recite")+"end\n")
}

func TestAConversationGoesOnAfterItsChunksHaveExpired(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents(), StreamEnv: []string{"HOLDFAST_STREAM_TTL=2s"}})
	checkContent(t, "the answer before", s.Chat(t, "old", "talker", "hello").Whole(), said("You said: hello"))
	harness.WaitFor(t, 20*time.Second, "the chunks to expire", func() (bool, string) {
		n := s.Native(t, "old", 0)
		n.Whole()
		return len(n.Chunks) == 0, n.Heard()
	})
	checkContent(t, "the answer after", s.Chat(t, "old", "talker", "recite").Whole(), said("You said: hello, recite"))
	checkTranscript(t, s.Client, "old",
		"user:", said("hello"), "assistant:", said("You said: hello"),
		"user:", said("recite"), "assistant:", said("You said: hello, recite"))
}
