package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// goneLimit bounds the expiry of chunks, and a reader's recovery after a loss.
const goneLimit = 3 * time.Minute

// onNATS returns options for a stream service with a NATS server of its own.
func onNATS(t *testing.T) harness.Options {
	return harness.Options{Agents: agents(), NATS: harness.StartNATS(t, 1)}
}

func TestAFinishedConversationOutlivesItsChunks(t *testing.T) {
	t.Parallel()
	embedded := func(env ...string) func(*testing.T) harness.Options {
		return func(*testing.T) harness.Options { return harness.Options{Agents: agents(), StreamEnv: env} }
	}
	for name, c := range map[string]struct {
		options func(*testing.T) harness.Options
		lose    func(*testing.T, *harness.System, harness.Options)
	}{
		// The answer ends long before its first chunk expires.
		"which are too old":         {embedded("HOLDFAST_STREAM_TTL=12s", "HOLDFAST_STREAM_PARTITIONS=1"), waitGone},
		"whose folder is lost":      {embedded(), loseFolder},
		"whose NATS volume is lost": {onNATS, loseNATS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.options(t)
			s := harness.Start(t, o)
			asking := s.Chat(t, "old", "worker", "note and tell")
			checkContent(t, "the answer", asking.ReadAll(), noteAndTellContent())
			s.WaitStatus(t, "old", "completed")
			c.lose(t, s, o)
			checkOutlived(t, s)
			checkContent(t, "the next answer", s.Chat(t, "old", "worker", "note it").ReadAll(),
				textContent("Let me see. ")+noteContent("note", `{"text":"it"}`, `{"written":true}`)+textContent("It is noted."))
			checkTranscript(t, s.Client, "old", append(notedAndTold(),
				"user:", textContent("note it"), "assistant:", textContent("Let me see. "), noteContent("note", `{"text":"it"}`, `{"written":true}`), textContent("It is noted."))...)
		})
	}
}

// noteAndTellContent is the content of the answer to "note and tell".
func noteAndTellContent() string { return strings.Join(notedAndTold()[3:], "") }

// notedAndTold is the resulting conversation, one line per element.
func notedAndTold() []string {
	return []string{"user:", textContent("note and tell"), "assistant:",
		textContent("Let me see. "), noteContent("note", `{"text":"it"}`, `{"written":true}`), textContent(story())}
}

// waitGone waits until the session's chunks have expired.
func waitGone(t *testing.T, s *harness.System, _ harness.Options) {
	t.Helper()
	waitExpired(t, s, "old")
}

// loseFolder deletes the data folder of the stream service with its embedded log.
func loseFolder(t *testing.T, s *harness.System, _ harness.Options) {
	t.Helper()
	s.Stream.Kill()
	if err := os.RemoveAll(s.StreamDir); err != nil {
		t.Fatal(err)
	}
	s.Stream.Start()
}

// loseNATS deletes the data of the NATS server.
func loseNATS(t *testing.T, _ *harness.System, o harness.Options) {
	t.Helper()
	o.NATS.Kill(0)
	if err := os.RemoveAll(o.NATS.StoreDir(0)); err != nil {
		t.Fatal(err)
	}
	o.NATS.Start(0)
	o.NATS.WaitReady()
}

// checkOutlived checks the conversation "old" on all routes after its first chunks are gone.
func checkOutlived(t *testing.T, s *harness.System) {
	t.Helper()
	checkTranscript(t, s.Client, "old", notedAndTold()...)
	snapshot, err := s.Snapshot(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := harness.Transcript(snapshot.Messages), harness.Transcript(s.Messages(t, "old")); got != want {
		t.Errorf("the snapshot is\n%swant\n%s", got, want)
	}
	if got, want := snapshot.Status, "ended"; got != want {
		t.Errorf("the snapshot says that the session is %q, want %q", got, want)
	}

	whole := s.Native(t, "old", 0)
	whole.ReadAll()
	half := s.Native(t, "old", whole.Chunks[len(whole.Chunks)/2].Sequence)
	half.ReadAll()
	if got, want := len(half.Chunks), len(whole.Chunks)-len(whole.Chunks)/2-1; got != want || half.End != "end" {
		t.Errorf("a reader that comes back in the middle is told\n%swant the %d chunks behind it and the end", half.Dump(), want)
	}
	rest := s.Native(t, "old", snapshot.StreamSequence)
	rest.ReadAll()
	if rest.End != "end" || len(rest.Chunks) > 0 {
		t.Errorf("who has loaded the snapshot is told\n%swant the end alone", rest.Dump())
	}
	checkReader(t, s, "old", "Let me see. "+story())
}

// checkReader reads the session from the beginning as a persistent client.
func checkReader(t *testing.T, s *harness.System, session, want string) {
	t.Helper()
	for _, wire := range []harness.Wire{harness.SSE, harness.WebSocket} {
		r := &harness.Reader{Client: s.Client, Session: session, Wire: wire}
		readAll(t, r)
		if r.Text() != want {
			t.Errorf("who reads it by %s has %q, want %q\n%s", wire, r.Text(), want, r.Dump())
		}
	}
}

func readAll(t *testing.T, r *harness.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), goneLimit)
	defer cancel()
	if err := r.Read(ctx); err != nil {
		t.Error(err)
	}
}

func TestALiveRunGoesOnWhenItsLogIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options func(*testing.T) harness.Options
		lose    func(*testing.T, *harness.System, harness.Options)
	}{
		"with the folder":      {func(*testing.T) harness.Options { return harness.Options{Agents: agents()} }, loseFolder},
		"with the NATS volume": {onNATS, loseNATS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.options(t)
			s := harness.Start(t, o)
			asking := s.Chat(t, "live", "worker", "note and tell")
			readers := []*harness.Reader{
				{Client: s.Client, Session: "live", Wire: harness.SSE},
				{Client: s.Client, Session: "live", Wire: harness.WebSocket},
			}
			done := make(chan error, len(readers))
			ctx, cancel := context.WithTimeout(t.Context(), goneLimit)
			defer cancel()
			for _, r := range readers {
				go func() { done <- r.Read(ctx) }()
			}
			asking.UntilText(len(story()) / 3)
			c.lose(t, s, o)
			checkLoss(t, asking)
			checkContent(t, "who attaches after the loss", s.Follow(t, s.Attach(t, "live"), "live"), noteAndTellContent())
			s.WaitStatus(t, "live", "completed")
			for range readers {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			for _, r := range readers {
				if got, want := r.Text(), "Let me see. "+story(); got != want {
					t.Errorf("who has read along by %s has %q, want %q\n%s", r.Wire, got, want, r.Dump())
				}
			}
			checkTranscript(t, s.Client, "live", notedAndTold()...)
			checkReader(t, s, "live", "Let me see. "+story())
			if got := s.Effects.Lines("it"); len(got) != 1 {
				t.Errorf("the tool has left %d effects, want 1: %q", len(got), got)
			}
		})
	}
}

// checkLoss reads a chat answer whose beginning is missing in the log. The answer must continue whole, break
// off, or ask for a reload.
func checkLoss(t *testing.T, asking *harness.UIStream) {
	t.Helper()
	err := asking.Rest()
	switch {
	case errors.Is(err, harness.ErrDropped), strings.Contains(asking.ErrorText, "reload"):
	case err != nil:
		t.Errorf("who had asked: %v\n%s", err, asking.Dump())
	default:
		checkContent(t, "who had asked", asking.Message, noteAndTellContent())
	}
}
