// Package mcptool provides the tools of MCP servers (Model Context Protocol), which run as child processes or
// are reached over HTTP.
//
// A Server is one server with at most one session, shared by all calls. Open connects and lists the tools. A server that
// cannot be reached then is tried again, and has no tools before. When a session dies, only the calls in flight fail,
// and the next call connects again. Calls wait for the connection within their own time limit, including the end
// of the previous session and at least a second since its start. A call in flight is repeated in the next
// session only if the server did not accept it: no byte of it reached the server, or the server answered over
// HTTP that it did not know the session, with 404, 410, 400 and a text about the session, or a JSON-RPC error about it
// (then once: it may be the tool's own). Any other call might take effect twice: it fails, unless its tool is Repeating.
// After a failed connection,
// calls fail at once until a pause ends, which grows from one second to half a minute. The server is tried again at its
// end, with or without a call. When the server reports
// changed tools, they are listed again: Tools returns the new ones, and Changed signals it. If the listing
// fails, the former tools stay.
//
//	Open ──► connected ──── session dies ───► idle ◄──────────────┐
//	            ▲                              │ call, pause is over │
//	            └────────── connected ◄── connecting ── fails ──────┘ pause grows
//	Close from anywhere: no new calls, those in flight are canceled, the child has ended
//
// A child has the configured environment, and PATH and HOME. Its standard error goes to the log. At the end its
// input is closed, then it receives a termination signal, then it is killed, together with the processes that it
// started.
//
// A session also ends if its server exceeds the limits on messages, does not read its input, or leaves several
// calls in a row and a ping unanswered. Otherwise one hanging child would block every later call. Its calls in
// flight fail, and the next call starts another child.
//
// An unusable tool is left out and is one of the Problems, so it does not affect the other tools. What is odd about a
// tool or a result is repaired before the library decodes it, since the library would refuse the whole message. A server that lacks a
// tool which the configuration excludes or lets a human approve counts as not reached at first: the tool may have
// another name.
//
// A server is not trusted. Its messages and the calls in flight are limited, its tools are listed at most once
// per second, and it may not send requests (no sampling, no elicitation, no roots). Its hints about tools affect
// retries only if the configuration says so.
package mcptool
