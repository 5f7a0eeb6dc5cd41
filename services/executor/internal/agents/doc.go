// Package agents reads agents from YAML files. examples/agents has files to start from.
//
// All fields but agents are optional:
//
//	include: [tools.yaml, more/*.yaml, folder]   # further files, relative to this one
//	models:                                      # providers, by the name in the agents
//	  openai: {api: responses}                   # chat (default) or responses
//	  anthropic: {baseURL: https://proxy.example, apiKeyEnv: MY_KEY}
//	  local: {provider: openai, baseURL: "http://127.0.0.1:11434/v1", idleTimeout: 1m}
//	  scripted: {file: script.yaml}              # or script: | with the script itself
//	defaults: {model: openai/gpt-5-mini}         # for the agents of this file
//	tools: […]                                   # tools for agents, by name: see below
//	mcpServers: {…}                              # see below
//	agents:
//	  - name: clerk                              # the agent type
//	    description: Answers questions.
//	    model: openai/gpt-5-mini                 # provider/name
//	    fallbacks: [anthropic/claude-haiku-4-5]  # tried in this order
//	    systemPrompt: You are helpful.           # or {file: prompt.md}
//	    prompt: "You help {{state.name}}."       # instead: see below; or {file: …}
//	    tools: […]
//	    stateSchema: {type: object, …}           # JSON Schema, or {file: state.json}; every write must fit
//	    outputSchema: {type: object, …}          # the same
//	    completion: tool                         # or native
//	    strictOutput: true
//	    maxSteps: 10                             # or Infinity: no limit
//	    remote:                                  # instead of a model, prompt and tools: see agent.Remote
//	      url: https://agents.example.com        # the gateway of another Holdfast
//	      agent: clerk                           # there
//	      apiKeyEnv: OTHER_KEY
//	    companions:                              # agents to consult: see agent.Companion
//	      - agent: critic
//	        description: Criticizes a draft.
//	        mode: blocking                       # or non-blocking
//	        timeout: 10m                         # of one consultation; default: no limit
//	    maxCompanions: 16                        # of a session
//	    maxSubAgents: 16                         # calls of sub-agents in one step
//	    maxDepth: 3                              # of the sub-agents in their tree
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
// A provider without settings is openai, anthropic or gemini, with the key in its usual environment
// variable. With a baseURL the key needs an apiKeyEnv: the usual key is never sent to another address.
// The files of a set share their providers, tools and MCP servers. Two files may declare the same one
// if the declarations are equal.
//
// # Prompts
//
// In a prompt {{state.key}} is replaced by a value of the custom state at the start of the step, and
// {{state.key.below}} by a value in an object: a string as it is, nothing for a missing value, any
// other value as JSON. There are no other placeholders, and replaced text is not expanded again.
// Write \{{ for literal braces.
//
// # Tools
//
// A tool of an agent is the name of a built-in tool or of a tool under tools, or one of these objects:
//
//	tools:
//	  - calculate
//	  - use: note                     # a tool by name, with other settings
//	    approval: always
//	  - mcp: files                    # all tools of an MCP server, or the listed ones
//	    tools: [read_file]
//	    timeout: 10s
//	  - subAgent: reader              # another agent answers the calls, in a session of its own
//	    description: Reads a page.
//	    inputSchema: {type: object, …}  # default: message, a string
//	    outputSchema: {type: object, …}
//	    timeout: 1h                   # default: no limit; also strict and finishWith
//	  - name: ask_user                # a tool for a client to answer
//	    description: Asks the user.
//	    client: true
//	    inputSchema: {type: object, …}
//	    answerWithin: 24h
//	  - name: forecast                # a tool with an HTTP request
//	    description: Tells the weather.
//	    inputSchema: {type: object, properties: {city: {type: string}, days: {type: integer}}}
//	    http:
//	      method: POST                # default GET
//	      url: https://api.example/v1/{city}
//	      query: {days: "{days}"}
//	      headers: {Authorization: "Bearer ${WEATHER_KEY}"}
//	      body: {where: "{city}"}     # or input for all arguments, or none
//	      success: [2xx]
//	      result: auto                # json or text
//	      maxBytes: 100000
//	      showErrors: true            # users see the responses of failed requests; default: the status
//	    readOnly: true                # it changes nothing
//	    setState:                     # a successful call writes these keys of the custom state
//	      asked: true                 # a constant
//	      place: {argument: city}     # a value of the arguments, as a.b
//	      forecast: {result: summary} # a value of the result; "" is all of it
//
// setState is for built-in and HTTP tools, also with use. A missing value is not written, a null deletes its key, and
// a list is not looked into. The keys must be in the stateSchema, if the agent has one with properties, and the values
// must fit it: else the call fails, although the tool has run. stopWhen, prompts and approval see the new state.
//
// Every other tool may have retry (never or safe), readOnly, timeout, answerWithin, strict, finishWith and
// approval; a declared tool may have outputSchema too. readOnly: true declares that calls change
// nothing, so they may run again after a crash; readOnly: false overrides the hint of an MCP server.
// {name} is an argument, ${NAME} an environment variable on the list of allowed ones: see package
// httptool.
//
// # Approval
//
// approval is always, never, or a list of conditions. A call needs approval if any condition holds. A
// condition holds if all of its operators do.
//
//	approval:
//	  when:
//	    - {field: amount, greaterThan: 100}
//	    - {field: to.mail, matches: '@example\.com$', notEquals: me@example.com}
//	    - {state: mode, equals: careful}
//
// field is a value in the arguments, and must be in the input schema; state is a value in the custom
// state. The operators are equals, notEquals, greaterThan, lessThan, matches (RE2) and exists (true or
// false). For a missing value only notEquals and exists: false hold. greaterThan and lessThan hold for
// any value that is not a number, and equals for any number with more than 400 characters, so that a
// human sees the call. Shorter numbers are compared exactly. A call with members that the input schema
// does not list beside a field is refused, and where the schema allows others, a call with a name that
// differs from the field's only in case needs approval.
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
//	    include: [search]             # names on the server; or exclude
//	    prefix: web_                  # before the names for agents
//	    approve: [search]             # or ["*"]: calls need approval
//	    safe: [search]                # or ["*"]: calls may run again after a crash
//	    readOnly: [search]            # or ["*"]: calls change nothing
//	    trustHints: true              # believe the server's readOnlyHint and idempotentHint (safe)
//	    timeout: 30s
//	    connectTimeout: 10s
//
// Load connects the servers. The set cannot be used while a server does not answer; if nothing else is
// wrong, the caller tries again later.
//
// # Security
//
// Three lists outside of the files (Known) restrict them: the commands of MCP servers, the hosts of
// HTTP tools, MCP servers and models, and the environment variables with secrets. A baseURL on this
// machine or at the provider's own host needs no list.
//
// No list restricts reading: file and include can read every file that the process can read, and its
// text can get into prompts. Load only files from people you trust, or in a process that can read
// nothing else.
//
// # Mistakes
//
// Load reports all mistakes of all files together, each with file, line and column. A set with a
// mistake is not used.
package agents
