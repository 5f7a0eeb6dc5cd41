// Package openai calls OpenAI's APIs through the official SDK: chat completions, which many compatible servers
// offer (vLLM, Ollama, OpenRouter, …), and responses, which carries reasoning from step to step.
//
// The SDK builds requests and reads the event stream. It does not retry, because the runtime does, and it does
// not read the environment. The SDK would read a response that is not an event stream whole and drop whatever it
// cannot parse, so a middleware (providerhttp.Call) turns such responses into a model.Error first.
//
// # End of a reply
//
// A chat completion is complete once its finish_reason has arrived. Fragments of calls may interleave until
// then, so calls end there. Usage may follow in a separate chunk, then [DONE], but some servers never send it.
// The reply therefore ends at the first of: usage after the finish_reason, [DONE], the end of the body. A body
// that ends before the finish_reason was truncated.
//
// A response is complete with response.completed or response.incomplete, which include the usage.
// response.failed and error are failures.
//
// # Reasoning
//
// Chat completions accept no reasoning and no files in assistant messages, so neither is sent.
//
// The API stores no responses. A reasoning item includes its encrypted content. The whole item, unchanged, is
// the provider data of its reasoning part, and is sent back before the text or call that follows it. Items
// without encrypted content, items at the end of a message, and reasoning of other providers are not sent.
// Readable summaries need the options {"reasoning": {"summary": "auto"}}.
//
// # Files
//
// Images are sent as a URL or embedded. Text files become text of the message, because every model reads text.
// Other files are embedded; responses also accepts their URL.
//
// # Requests
//
// Strict is sent only for schemas that constrained decoding accepts: every object forbids additional properties
// and requires all its properties, and no unsupported keyword occurs. If a model does not support a tool choice
// or an output format, the error is provider_unsupported. Caching is automatic.
package openai
