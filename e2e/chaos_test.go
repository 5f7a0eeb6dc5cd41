package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	conversations = 12
	// deaths happen at random moments, deathPause apart on average, so some hit services during recovery.
	deaths     = 10
	deathPause = 700 * time.Millisecond
	chaosLimit = 5 * time.Minute
)

func TestManyConversationsSurviveDeathsAtRandomMoments(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents(), Executors: 2})
	ctx, cancel := context.WithTimeout(t.Context(), chaosLimit)
	defer cancel()

	var talking sync.WaitGroup
	results := make([]error, conversations)
	for i := range conversations {
		talking.Go(func() { results[i] = converse(ctx, s.Client, i) })
	}
	killAtRandom(t, s)
	talking.Wait()

	for i, err := range results {
		if err != nil {
			t.Errorf("conversation %d: %v", i, err)
		}
	}
	for i := range conversations {
		checkChaotic(t, s, i)
	}
}

// killAtRandom kills processes with SIGKILL, one at a time, and restarts them.
func killAtRandom(t *testing.T, s *harness.System) {
	t.Helper()
	victims := append([]*harness.Process{s.Gateway, s.Stream, s.State}, s.Executors...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range deaths {
		// The moment is arbitrary on purpose, so there is no event to wait for.
		time.Sleep(time.Duration(random.Int64N(int64(2 * deathPause))))
		victim := victims[random.IntN(len(victims))]
		t.Logf("%s dies", victim.Name)
		victim.Restart()
	}
}

// A chaotic conversation is a turn with text alone or with a tool, and a second turn.
func chaotic(i int) (agent string, texts []string) {
	if i%2 == 0 {
		return "talker", []string{"tell me a story", "recite"}
	}
	return "worker", []string{fmt.Sprintf("note chaos%02d", i), "note and tell"}
}

func chaoticSession(i int) string { return fmt.Sprintf("chaos/%d", i) }

func converse(ctx context.Context, c harness.Client, i int) error {
	agent, texts := chaotic(i)
	for _, text := range texts {
		m, err := c.Converse(ctx, chaoticSession(i), agent, text)
		if err != nil {
			return err
		}
		if got, want := m.Text(), chaoticAnswer(text); got != want {
			return fmt.Errorf("the answer to %q is %q, want %q", text, got, want)
		}
	}
	return nil
}

func chaoticAnswer(text string) string {
	switch {
	case text == "tell me a story":
		return story()
	case text == "recite":
		return "You said: tell me a story, recite"
	case text == "note and tell":
		return "Let me see. " + story()
	default:
		return "It is noted."
	}
}

// checkChaotic checks the stored conversation: every message once, every step once in the stream, no effect
// twice.
func checkChaotic(t *testing.T, s *harness.System, i int) {
	t.Helper()
	session := chaoticSession(i)
	s.WaitStatus(t, session, "completed")
	_, texts := chaotic(i)
	var got, want []string
	for _, m := range s.Messages(t, session) {
		got = append(got, m.Role+": "+m.Text())
	}
	for _, text := range texts {
		want = append(want, "user: "+text, "assistant: "+chaoticAnswer(text))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the conversation %s is\n%q\nwant\n%q", session, got, want)
	}
	late := s.Native(t, session, 0)
	late.ReadAll()
	if got, want := late.Text(), chaoticAnswer(texts[0])+chaoticAnswer(texts[1]); got != want {
		t.Errorf("the stream of %s says %q, want %q\n%s", session, got, want, late.Dump())
	}
	for kind, want := range map[string]int{"run_started": 2, "run_completed": 2, "step_started": late.Count("step_committed"), "tool_start": late.Count("tool_end")} {
		if got := late.Count(kind); got != want {
			t.Errorf("the stream of %s holds %d %s, want %d\n%s", session, got, kind, want, late.Dump())
		}
	}
	if effects := s.Effects.Lines(fmt.Sprintf("chaos%02d", i)); len(effects) > 1 {
		t.Errorf("the tool of %s has run %d times: %q", session, len(effects), effects)
	}
}
