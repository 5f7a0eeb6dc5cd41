// Package openai is the door to OpenAI, through the official SDK: to chat
// completions, which many servers speak (vLLM, Ollama, OpenRouter, …), and to
// responses, which carries reasoning from step to step.
//
// The SDK builds requests and reads the event stream. What it would decide on
// its own is taken from it: it retries nothing, because the runtime does; it
// reads nothing from the environment; and answers that are not an event stream
// never reach it, because it reads them whole and forgets what it cannot parse.
// A middleware of each call, the line, turns those into a model.Error.
//
// # When a reply is whole
//
// A chat completion is whole when its finish_reason came. Calls end there, since
// their fragments may interleave until then. What follows is the usage, which comes
// in a chunk of its own, if at all, and [DONE], which some servers never send;
// so the reply ends at the first of: usage after the finish_reason, [DONE], the
// end of the body. A body that ends before the finish_reason was cut off,
// however cleanly it ends.
//
// A response is whole with response.completed or response.incomplete, which hold
// the usage. response.failed and error are failures.
//
// # Reasoning
//
// Chat completions take no reasoning back, so reasoning parts stay out of
// requests; so do files that an assistant message holds.
//
// Responses are made without being stored. An item of reasoning comes with its
// encrypted content, and is, whole and unchanged, the provider data of its
// reasoning part, with which it goes back to its place before the text or the call
// that it led to. Items without encrypted content, items that nothing follows, and
// the reasoning of other providers stay out. A text for people to read comes where
// the options ask for it: {"reasoning": {"summary": "auto"}}.
//
// # Files
//
// Images go by their address or embedded. Text files are put into the message as
// text, which every model reads. Other files are embedded; responses take their
// address, too.
//
// # What is asked for
//
// Strict holds where a schema is one that constrained decoding takes: each object
// forbids further properties and requires all that it has, and no keyword is used
// that is refused there. It is left out elsewhere. What a model refuses of a choice or an output is
// provider_unsupported. Caching needs not be asked for.
package openai
