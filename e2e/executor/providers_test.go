package executor_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// providersFile declares agents of both providers with a fake base URL.
func providersFile(url string) string {
	return strings.ReplaceAll(`
models:
  openai: {baseURL: ADDRESS/v1, apiKeyEnv: FAKE_KEY}
  anthropic: {baseURL: ADDRESS, apiKeyEnv: FAKE_KEY}
agents:
  - {name: openai, model: openai/fake}
  - {name: anthropic, model: anthropic/fake}
  - {name: openai-first, model: openai/fake, fallbacks: [anthropic/fake], maxRetries: 0}
  - {name: anthropic-first, model: anthropic/fake, fallbacks: [openai/fake], maxRetries: 0}
`, "ADDRESS", url)
}

// fakeKey is the API key of the fake providers. They do not check it.
const fakeKey = "FAKE_KEY=a-key"

// retryAfter is the provider's requested delay: longer than the runtime's own.
const retryAfter = 3 * time.Second

func TestARunSurvivesTheFaultsOfItsProvider(t *testing.T) {
	t.Parallel()
	var p *harness.Provider
	p = harness.StartProvider(t, func(s *harness.Speech) {
		first := len(p.Requests(s.LastUser())) == 1
		switch {
		case first && strings.HasPrefix(s.LastUser(), "limited"):
			s.Refuse(http.StatusTooManyRequests, "rate_limit_error", "Retry-After", fmt.Sprint(retryAfter.Seconds()))
		case first && strings.HasPrefix(s.LastUser(), "cut"):
			s.Text("This is void. ")
			s.Cut()
		case strings.HasSuffix(s.LastUser(), "of "+s.Wire):
			s.Refuse(http.StatusServiceUnavailable, "overloaded_error")
		default:
			s.Text("All ")
			s.Text("is well: " + s.Wire + ".")
			s.End()
		}
	})
	s := harness.Start(t, harness.Options{Agents: providersFile(p.URL), StateEnv: []string{harness.PatientState}, ExecutorEnv: []string{fakeKey}})
	for _, test := range []struct{ agent, say, want string }{
		{"openai", "limited openai", "All is well: openai."},
		{"anthropic", "limited anthropic", "All is well: anthropic."},
		{"openai", "cut openai", "All is well: openai."},
		{"anthropic", "cut anthropic", "All is well: anthropic."},
		{"openai-first", "a failure of openai", "All is well: anthropic."},
		{"anthropic-first", "a failure of anthropic", "All is well: openai."},
	} {
		t.Run(test.say, func(t *testing.T) {
			answer := s.Chat(t, test.say, test.agent, test.say).ReadAll()
			if answer.Text() != test.want {
				t.Errorf("the answer is %q, want %q", answer.Text(), test.want)
			}
			stored := s.Messages(t, test.say)
			if n := len(stored); n != 2 || stored[n-1].Text() != test.want {
				t.Errorf("the conversation is\n%s\nwant the question and %q", harness.Transcript(stored), test.want)
			}
			came := p.Requests(test.say)
			if len(came) != 2 {
				t.Errorf("the provider was asked %d times, want 2", len(came))
			} else if waited := came[1].At.Sub(came[0].At); strings.HasPrefix(test.say, "limited") && waited < retryAfter {
				t.Errorf("the provider was asked again after %v, and had asked for %v", waited, retryAfter)
			}
		})
	}
}
