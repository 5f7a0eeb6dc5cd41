package executor_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// programLines is the size of a program with an agent, two tools and its own executor.
const programLines = 40

func TestAGoProgramOfUnderFortyLinesRunsItsAgentBesideTheStockExecutors(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../examples/weather/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte("\n")); n >= programLines {
		t.Errorf("the program has %d lines, want under %d", n, programLines)
	}
	p := harness.StartProvider(t, func(s *harness.Speech) {
		switch results := toolResults(s); len(results) {
		case 0:
			s.Call("call_1", "forecast", `{"city": "Paris"}`)
		case 1:
			s.Call("call_2", "clock", `{}`)
		default:
			s.Text("Here it is: " + results[0])
		}
		s.End()
	})
	s := harness.Start(t, harness.Options{Agents: rollingFile})
	weather := s.Executor(t, "weather", harness.Program(t, "examples/weather"), "OPENAI_API_KEY=a-key", "OPENAI_BASE_URL="+p.URL+"/v1")
	weather.Start()
	s.WaitAgent(t, "weather")

	asking := s.Chat(t, "weather", "weather", "What is the weather in Paris?")
	other := s.Chat(t, "notes", "notes", "beside")
	answer := asking.ReadAll()
	if want := "Here it is: In Paris it will be sunny, at 20 degrees."; answer.Text() != want {
		t.Errorf("the program's agent says %q, want %q", answer.Text(), want)
	}
	if calls := strings.Count(answer.Content(), "output-available"); calls != 2 {
		t.Errorf("the answer is\n%s\nwant two calls that succeeded", answer.Content())
	}
	if got, want := other.ReadAll().Text(), "Let me see. Two notes are made for you."; got != want {
		t.Errorf("the agent of the stock executor says %q, want %q", got, want)
	}
}

// toolResults returns the tool results in a request of OpenAI's API.
func toolResults(s *harness.Speech) []string {
	var results []string
	messages, _ := s.Body["messages"].([]any)
	for _, m := range messages {
		if message, _ := m.(map[string]any); message["role"] == "tool" {
			text, _ := message["content"].(string)
			results = append(results, text)
		}
	}
	return results
}
