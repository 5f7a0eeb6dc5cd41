package e2e

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestASingleProcessKeepsItsConversationsWhenItIsKilled(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	d := harness.StartDev(t, model.agents())
	checkContent(t, "the answer before", d.Chat(t, "kept", "talker", "my name is Ada").ReadAll(), textContent("You said: my name is Ada"))
	asking := d.Chat(t, "cut", "teller", "tell me a story")
	asking.UntilText(len(story()) / 2)

	d.Restart()
	model.release("tell me a story")

	if err := asking.Rest(); err == nil {
		t.Errorf("the answer ended well though its process was killed\n%s", asking.Dump())
	}
	if again := d.Attach(t, "cut"); again == nil {
		t.Error("there is nothing to attach to (204), though the answer was cut")
	} else {
		checkContent(t, "the answer that was cut", again.ReadAll(), textContent(story()))
	}
	d.WaitStatus(t, "cut", "completed")
	checkTranscript(t, d.Client, "cut", "user:", textContent("tell me a story"), "assistant:", textContent(story()))
	late := d.Native(t, "cut", 0)
	late.ReadAll()
	checkNative(t, "the stream from its beginning", late, nativeContent(story())+"end\n")

	checkContent(t, "the answer after", d.Chat(t, "kept", "talker", "recite").ReadAll(), textContent("You said: my name is Ada, recite"))
	checkTranscript(t, d.Client, "kept",
		"user:", textContent("my name is Ada"), "assistant:", textContent("You said: my name is Ada"),
		"user:", textContent("recite"), "assistant:", textContent("You said: my name is Ada, recite"))

	asking = d.Chat(t, "stopped", "talker", "tell me a story")
	asking.UntilText(len(story()) / 3)
	t.Logf("it took %v to stop in the middle of an answer", d.Stop(harness.StopLimit))
	d.Start()
	checkContent(t, "the answer in whose middle it was stopped", d.Follow(t, asking, "stopped"), textContent(story()))
}
