package faults_test

import (
	"fmt"
	"strings"
	"time"
)

// The pace of the teller: a step of a tale lasts stepTime, in which every
// session writes a chunk each chunkEvery.
const (
	chunkEvery    = 400 * time.Millisecond
	chunkWords    = 3
	chunksPerStep = 10
	stepWords     = chunksPerStep * chunkWords
	stepTime      = chunksPerStep * chunkEvery
)

const agentType = "teller"

// tale is an answer of several steps, with the call of a tool between two of
// them, so that steps are committed while it is told. No other session has its
// name.
func tale(name string, steps int) turn {
	var b strings.Builder
	for step := 1; step <= steps; step++ {
		for word := range stepWords {
			fmt.Fprintf(&b, "%s.%d.%02d ", name, step, word)
		}
	}
	return turn{"tell " + name, b.String()}
}

// greeting is a short answer.
func greeting(name string) turn { return turn{"greet " + name, "Hello, " + name + ". "} }

// agents is the agents file: a teller of tales of as many steps.
func agents(steps int) string {
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
	for step := 1; step <= steps; step++ {
		fmt.Fprintf(&b, `            - when: {lastUser: '^tell (?P<name>\S+)$', step: %d}
              reply:
                - text: '{{range $word := %d}}{{$.Group.name}}.%d.{{printf "%%02d" $word}} {{end}}'
`, step, stepWords, step)
		if step < steps {
			b.WriteString("                - {call: {name: calculate, arguments: {expression: '1 + 1'}}, chunk: whole}\n")
		}
	}
	fmt.Fprintf(&b, `            - reply: 'I only tell tales.'
agents:
  - {name: %s, description: Tells tales., model: scripted/teller, tools: [calculate], maxSteps: %d}
`, agentType, steps+1)
	return b.String()
}
