// Package gemini calls streamGenerateContent of Google's Gemini API.
//
// The types of its wire are in wire.go; package providerhttp makes the call.
//
// # Turns
//
// A conversation has two roles, user and model. System and context messages keep their place as the user's.
// Results of calls form a turn of their own, because the API counts the parts of the turn after a call. A result
// is {"output": …}, or {"error": "…", "output": …} for a failed call.
//
// # Thoughts
//
// Thoughts become reasoning parts. They need the options {"generationConfig": {"thinkingConfig":
// {"includeThoughts": true}}}; models without thinking refuse these. Some models sign parts of a reply (a call,
// a text, a thought) and require each signature back on its part. A signature is stored as the provider data of
// a reasoning part without text, directly before the signed part:
//
//	{"signature":"…","of":"call"}
//	{"signature":"…","of":"text","bytes":12}    the first 12 bytes of the text
//	{"signature":"…","of":"thought"}            the reasoning part itself
//
// Beside it is its origin, the server and the model. Thoughts without a signature are not sent, nor is the reasoning or a signature of
// another provider or model. A call of another model or of
// an interrupted reply has no signature. Gemini 3 and later refuse such calls, so they are sent with the
// placeholder signature that the API defines.
//
// # Not supported
//
// Strict has no equivalent: required calls and an Output are constrained anyway. Caching is automatic.
//
// # End of a reply
//
// A reply is complete once its finishReason has arrived, or once the prompt was blocked. A blocked prompt gives
// an empty reply with content-filter. The reply ends at the usage, with or after the finishReason, or at the end
// of the body. The API has no finish reason for calls, so a reply with calls and the reason STOP ends with
// tool-calls. A malformed call (MALFORMED_FUNCTION_CALL) gives provider_invalid_response, which is retryable.
package gemini
