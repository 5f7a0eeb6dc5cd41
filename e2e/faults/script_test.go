package faults_test

import (
	"fmt"
	"strings"
	"time"
)

// The teller's pace: a session writes a chunk every chunkEvery. A step has shortStep chunks, or longStep chunks
// where it must outlast an outage of the log.
const (
	chunkEvery = 400 * time.Millisecond
	chunkWords = 3
	shortStep  = 10
	longStep   = 30
)

const agentType = "teller"

// script defines the number of steps in a tale, and of chunks in a step.
type script struct{ steps, chunks int }

// lasting returns a script of tales with at least this duration.
func lasting(least time.Duration, chunks int) script {
	return script{steps: int(least/(chunkEvery*time.Duration(chunks))) + 1, chunks: chunks}
}

// tale is an answer of several steps with tool calls between them, so steps are committed in the middle. The
// name is unique to the session.
func (s script) tale(name string) turn {
	var b strings.Builder
	for step := 1; step <= s.steps; step++ {
		for word := range s.chunks * chunkWords {
			fmt.Fprintf(&b, "%s.%d.%02d ", name, step, word)
		}
	}
	return turn{"tell " + name, b.String()}
}

// greeting is a short answer.
func greeting(name string) turn { return turn{"greet " + name, "Hello, " + name + ". "} }

// agents returns the agents file: a teller of such tales.
func (s script) agents() string {
	var b strings.Builder
	fmt.Fprintf(&b, `
models:
  scripted:
    script: |
      models:
        teller:
          chunk: %d words
          delay: %v
          rules:
            - when: {lastUser: '^greet (?P<name>\S+)$'}
              reply: 'Hello, {{.Group.name}}. '
`, chunkWords, chunkEvery)
	for step := 1; step <= s.steps; step++ {
		fmt.Fprintf(&b, `            - when: {lastUser: '^tell (?P<name>\S+)$', step: %d}
              reply:
                - text: '{{range $word := %d}}{{$.Group.name}}.%d.{{printf "%%02d" $word}} {{end}}'
`, step, s.chunks*chunkWords, step)
		if step < s.steps {
			b.WriteString("                - {call: {name: calculate, arguments: {expression: '1 + 1'}}, chunk: whole}\n")
		}
	}
	fmt.Fprintf(&b, `            - reply: 'I only tell tales.'
agents:
  - {name: %s, description: Tells tales., model: scripted/teller, tools: [calculate], maxSteps: %d}
`, agentType, s.steps+1)
	return b.String()
}
