// Package gemini is the door to Google's Gemini API: streamGenerateContent, in the
// words of the official SDK.
//
// Of the SDK (google.golang.org/genai) the vocabulary is used: declarations,
// configuration, finish reasons, usage. Its client is not. It reads the
// environment, writes to the process's log, takes a comment in a stream for an
// error, reads events of a quarter of a gigabyte, and has no place for the line,
// which measures silence and classifies refusals. The call itself is one POST.
//
// # Turns
//
// The two speakers are user and model. Messages of the roles system and context
// stay where they are, as the user's. The results of calls are a turn of their
// own, because the API counts the parts of the turn behind one that calls. A
// result is {"output": …}, of a failed call {"error": "…", "output": …}.
//
// # Thoughts
//
// Thoughts are reasoning; they come only where they were asked for, by the options
// {"generationConfig": {"thinkingConfig": {"includeThoughts": true}}}, which models
// that do not think refuse. Some models sign parts of a reply and insist on
// seeing the signature again at the same part: a call, a text, a thought. A
// signature is kept as the provider data of a reasoning part of its own, without a
// text, which stands before the part that was signed:
//
//	{"signature":"…","of":"call"}
//	{"signature":"…","of":"text","bytes":12}    the first 12 bytes of the text
//	{"signature":"…","of":"thought"}            the reasoning part itself
//
// Thoughts without a signature are not sent, nor is another provider's reasoning.
// A call that another model made, or whose reply was interrupted, has no
// signature; to the models that refuse that (Gemini 3 and later) it goes with the
// word that the API has for the case.
//
// # What is left out
//
// Strict has no equivalent: a call that is required has constrained arguments
// anyway, and so has an Output. Caching needs not be asked for.
//
// # When a reply is whole
//
// A reply is whole when its finishReason came, or the prompt was found to be
// blocked, which is a reply of nothing that ends with content-filter. It ends at
// the usage, which comes beside or behind the reason, or at the end of the body.
// The API has no reason for calls, so a reply that calls and stops ends with
// tool-calls. A call that the model did not manage to write down
// (MALFORMED_FUNCTION_CALL) is an answer that cannot be read: provider_invalid_response,
// worth another attempt.
package gemini
