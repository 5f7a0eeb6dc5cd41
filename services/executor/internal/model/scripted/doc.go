// Package scripted is a model that says what a YAML script tells it to say: for
// tests, demos and benchmarks. The same script and the same conversation give
// the same reply, in any process and after any restart, because a reply is
// chosen by what the conversation looks like and by nothing else.
//
//	models:
//	  demo:                              # the model "demo"
//	    chunk: 1 word                    # how texts are cut; "8 runes", "whole"
//	    delay: 20ms                      # between two chunks
//	    rules:
//	      - when: {toolResult: weather}  # its result just came
//	        reply: 'It is {{field .LastResult "sky"}} there.'
//	      - when: {lastUser: '(?i)weather in (?P<city>\w+)'}
//	        reply:
//	          - reasoning: They want the weather.
//	          - text: Let me look.
//	          - call: {name: weather, arguments: {city: '{{.Group.city}}'}}
//	      - reply: 'You said: {{join .Users ", "}}'   # no "when": the rest
//
// # Rules
//
// The rules of a model are tried in their order and the first that matches
// replies. A rule matches when every condition in its "when" holds:
//
//	lastUser: REGEX      the text of the last user message
//	lastRole: user|tool|assistant
//	toolResult: NAME     a result of this tool came after the last reply, failed or not
//	toolFailed: NAME     a failed one did: its rule belongs before that of toolResult
//	hasResult: NAME      a result of this tool is anywhere in the conversation
//	offers: NAME         this tool may be called
//	forced: true|false   a tool must be called (the choice "required"), or need not
//	output: true|false   the reply is to be JSON, or need not
//	userTurns: N         the conversation has N user messages
//	step: N              the Nth call of the model after the last user message
//	system: REGEX        the system prompt
//	attempts: N          see below
//
// Messages of the roles system and context are not looked at. A rule without
// "when" always matches and must be the last. Where no rule matches, the model
// fails with provider_invalid_request.
//
// The one exception to statelessness is "attempts: N", for trying out retries:
// the rule matches the first N times that this Model value meets this very
// conversation, and is passed over from then on. The count lives in memory; a
// new process begins at zero, and of very many conversations the oldest are
// forgotten.
//
// # Replies
//
// A reply is a text, or a list of parts that are said in their order:
//
//   - text: TEMPLATE              options: chunk, delay, repeat
//   - reasoning: TEMPLATE         options: chunk, delay, repeat, providerData
//   - call: {name, id, arguments} options: chunk, delay
//   - calls: [{…}, {…}]           parallel calls whose arguments interleave
//   - wait: 2s
//   - usage: {prompt, completion, reasoning, cached, total}
//   - finish: stop|length|tool-calls|content-filter|error|other
//   - error: {code, message, retryable, status, retryAfter, after}
//
// Several call parts are parallel calls, too; they stream one after the other.
// "arguments" is a mapping whose texts are templates, or a template that is
// sent as it is, so that it may be broken JSON. Calls without an id get one
// that tells them apart from the calls of other replies to the conversation:
// call_<number of the reply>_<number in the reply>. Without usage, words are
// counted as tokens; without finish, the reason is tool-calls where there are
// calls and stop elsewhere.
//
// The reply of a rule is said whatever the request asked for: a script that is to
// obey a forced call, or to give JSON, has rules for that, and one that is to
// disobey has none.
//
// An error ends the reply where it stands; with "after: N" it comes as soon as N
// chunks of the reply are out, wherever it stands. Its code is
// provider_unavailable when empty, and whether it is retryable follows from the
// code unless said. Its retryAfter is what a provider's Retry-After would be.
//
// Waiting costs a timer and no goroutine of its own: in a testing/synctest bubble
// the clock moves on at once, and a call that waits keeps a few kilobytes.
//
// # Templates
//
// Templates are those of text/template over
//
//	.LastUser   text of the last user message
//	.Users      texts of all user messages
//	.UserCount  their number
//	.Results    the latest result of each tool as JSON text, by name
//	.LastResult the latest result of all
//	.System     the system prompt
//	.Match      what lastUser matched: the whole and its groups
//	.Group      its named groups
//
// with the functions join (LIST SEPARATOR), json (VALUE) and field (JSON KEY…),
// which takes a value out of a JSON text. A failed call's result is
// {"error": "…"} where it has no other.
package scripted
