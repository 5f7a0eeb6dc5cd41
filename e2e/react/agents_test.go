package react_test

import (
	"fmt"
	"strings"
)

const (
	storyWords = 150
	// wordDelay makes the story last fifteen seconds, long enough to act in the middle on a busy machine.
	wordDelay = "100ms"
)

// story is a text of different words, so a lost, repeated or swapped word shows.
func story() string {
	words := make([]string, storyWords)
	for i := range words {
		words[i] = fmt.Sprintf("word%03d", i)
	}
	return strings.Join(words, " ")
}

// agents returns the agents file of these tests. The page runs locate and survey; note needs approval.
func agents() string {
	return strings.NewReplacer("STORY", story(), "DELAY", wordDelay).Replace(`
models:
  scripted:
    script: |
      models:
        demo:
          rules:
            - when: {lastUser: '^tell me a slow story$'}
              reply: [{text: 'STORY', chunk: 1 word, delay: 300ms}]
            - when: {lastUser: '^tell me a story$'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]

            - when: {toolResult: calculate, lastUser: '^work it out$'}
              reply: 'That makes {{field .LastResult "value"}}.'
            - when: {lastUser: '^work it out$'}
              reply:
                - reasoning: 'A sum.'
                - text: 'Let me see. '
                - call: {name: calculate, arguments: {expression: '6 * 7'}}

            - when: {toolFailed: locate, lastUser: '^where'}
              reply: 'Then I do not know.'
            - when: {toolResult: locate, lastUser: 'and a story'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]
            - when: {toolResult: survey}
              reply: 'It is a nice place, {{field .LastResult "city"}}.'
            - when: {toolResult: locate, lastUser: 'and how is it'}
              reply: [{call: {name: survey, arguments: {hold: true}}}]
            - when: {toolResult: locate, lastUser: '^where'}
              reply: 'You are in {{field .LastResult "city"}}.'
            - when: {lastUser: '^where .*hold'}
              reply: [{call: {name: locate, arguments: {hold: true}}}]
            - when: {lastUser: '^where .*if I like'}
              reply: [{call: {name: locate, arguments: {fail: true}}}]
            - when: {lastUser: '^where am I and where is home'}
              reply: [{calls: [{name: locate, arguments: {of: me}}, {name: survey, arguments: {of: home, hold: true}}]}]
            - when: {lastUser: '^where'}
              reply:
                - text: 'Let me look. '
                - call: {name: locate, arguments: {}}

            - when: {toolFailed: note, lastUser: '^write'}
              reply: 'It stays unwritten.'
            - when: {toolResult: note, lastUser: 'and tell me a story'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]
            - when: {toolResult: note, lastUser: '^write'}
              reply: 'It is done.'
            - when: {lastUser: '^write both '}
              reply: [{calls: [{name: note, arguments: {text: left}}, {name: note, arguments: {text: right}}]}]
            - when: {lastUser: '^write where I am'}
              reply:
                - calls:
                    - {name: locate, arguments: {}}
                    - {name: note, arguments: {text: place}}
                    - {name: calculate, arguments: {expression: '6 * 7'}}
            - when: {lastUser: '^write (?P<what>\S+)'}
              reply:
                - text: 'May I? '
                - call: {name: note, arguments: {text: '{{.Group.what}}'}}

            - reply: 'You said: {{join .Users ", "}}'
        boss:
          rules:
            - when: {toolResult: subagent__manager}
              reply: 'The manager says: {{field .LastResult}}'
            - reply: [{call: {name: subagent__manager, arguments: {message: '{{.LastUser}}'}}}]
        manager:
          rules:
            - when: {toolResult: subagent__clerk}
              reply: 'The clerk says: {{field .LastResult}}'
            - reply: [{call: {name: subagent__clerk, arguments: {message: '{{.LastUser}}'}}}]
        clerk:
          rules:
            - when: {toolFailed: note}
              reply: 'It stays unwritten.'
            - when: {toolResult: note}
              reply: 'It is done.'
            - when: {toolResult: wait}
              reply: [{call: {name: note, arguments: {text: '{{.LastUser}}'}}}]
            - reply: [{call: {name: wait, arguments: {ms: 5000}}}]
agents:
  - {name: boss, model: scripted/boss, tools: [{subAgent: manager, description: Has things written.}]}
  - {name: manager, model: scripted/manager, tools: [{subAgent: clerk, description: Writes.}]}
  - {name: clerk, model: scripted/clerk, tools: [wait, {use: note, approval: always}]}
  - name: demo
    description: Does what it is told.
    model: scripted/demo
    maxSteps: 6
    tools:
      - calculate
      - {use: note, approval: always}
      - name: locate
        description: Finds out where the user is.
        client: true
        inputSchema: {type: object, properties: {hold: {type: boolean}, fail: {type: boolean}, of: {type: string}}}
      - name: survey
        description: Finds out how it is there.
        client: true
        inputSchema: {type: object, properties: {hold: {type: boolean}, of: {type: string}}}
`)
}
