package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// impatientOptions executors continue without readers after a second.
func impatientOptions(executors int) harness.Options {
	return harness.Options{
		Agents: agents(), Executors: executors,
		ExecutorEnv: []string{"HOLDFAST_EXECUTOR_STREAM_PATIENCE=1s"},
	}
}

func TestAnAnswerIsFinishedWhileTheStreamServiceIsAway(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, impatientOptions(1))
	asking := s.Chat(t, "alone", "talker", "tell me a story")
	asking.UntilText(len(story()) / 3)
	s.Stream.Kill()
	s.WaitStatus(t, "alone", "completed")
	checkTranscript(t, s.Client, "alone", "user:", textContent("tell me a story"), "assistant:", textContent(story()))

	s.Stream.Start()
	checkContent(t, "who had asked", s.Follow(t, asking, "alone"), textContent(story()))
	checkContent(t, "the next answer", s.Chat(t, "alone", "talker", "recite").ReadAll(), textContent("You said: tell me a story, recite"))
	checkWhole(t, s, "alone", nativeContent(story())+nativeContent("You said: tell me a story, recite")+"end\n",
		"user:", textContent("tell me a story"), "assistant:", textContent(story()),
		"user:", textContent("recite"), "assistant:", textContent("You said: tell me a story, recite"))
}

func TestAnAnswerIsToldWholeWhenItsExecutorDiesBeforeTheStreamServiceIsBack(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, impatientOptions(1))
	asking := s.Chat(t, "alone", "talker", "tell me a story")
	asking.UntilText(len(story()) / 3)
	s.Stream.Kill()
	s.WaitStatus(t, "alone", "completed")
	s.Executors[0].Kill()

	s.Stream.Start()
	s.Executors[0].Start()
	checkContent(t, "who had asked", s.Follow(t, asking, "alone"), textContent(story()))
	checkContent(t, "the next answer", s.Chat(t, "alone", "talker", "recite").ReadAll(), textContent("You said: tell me a story, recite"))
	checkWhole(t, s, "alone", nativeContent(story())+nativeContent("You said: tell me a story, recite")+"end\n",
		"user:", textContent("tell me a story"), "assistant:", textContent(story()),
		"user:", textContent("recite"), "assistant:", textContent("You said: tell me a story, recite"))
}

func TestAConversationGoesOnAfterTheStreamServiceHasLostItsData(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents()})
	checkContent(t, "the answer before", s.Chat(t, "lost", "talker", "hello").ReadAll(), textContent("You said: hello"))
	before := s.Native(t, "lost", 0)
	before.ReadAll()

	s.Stream.Kill()
	if err := os.RemoveAll(s.StreamDir); err != nil {
		t.Fatal(err)
	}
	s.Stream.Start()

	checkContent(t, "the answer after", s.Chat(t, "lost", "talker", "recite").ReadAll(), textContent("You said: hello, recite"))
	checkTranscript(t, s.Client, "lost",
		"user:", textContent("hello"), "assistant:", textContent("You said: hello"),
		"user:", textContent("recite"), "assistant:", textContent("You said: hello, recite"))
	after := s.Native(t, "lost", before.Cursor)
	after.ReadAll()
	checkNative(t, "who comes with an old cursor", after, nativeContent("You said: hello, recite")+"end\n")
}

func TestAConversationIsReadWholeAfterItsChunksHaveExpired(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents(), StreamEnv: []string{
		"HOLDFAST_STREAM_TTL=8s", "HOLDFAST_STREAM_PARTITIONS=1",
	}})
	checkContent(t, "the answer before", s.Chat(t, "old", "talker", "hello").ReadAll(), textContent("You said: hello"))
	waitExpired(t, s, "old")
	checkWhole(t, s, "old", nativeContent("You said: hello")+"end\n", "user:", textContent("hello"), "assistant:", textContent("You said: hello"))
	checkContent(t, "the answer after", s.Chat(t, "old", "talker", "recite").ReadAll(), textContent("You said: hello, recite"))
	checkWhole(t, s, "old", nativeContent("You said: hello")+nativeContent("You said: hello, recite")+"end\n",
		"user:", textContent("hello"), "assistant:", textContent("You said: hello"),
		"user:", textContent("recite"), "assistant:", textContent("You said: hello, recite"))
}

// waitExpired waits until the live log holds nothing of the session.
func waitExpired(t *testing.T, s *harness.System, session string) {
	t.Helper()
	log := streamv2.NewStreamServiceClient(harness.DialInternal(t, s.Stream.Address))
	harness.WaitFor(t, goneLimit, "the chunks of "+session+" to expire", func() (bool, string) {
		records, err := storedRecords(t.Context(), log, session)
		return err == nil && len(records) == 0, fmt.Sprint(len(records), " records, ", err)
	})
}

// storedRecords reads the session's records from the live log.
func storedRecords(ctx context.Context, log streamv2.StreamServiceClient, session string) ([]*streamv2.Record, error) {
	ref := &streamv2.StreamRef{Tenant: tenant, RootSessionId: session, SessionId: session}
	call, err := log.Read(ctx, &streamv2.ReadRequest{Stream: ref, StoredOnly: true})
	if err != nil {
		return nil, err
	}
	var records []*streamv2.Record
	for {
		answer, err := call.Recv()
		if err != nil {
			return records, err
		}
		if answer.GetCaughtUp() != nil {
			return records, nil
		}
		records = append(records, answer.GetRecords().GetRecords()...)
	}
}

func TestALargeAnswerArrivesWhole(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents()})
	large := strings.Repeat("é🙂", 100_000) // 600,000 bytes: more than the limit of a chunk
	checkLarge := func(who string, got harness.UIMessage) {
		t.Helper()
		if want := "You said: " + large; got.Text() != want {
			t.Errorf("%s: got %d bytes, want %d; the texts differ from byte %d on", who, len(got.Text()), len(want), differ(got.Text(), want))
		}
	}
	checkLarge("who had asked", s.Chat(t, "large", "talker", large).ReadAll())
	messages := s.Messages(t, "large")
	checkLarge("the conversation", messages[len(messages)-1])
	late := s.Native(t, "large", 0)
	late.ReadAll()
	checkLarge("the stream", harness.UIMessage{Parts: []harness.UIPart{{Type: "text", Text: late.Text()}}})
	if late.End != "end" || !strings.Contains(late.EndData, large) {
		t.Errorf("the stream ends with %s and %d bytes, want end with the whole output", late.End, len(late.EndData))
	}
}

// differ returns the first byte at which two texts differ.
func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
