// Package anthropic is the door to Anthropic's messages, through the official SDK.
//
// The SDK builds requests and reads the event stream. What it would decide on
// its own is taken from it: it retries nothing, because the runtime does; it
// reads nothing from the environment and traces nothing, because the executor
// does; and answers that are not an event stream never reach it, because it
// reads them whole. A middleware of each call, the line, turns those into a
// model.Error.
//
// # Turns
//
// Messages takes turns: user and assistant alternate, and the results of an
// assistant's calls stand first in the user's next turn. The conversation of
// the runtime has a message for each result and may have several of one role in
// a row, so neighbours are merged into one turn, tool messages being the
// user's. Messages of the roles system and context stay where they are, as the
// user's: moving them into the system prompt would spoil the provider's cache.
//
// # Reasoning
//
// A thinking block of a turn that uses tools must be returned unchanged with
// its signature, and a redacted one as it came. The provider data of a
// reasoning part is this, as JSON:
//
//	{"type":"thinking","signature":"…"}          the text is the part's
//	{"type":"redacted_thinking","data":"…"}
//
// Reasoning without such data, unfinished or another provider's, is not sent.
//
// The API refuses to think where a call is required, and in a turn whose earlier
// part did not begin with a thought. Where the options ask for thinking, such a
// request is made without.
//
// # What is asked for
//
// An Output becomes the native output format, which is always constrained, Strict or
// not. It takes only schemas whose objects forbid further properties and whose
// values have no bounds; one that does not is sent closed and without its bounds. A
// strict tool is sent as such where its schema fits, as a plain one elsewhere. What
// the API refuses of a format or a choice is provider_unsupported.
//
// The cache is told to keep the tools, the system prompt and the conversation so
// far, with three of its four breakpoints. A cap that only the options have counts
// before the default.
//
// # When a reply is whole
//
// A reply is whole when its stop_reason came and all its blocks ended; it ends
// at message_stop, or at the end of the body. A body that ends before was cut off.
package anthropic
