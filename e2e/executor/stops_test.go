package executor_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

const (
	// hangLimit is how long the provider waits for its caller to disconnect.
	hangLimit = 4 * time.Minute
	// posts is the number of simultaneous messages.
	posts = 20
)

// hanging starts a provider that sends half of each first answer and then stalls. It reports disconnected
// callers on closed. Neighbouring messages of the user reach it as one message with several paragraphs; it answers
// the last paragraph.
func hanging(t *testing.T) (p *harness.Provider, closed chan string) {
	closed = make(chan string, 64) // larger than the number of runs, so sending never blocks
	p = harness.StartProvider(t, func(s *harness.Speech) {
		paragraphs := strings.Split(s.LastUser(), "\n\n")
		if len(p.Requests(s.LastUser())) > 1 || !strings.HasPrefix(paragraphs[len(paragraphs)-1], "hang") {
			s.Text("And that is all.")
			s.End()
			return
		}
		s.Text("one two ")
		s.Text("three")
		if s.Hang(hangLimit) {
			closed <- s.LastUser()
		}
	})
	return p, closed
}

// startReplicated starts two replicas of each service on the path of a stop, and one executor with the first
// state replica.
func startReplicated(t *testing.T, agents string) *harness.System {
	t.Helper()
	return harness.Start(t, harness.Options{Agents: agents, States: 2, Gateways: 2, StateEnv: []string{harness.PatientState}, ExecutorEnv: []string{fakeKey}})
}

func TestAStopReachesTheProvidersSocketFromAnyReplica(t *testing.T) {
	t.Parallel()
	p, closed := hanging(t)
	s := startReplicated(t, providersFile(p.URL))
	for _, wire := range []string{"openai", "anthropic"} {
		for gateway := range s.Gateways {
			session := fmt.Sprintf("hang/%s %d", wire, gateway)
			asking := s.Chat(t, session, wire, session)
			asking.UntilText(len("one two three"))
			stop(t, s.At(gateway), session, "interrupt")
			awaitClosed(t, closed, session)
			_ = asking.Rest() // other tests check how the stream of an interrupted run ends
			s.WaitStatus(t, session, "interrupted")
			checkSaid(t, s.Client, session, session, "one two three")

			resumed, err := s.At(gateway).AgentService(t).Resume(t.Context(), &agentv1.ResumeRequest{SessionId: session})
			if err != nil {
				t.Fatalf("resume: %v", err)
			}
			if resumed.GetSessionId() != session || resumed.GetRunId() == "" {
				t.Errorf("resume = %v, want a run of the session", resumed)
			}
			s.WaitStatus(t, session, "completed")
			checkSaid(t, s.Client, session, session, "one two three", "And that is all.")
		}
	}
}

func TestAnAbortFailsTheRunFromAnyReplicaAndKeepsWhatItSaid(t *testing.T) {
	t.Parallel()
	p, closed := hanging(t)
	s := startReplicated(t, providersFile(p.URL))
	for gateway := range s.Gateways {
		session := fmt.Sprintf("hang/abort %d", gateway)
		asking := s.Chat(t, session, "openai", session)
		asking.UntilText(len("one two three"))
		stop(t, s.At(gateway), session, "abort")
		awaitClosed(t, closed, session)
		s.WaitStatus(t, session, "failed")
		got, err := s.AgentService(t).Get(t.Context(), &agentv1.GetRequest{SessionId: session})
		if err != nil || got.GetErrorCode() != "framework_cancelled" || got.GetOutput() != "" {
			t.Errorf("the session = %v, %v; want it failed with framework_cancelled and without an output", got, err)
		}
		checkSaid(t, s.Client, session, session, "one two three")
	}
}

// stop stops the session through the gateway's HTTP route.
func stop(t *testing.T, c harness.Client, session, kind string) {
	t.Helper()
	path := "/chat/" + strings.NewReplacer("/", "%2F", " ", "%20").Replace(session) + "/" + kind
	if a := c.Do(t, http.MethodPost, path, []byte(`{"reason": "enough"}`)); a.Code != http.StatusAccepted && a.Code != http.StatusOK {
		t.Fatalf("POST %s: got %d %s, want 202", path, a.Code, a.Body)
	}
}

func awaitClosed(t *testing.T, closed <-chan string, session string) {
	t.Helper()
	select {
	case got := <-closed:
		if got != session {
			t.Errorf("the call for %q was closed, want that for %q", got, session)
		}
	case <-time.After(hangLimit):
		t.Fatalf("the call for %q was not closed", session)
	}
}

// checkSaid checks the conversation: a question and its answers.
func checkSaid(t *testing.T, c harness.Client, session, question string, answers ...string) {
	t.Helper()
	messages := c.Messages(t, session)
	var said strings.Builder
	for _, m := range messages[min(1, len(messages)):] {
		said.WriteString(m.Text())
	}
	if len(messages) < 2 || messages[0].Text() != question || said.String() != strings.Join(answers, "") {
		t.Errorf("the conversation is\n%s\nwant the question %q and the answers %q", harness.Transcript(messages), question, answers)
	}
}

func TestNoMessageIsSwallowedThatComesWhileARunIsLive(t *testing.T) {
	t.Parallel()
	p, _ := hanging(t)
	s := startReplicated(t, providersFile(p.URL))
	for _, policy := range []agentv1.BusyPolicy{
		agentv1.BusyPolicy_BUSY_POLICY_REJECT, agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE,
		agentv1.BusyPolicy_BUSY_POLICY_INTERRUPT, agentv1.BusyPolicy_BUSY_POLICY_ROLLBACK,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			session := "busy " + policy.String()
			first := "hang " + session
			asking := s.Chat(t, session, "openai", first)
			asking.UntilText(len("one two three"))
			taken, refused := postAtOnce(t, s, session, policy)
			switch policy {
			case agentv1.BusyPolicy_BUSY_POLICY_REJECT:
				if len(taken) > 0 {
					t.Errorf("%d messages were taken while the run was live, want none", len(taken))
				}
				stop(t, s.Client, session, "interrupt")
				s.WaitStatus(t, session, "interrupted")
			case agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE:
				stop(t, s.Client, session, "interrupt") // stops the live run; waiting runs continue
				fallthrough
			default:
				if len(refused) > 0 {
					t.Errorf("%d messages were refused: %v", len(refused), refused)
				}
				s.WaitStatus(t, session, "completed")
			}
			checkNotSwallowed(t, s.Client, session, first, taken, policy)
		})
	}
}

// postAtOnce sends messages through all gateways simultaneously. It returns the accepted texts, and the reasons
// of refusals.
func postAtOnce(t *testing.T, s *harness.System, session string, policy agentv1.BusyPolicy) (taken, refused []string) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range posts {
		c := s.At(i % len(s.Gateways)).AgentService(t)
		wg.Go(func() {
			text := fmt.Sprintf("message %02d", i)
			_, err := c.Start(t.Context(), &agentv1.StartRequest{SessionId: session, AgentType: "openai", Message: text, OnBusy: policy})
			mu.Lock()
			defer mu.Unlock()
			switch reason := fault.ReasonOf(harness.Fault(err)); {
			case err == nil:
				taken = append(taken, text)
			case reason == "SESSION_BUSY" || reason == "TOO_MANY_WAITING":
				refused = append(refused, reason)
			default:
				t.Errorf("post %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return taken, refused
}

// checkNotSwallowed waits until every accepted message is in the conversation, exactly once and without other
// user messages.
func checkNotSwallowed(t *testing.T, c harness.Client, session, first string, taken []string, policy agentv1.BusyPolicy) {
	t.Helper()
	want := append([]string{first}, taken...)
	slices.Sort(want)
	var messages []harness.UIMessage
	harness.WaitFor(t, hangLimit, "every message that was taken to stand in the conversation", func() (bool, string) {
		messages = c.Messages(t, session)
		var got []string
		for _, m := range messages {
			if m.Role == "user" {
				got = append(got, m.Text())
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
	})
	kept := strings.Contains(harness.Transcript(messages), "one two three")
	if rolledBack := policy == agentv1.BusyPolicy_BUSY_POLICY_ROLLBACK; kept == rolledBack {
		t.Errorf("the conversation is\n%s\nwant the reply that was cut short in it: %v", harness.Transcript(messages), !rolledBack)
	}
	// The last message was answered, regardless of the others.
	if last := messages[len(messages)-1]; len(taken) > 0 && (last.Role != "assistant" || !strings.HasSuffix(last.Text(), "And that is all.")) {
		t.Errorf("the conversation ends with %s: %q, want the answer to its last message", last.Role, last.Text())
	}
}
