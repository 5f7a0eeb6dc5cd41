// Package scripted is a model for tests, demos and benchmarks. Its replies come from a YAML script and depend
// only on the conversation, so the same script and conversation give the same reply in any process and after any
// restart.
//
//	models:
//	  demo:                              # the model "demo"
//	    chunk: 1 word                    # size of text chunks; "8 runes", "whole"
//	    delay: 20ms                      # between two chunks
//	    rules:
//	      - when: {toolResult: weather}  # its result just arrived
//	        reply: 'It is {{field .LastResult "sky"}} there.'
//	      - when: {lastUser: '(?i)weather in (?P<city>\w+)'}
//	        reply:
//	          - reasoning: They want the weather.
//	          - text: Let me look.
//	          - call: {name: weather, arguments: {city: '{{.Group.city}}'}}
//	      - reply: 'You said: {{join .Users ", "}}'   # no "when": the default
//
// # Rules
//
// The first rule that matches gives the reply. A rule matches if every condition in its "when" holds:
//
//	lastUser: REGEX      the text of the last user message
//	lastRole: user|tool|assistant
//	toolResult: NAME     a result of this tool arrived after the last reply, failed or not
//	toolFailed: NAME     a failed result did; put this rule before its toolResult
//	hasResult: NAME      the conversation contains a result of this tool
//	offers: NAME         this tool may be called
//	forced: true|false   the tool choice is "required", or is not
//	output: true|false   the request has an Output, or has none
//	userTurns: N         the conversation has N user messages
//	step: N              the Nth call of the model after the last user message
//	system: REGEX        the system prompt
//	attempts: N          see below
//
// System and context messages are ignored. A rule without "when" always matches and must be the last. Without a
// matching rule the model fails with provider_invalid_request.
//
// Only "attempts: N", for testing retries, depends on more than the conversation: the rule matches the first N
// times that this Model value receives the same conversation. The counts are in memory and start at zero in a
// new process. Beyond 4096 conversations the oldest counts are dropped.
//
// # Replies
//
// A reply is a text, or a list of parts in order:
//
//   - text: TEMPLATE              options: chunk, delay, repeat
//   - reasoning: TEMPLATE         options: chunk, delay, repeat, providerData
//   - call: {name, id, arguments} options: chunk, delay
//   - calls: [{…}, {…}]           parallel calls with interleaved arguments
//   - wait: 2s
//   - usage: {prompt, completion, reasoning, cached, total}
//   - finish: stop|length|tool-calls|content-filter|error|other
//   - error: {code, message, retryable, status, retryAfter, after}
//
// Several call parts are parallel calls as well, streamed one after the other. "arguments" is a mapping with
// templates as its texts, or one template for the whole text, which may render to invalid JSON. Calls without an
// id get a unique one in the conversation: call_<number of the reply>_<number in the reply>. Without
// usage, words count as tokens. Without finish, the reason is tool-calls after calls, otherwise stop.
//
// Replies ignore the request's tool choice and output: a script that should honour them needs rules for that.
//
// An error ends the reply at its position. With "after: N" it ends the reply after N chunks, or at the end of a
// shorter reply. The default code is provider_unavailable, and "retryable" follows from the code by default.
// "retryAfter" plays the role of a provider's Retry-After.
//
// A wait costs a timer, a few kilobytes and no extra goroutine. In a testing/synctest bubble the clock advances
// at once.
//
// # Templates
//
// Templates use text/template with this data:
//
//	.LastUser   text of the last user message
//	.Users      texts of all user messages
//	.UserCount  their number
//	.Results    the latest result of each tool as JSON text, by name
//	.LastResult the latest result
//	.NewResults the results after the last reply, in the order of their calls
//	.System     the system prompt
//	.Match      the match of lastUser and its groups
//	.Group      the named groups of the match
//
// and the functions join (LIST SEPARATOR), json (VALUE) and field (JSON KEY…), which reads a value from a JSON
// text. The result of a failed call without a result is {"error": "…"}.
package scripted
