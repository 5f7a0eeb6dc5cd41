// Package openai calls OpenAI's APIs: chat completions, which many compatible servers offer (vLLM, Ollama, OpenRouter, …), and
// responses, which carries reasoning from step to step. The types of their wires are in wire.go and chat_reply.go; package providerhttp
// makes the call.
//
// # Compatible servers
//
// A chat completion follows the profile of its server: see package profile. If the server refuses a request and its words teach a more
// careful profile, the call is made again in the new form, and the model keeps the profile for its later calls. What a server refused
// is never sent again unchanged: each lesson changes the body, and is learned once. It is logged once, with the fields of a profile that
// begins with it. A refused file is found by its location in the request: see model.Locations.
//
// # End of a reply
//
// A chat completion is complete once its finish_reason has arrived. Fragments of calls may interleave until
// then, so calls end there. Usage may follow in a separate chunk, then [DONE], but some servers never send it.
// The reply therefore ends at the first of: usage after the finish_reason, [DONE], the end of the body. A body
// that ends before the finish_reason was truncated. Some servers send [DONE] and no finish_reason: that is an end
// if there is content and all arguments are complete.
//
// # Calls
//
// Servers differ in how they stream calls: without ids or indexes, with one index for all, with an id of its own for each fragment, with
// the name behind the id. chatAssembler.findCall has the rules.
//
// # Reasoning in the text
//
// A server that does not separate reasoning leaves it between <think> and </think> at the beginning of the text. If the profile says so,
// it becomes reasoning of the reply, wherever chunks split the tags. Tags behind the first text stay text: the model may write about them.
// thinkSplitter holds back only what may be a part of a tag.
//
// # Responses
//
// A response is complete with response.completed or response.incomplete, which include the usage.
// response.failed and error are failures.
//
// # Reasoning
//
// Provider data names its origin, the server and the model. In chat completions, plain reasoning goes back to the server that sent it, in
// the member that it arrived in, for the messages that the profile says. The extra_content of calls and reasoning_details go back
// unchanged, to the same model. They follow the calls as a reasoning part without text:
//
//	{"chat":{"host":"…","model":"…"},"field":"reasoning_content"}     the text is in the part
//	{"chat":{…},"calls":{"0":{…}},"details":[…]}                      of the complete message
//
// The API stores no responses. A reasoning item includes its encrypted content. The complete item, unchanged, is
// the provider data of its reasoning part, beside its origin, and is sent back to its server before the text or call that follows it.
// Items without encrypted content, items at the end of a message, and reasoning of other servers are not sent.
// Readable summaries need the options {"reasoning": {"summary": "auto"}}.
//
// # Files
//
// Images are sent as a URL or embedded. Text files become text of the message, because every model reads text.
// Other files are embedded; responses also accepts their URL. The profile says which files a server takes.
//
// # Requests
//
// Strict is sent only for schemas that constrained decoding accepts: every object forbids additional properties
// and requires all its properties, and no unsupported keyword occurs. If a model does not support a tool choice
// or an output format, the error is provider_unsupported. Caching is automatic.
package openai
