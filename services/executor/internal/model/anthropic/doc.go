// Package anthropic calls Anthropic's Messages API. The types of its wire are in wire.go; package providerhttp makes the call.
//
// # Turns
//
// In the Messages API, user and assistant turns alternate, and the results of an assistant's calls come first in
// the next user turn. The runtime's conversation has one message for each result and may have several messages
// of one role in a row. The package therefore merges neighbours into one turn and counts tool messages as the
// user's. System and context messages keep their place as the user's: moving them into the system prompt would
// invalidate the provider's cache.
//
// # Reasoning
//
// In a turn with tool calls, thinking blocks must be sent back unchanged with their signature, and redacted
// blocks as received. The provider data of a reasoning part is JSON:
//
//	{"type":"thinking","signature":"…"}          the text is in the part
//	{"type":"redacted_thinking","data":"…"}
//
// The data also names its origin, the server and the model: a model refuses the signature of every other one, so its blocks are sent to
// the model that made them. Data of older versions has no origin and is sent. Reasoning without such data is not sent. It is unfinished
// or comes from another provider.
//
// The API refuses thinking if a call is required, or if the current turn began without a thinking block. If the
// options enable thinking, such a request disables it.
//
// # Requests
//
// An Output becomes the native output format. It is always constrained, Strict or not. The format accepts only
// schemas with closed objects and without bounds on values; other schemas are sent closed and without their
// bounds. A strict tool is sent as strict if its schema qualifies, otherwise as a plain tool. If the API refuses
// the format or the tool choice, the error is provider_unsupported.
//
// Cache breakpoints follow the tools, the system prompt and the conversation: three of the four that the API
// allows. If only the options set max_tokens, their value replaces the default.
//
// # End of a reply
//
// A reply is complete once its stop_reason has arrived and all its blocks have ended. It ends at message_stop or
// at the end of the body. A body that ends earlier was truncated.
package anthropic
