package aisdk_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// playLimit bounds all scenarios of one version.
	playLimit = 15 * time.Minute
	// players is how many scenarios run at a time.
	players = 6
)

// The narrator's story. All words differ, so a lost or repeated one shows. It begins fast and continues slowly,
// which leaves some seconds to act in the middle.
const (
	storyWords = 120
	fastWords  = 40
	fastDelay  = "15ms"
	slowDelay  = "55ms"
	someText   = 200       // characters: the story has begun
	someWord   = "word020" // the same
)

func story() string {
	words := make([]string, storyWords)
	for i := range words {
		words[i] = fmt.Sprintf("word%03d", i)
	}
	return strings.Join(words, " ")
}

// telling is a reply with the story.
func telling() string {
	words := strings.SplitAfter(story(), " ")
	return fmt.Sprintf("[{text: '%s', chunk: 1 word, delay: %s}, {text: '%s', chunk: 1 word, delay: %s}]",
		strings.Join(words[:fastWords], ""), fastDelay, strings.Join(words[fastWords:], ""), slowDelay)
}

// answerWithin is the answer deadline of the hasty agent.
const answerWithin = "2s"

// agents returns the agents file.
func agents(provider string) string {
	return strings.NewReplacer("PROVIDER", provider, "TELLING", telling(), "WITHIN", answerWithin).Replace(`
models:
  openai: {baseURL: PROVIDER/v1, apiKeyEnv: FAKE_KEY}
  scripted:
    script: |
      models:
        narrator:
          rules:
            - when: {toolResult: ask}
              reply: TELLING
            - when: {lastUser: '^tell me a story'}
              reply: TELLING
            - when: {lastUser: '^fail'}
              reply: [{text: 'This goes ', chunk: whole}, {error: {code: provider_denied, message: 'secret detail of the provider'}}]
            - when: {lastUser: '^ask me'}
              reply: [{text: 'Let me ask. '}, {call: {name: ask, arguments: {question: 'Who are you?'}}}]
            - reply: 'You said: {{.LastUser}}'
        thinker:
          rules:
            - reply: [{reasoning: 'They said hello. I am friendly.', chunk: 1 word}, {text: 'Hello to you.', chunk: 1 word}]
        clerk:
          rules:
            - when: {output: true}
              reply: '{"urgent": true}'
            - reply: [{call: {name: __finish__, arguments: {urgent: true}}}]
tools:
  - name: ask
    description: Asks the user.
    client: true
    inputSchema: {type: object, properties: {question: {type: string}}, required: [question]}
  - name: locate
    description: Tells where the user is.
    client: true
    inputSchema: {type: object}
agents:
  - name: helper
    description: Helps.
    model: openai/fake
    tools: [note, ask, locate, {use: note_once, approval: always}, {use: calculate, approval: always}]
  - name: hasty
    description: Does not wait for long.
    model: openai/fake
    tools: [{use: ask, answerWithin: WITHIN}]
  - name: guest
    description: Has the tools of the page.
    model: openai/fake
    callerTools: {allow: ask}
    callerInstructions: true
  - {name: narrator, description: Tells stories., model: scripted/narrator, tools: [ask]}
  - {name: thinker, description: Thinks., model: scripted/thinker}
  - name: clerk
    description: Fills a form.
    model: scripted/clerk
    outputSchema: {type: object, properties: {urgent: {type: boolean}}, required: [urgent], additionalProperties: false}
`)
}

// world is a system with a predictable model.
type world struct {
	*harness.System
	brain *brain
}

func newWorld(t *testing.T) *world {
	t.Helper()
	harness.InstallNPM(t, ".")
	b := &brain{}
	b.provider = harness.StartProvider(t, b.say)
	s := harness.Start(t, harness.Options{Agents: agents(b.provider.URL), StateEnv: []string{harness.PatientState}, ExecutorEnv: []string{"FAKE_KEY=a-key"}})
	crier := s.Executor(t, "crier", harness.Program(t, "e2e/aisdk/testdata/crier"))
	crier.Start()
	s.WaitAgent(t, "crier")
	return &world{System: s, brain: b}
}

// client is a version of the npm package ai.
type client struct {
	Name  string
	Major int
	SDK   string // version in package.json
	Query string // query of the API's address
}

var clients = []client{
	{"ai 7.0.173", 7, "ai", "?aiSdk=7"},
	{"ai 6.0.326", 6, "ai6", "?aiSdk=6"},
	{"ai 5.0.277", 5, "ai5", "?aiSdk=5"},
}

// play lets a client play scenarios and returns the results by name.
func (w *world) play(t *testing.T, c client, scenarios []scenario) map[string]*played {
	t.Helper()
	for i := range scenarios {
		scenarios[i].Session = fmt.Sprintf("%s with ai %d", scenarios[i].Name, c.Major)
		scenarios[i].Steps = append(scenarios[i].Steps, do("replays"))
	}
	results := map[string]*played{}
	node(t, "play", map[string]any{
		"gateway": w.URL, "key": w.Key, "sdk": c.SDK, "query": c.Query, "together": players, "scenarios": scenarios,
	}, func(line []byte) {
		var told struct {
			Scenario string  `json:"scenario"`
			Result   *played `json:"result"`
		}
		if err := json.Unmarshal(line, &told); err != nil {
			t.Fatalf("play printed %q: %v", line, err)
		}
		told.Result.world, told.Result.client = w, c
		results[told.Scenario] = told.Result
	})
	return results
}

// node runs a command of run.mjs and passes on its output lines.
func node(t *testing.T, command string, options any, each func(line []byte)) {
	t.Helper()
	input, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), playLimit)
	defer cancel()
	run := exec.CommandContext(ctx, "node", "--no-warnings", "run.mjs", command, "-")
	run.Stdin, run.Stderr = bytes.NewReader(input), t.Output()
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatalf("start node: %v", err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			each(line)
		}
		if err != nil {
			break
		}
	}
	if err := run.Wait(); err != nil {
		t.Fatalf("node run.mjs %s: %v", command, err)
	}
}
