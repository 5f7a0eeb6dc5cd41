// Package openai is the door to OpenAI's chat completions and to every server
// that speaks them (vLLM, Ollama, OpenRouter, …), through the official SDK.
//
// The SDK builds requests and reads the event stream. What it would decide on
// its own is taken from it: it retries nothing, because the runtime does; it
// reads nothing from the environment; and answers that are not an event stream
// never reach it, because it reads them whole and forgets what it cannot parse.
// A middleware of each call, the line, turns those into a model.Error.
//
// # When a reply is whole
//
// A reply is whole when its finish_reason came. Calls end there, since their
// fragments may interleave until then. What follows is the usage, which comes
// in a chunk of its own, if at all, and [DONE], which some servers never send;
// so the reply ends at the first of: usage after the finish_reason, [DONE], the
// end of the body. A body that ends before the finish_reason was cut off,
// however cleanly it ends.
//
// # What is not sent
//
// Chat completions take no reasoning back, so reasoning parts stay out of
// requests; so do files that an assistant message holds.
package openai
