// Package agents reads agents from YAML. A file has these fields, and needs none but
// agents; examples/agents has files to begin with.
//
//	include: [tools.yaml, more/*.yaml, folder]   # further files, relative to this one
//	models:                                      # providers, by the name that agents use
//	  openai: {api: responses}                   # chat (when left out) or responses
//	  anthropic: {baseURL: https://proxy.example, apiKeyEnv: MY_KEY}
//	  local: {provider: openai, baseURL: "http://127.0.0.1:11434/v1", idleTimeout: 1m}
//	  scripted: {file: script.yaml}              # or script: | with the script itself
//	defaults: {model: openai/gpt-5-mini}         # for the agents of this file
//	tools: […]                                   # tools that agents name: see below
//	mcpServers: {…}                              # see below
//	agents:
//	  - name: clerk                              # the agent type
//	    description: Answers questions.
//	    model: openai/gpt-5-mini                 # provider/name
//	    fallbacks: [anthropic/claude-haiku-4-5]  # tried in their order
//	    systemPrompt: You are helpful.           # or {file: prompt.md}
//	    prompt: "You help {{state.name}}."       # instead: see below; or {file: …}
//	    tools: […]
//	    stateSchema: {type: object, …}           # JSON Schema, or {file: state.json}
//	    outputSchema: {type: object, …}          # the same
//	    completion: tool                         # or native: how the output is asked for
//	    strictOutput: true
//	    maxSteps: 10                             # or Infinity: no cap
//	    maxOutputTokens: 1000
//	    temperature: 0.7
//	    maxRetries: 3
//	    runTimeout: 10m
//	    cache: auto                              # or none
//	    providerOptions: {openai: {reasoning_effort: low}}
//	    context: {maxTokens: 100000, keepTokens: 50000, compaction: summary}   # or window
//	    stopWhen: [{tool: send}, {stateEquals: {done: true}}]   # any of them
//	    onBusy: reject                           # enqueue, interrupt or rollback
//
// A provider without settings is openai, anthropic or gemini with the key in its usual
// environment variable, which is not for other addresses: with a baseURL name one. Files that are read together share providers, tools and MCP servers;
// they may declare one twice when both say the same.
//
// # Prompts
//
// In a prompt {{state.key}} stands for a value of the custom state as it is when the step
// begins, and {{state.key.below}} for one within an object: a text as it is, nothing where
// there is none, anything else as JSON. There are no other placeholders, and what comes out
// of the state is not looked at again. Write \{{ for the braces themselves.
//
// # Tools
//
// Each tool of an agent is a name, of a built-in tool or of one under tools, or one of these:
//
//	tools:
//	  - calculate
//	  - use: note                     # the tool, with what is different about it
//	    approval: always
//	  - mcp: files                    # of an MCP server all tools, or those named
//	    tools: [read_file]
//	    timeout: 10s
//	  - name: ask_user                # a tool that is answered from outside
//	    description: Asks the user.
//	    client: true
//	    inputSchema: {type: object, …}
//	    answerWithin: 24h
//	  - name: forecast                # a tool that makes an HTTP request
//	    description: Tells the weather.
//	    inputSchema: {type: object, properties: {city: {type: string}, days: {type: integer}}}
//	    http:
//	      method: POST                # GET when left out
//	      url: https://api.example/v1/{city}
//	      query: {days: "{days}"}
//	      headers: {Authorization: "Bearer ${WEATHER_KEY}"}
//	      body: {where: "{city}"}     # or input: all arguments, or none
//	      success: [2xx]
//	      result: auto                # json or text
//	      maxBytes: 100000
//	    readOnly: true              # it changes nothing
//
// All of them take retry (never or safe), readOnly, timeout, answerWithin, strict, finishWith and
// approval; declarations outputSchema too. readOnly: true says that calls change nothing, so that
// they may be made again after a crash; false takes back what a server says of its tools. {name} stands for an argument, ${NAME} for an
// environment variable, one that files may name: see package httptool.
//
// # Approval
//
// approval is always, never, or says when: one condition of the list has to hold, and of a
// condition all operators.
//
//	approval:
//	  when:
//	    - {field: amount, greaterThan: 100}
//	    - {field: to.mail, matches: '@example\.com$', notEquals: me@example.com}
//	    - {state: mode, equals: careful}
//
// field is a value of the arguments, one that the input schema has; state one of the custom state. The operators are
// equals, notEquals, greaterThan, lessThan, matches (RE2) and exists (true or false). A
// value that is not there is not equal, not greater, not less and does not match. A value that
// is no number is both greater and less: somebody had better look at it.
//
// # MCP servers
//
//	mcpServers:
//	  files:                          # a child process
//	    command: npx                  # or the whole command as a list
//	    args: [-y, "@modelcontextprotocol/server-filesystem", /srv/docs]
//	    env: {TOKEN: "${FILES_TOKEN}"}
//	    dir: .                        # relative to this file
//	  search:                         # streamable HTTP
//	    url: https://mcp.example/mcp
//	    headers: {Authorization: "Bearer ${SEARCH_KEY}"}
//	    include: [search]             # the server's names; or exclude
//	    prefix: web_                  # before the names that agents know
//	    approve: [search]             # or ["*"]: these wait for a human
//	    safe: [search]                # or ["*"]: these may run again after a crash
//	    readOnly: [search]            # or ["*"]: these change nothing
//	    trustHints: true              # believe the server's readOnlyHint and idempotentHint (safe)
//	    timeout: 30s
//	    connectTimeout: 10s
//
// Servers are connected when the file is read: one that does not answer keeps the set from
// being used. Where nothing else is wrong, it is asked again from time to time.
//
// # What a file may do
//
// The commands of MCP servers, the hosts of HTTP tools, MCP servers and models, and the
// environment variables with secrets have to be on lists that the process has from elsewhere
// (Known). A baseURL needs no list on this machine and at the provider's own host. A provider
// without an apiKeyEnv has the key of its usual variable, but at a baseURL it has none.
//
// What a file may read is not on a list: file and include lead to every file that the process
// can read, and what they read can get into prompts. Serve files of people you trust, or let
// a process serve them that can read nothing else.
//
// # Mistakes
//
// All mistakes of all files are told at once, each with its file and line. Nothing of a set
// with a mistake is used.
package agents
