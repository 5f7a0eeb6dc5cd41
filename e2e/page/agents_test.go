package page_test

import (
	"fmt"
	"strings"
)

const (
	storyWords = 150
	// wordDelay makes the story last six seconds, long enough to act in the middle on a busy machine.
	wordDelay = "40ms"
	// markup would run and change the title if a page inserted it as HTML.
	markup = `<img src=x onerror="document.title='run'"><b>bold</b> &amp; <script>document.title='run'</script>`
)

// story is a text of different words, so a lost, repeated or swapped word shows.
func story() string {
	words := make([]string, storyWords)
	for i := range words {
		words[i] = fmt.Sprintf("word%03d", i)
	}
	return strings.Join(words, " ")
}

// agents returns the agents file of these tests.
func agents() string {
	return strings.NewReplacer("STORY", story(), "DELAY", wordDelay, "MARKUP", strings.ReplaceAll(markup, "'", "''"),
		"LONG", strings.Repeat("long", 60)).Replace(`
models:
  scripted:
    script: |
      models:
        demo:
          rules:
            - when: {toolFailed: calculate}
              reply: 'That is no sum.'
            - when: {toolResult: calculate, lastUser: 'story'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]
            - when: {toolResult: calculate}
              reply: 'That makes {{field .LastResult "value"}}.'
            - when: {lastUser: '(?P<sum>\d+ \* \d+)'}
              reply:
                - text: 'Let me work that out.'
                - call: {name: calculate, arguments: {expression: '{{.Group.sum}}'}}
            - when: {lastUser: '^Tell me a story$'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]
            - when: {lastUser: '^markup'}
              reply:
                - text: 'MARKUP'
                - call: {name: calculate, arguments: {expression: '<b>1</b>'}}
            - when: {toolFailed: note, lastUser: '^write'}
              reply: 'It stays unwritten.'
            - when: {toolResult: note, lastUser: '^write'}
              reply: 'It is written.'
            - when: {lastUser: '^write both$'}
              reply: [{calls: [{name: note, arguments: {text: left}}, {name: note, arguments: {text: right}}]}]
            - when: {lastUser: '^write'}
              reply: [{call: {name: note, arguments: {text: it}}}]
            - when: {toolResult: ask_user, lastUser: 'ask me'}
              reply: 'You answered {{.LastResult}}.'
            - when: {lastUser: 'ask me'}
              reply:
                - text: 'A question.'
                - call: {name: ask_user, arguments: {question: 'Where are you?'}}
            - when: {lastUser: '^long'}
              reply:
                - text: 'LONG'
                - call: {name: calculate, arguments: {expression: 'LONG', LONG: '1'}}
            - reply: 'You said: {{join .Users " · "}}'
        boss:
          rules:
            - when: {toolResult: subagent__clerk}
              reply: 'The clerk says: {{join .NewResults " · "}}'
            - when: {lastUser: '^write both$'}
              reply: [{calls: [{name: subagent__clerk, arguments: {message: left}}, {name: subagent__clerk, arguments: {message: right}}]}]
            - when: {toolResult: subagent__scout}
              reply: 'The scout says: {{.LastResult}}'
            - when: {lastUser: '^ask'}
              reply: [{call: {name: subagent__scout, arguments: {message: go}}}]
            - reply: [{call: {name: subagent__clerk, arguments: {message: '{{.LastUser}}'}}}]
        clerk:
          rules:
            - when: {toolFailed: note}
              reply: 'It stays unwritten.'
            - when: {toolResult: note}
              reply: 'It is written.'
            - reply: [{call: {name: note, arguments: {text: '{{.LastUser}}'}}}]
        scout:
          rules:
            - when: {toolResult: ask_user}
              reply: 'They are in {{.LastResult}}.'
            - reply: [{call: {name: ask_user, arguments: {question: 'Where are you?'}}}]
agents:
  - name: boss
    description: Lets others do the work.
    model: scripted/boss
    tools: [{subAgent: clerk, description: Writes.}, {subAgent: scout, description: Looks.}]
  - {name: clerk, model: scripted/clerk, tools: [{use: note, approval: always}]}
  - name: scout
    model: scripted/scout
    tools:
      - name: ask_user
        description: Asks the user.
        client: true
        inputSchema: {type: object, properties: {question: {type: string}}}
  - name: demo
    description: Does sums, tells a story and repeats what you say.
    model: scripted/demo
    tools:
      - calculate
      - {use: note, approval: always}
      - name: ask_user
        description: Asks the user.
        client: true
        inputSchema: {type: object, properties: {question: {type: string}}}
    maxSteps: 5
`)
}
