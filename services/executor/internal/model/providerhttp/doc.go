// Package providerhttp makes one streamed call to a model provider: it sends the request, classifies responses other than event streams,
// and reads the events. All wires use it, so framing and time limits are the same for all providers.
//
// # Framing
//
// Events are read as the standard of HTML says (server-sent events): lines end with CR LF, LF or CR, a byte order mark may begin the
// stream, comments and unknown fields are ignored, and several data lines form one event. In two places the reader takes more: an event
// without an empty line behind it counts if its data is complete, because some servers close the stream at once, and an error that a server
// writes as plain JSON into the stream is found.
//
// # Time limits
//
// Time counts only while a reader waits for bytes, so a slow consumer is never mistaken for a silent server.
//
//   - idle: so long may pass without a byte, also before the response.
//   - keepAlives times idle: so long may bytes arrive that complete no event: comments, pings, or a byte now and then.
//   - ctx: the limit of the complete call, whatever arrives.
package providerhttp
