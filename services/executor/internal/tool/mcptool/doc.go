// Package mcptool makes tools of the tools of MCP servers (Model Context Protocol), which
// run as child processes or are reached over HTTP.
//
// A Server is one server with at most one session, which all calls share. Open connects and
// lists the tools, so that a server that does not work is noticed when agents are
// loaded. From then on a session that dies takes nothing with it but the calls in
// flight, which fail; the next call connects again. Calls wait for that as long as they may
// take, also for the end of the session before and for a second behind its begin. A call in
// flight is made again, in the next session, only where the server did not take it: nothing
// of it had reached the server, or the server answered over HTTP that it did not know the
// session. Any other call might take effect twice. Where connecting fails, later calls
// fail at once until a pause is over that grows from one second to half a minute. When the
// server says that its tools have changed they are listed again: Tools gives the
// new ones, Changed tells. Where that fails, the former ones stay.
//
//	Open ──► connected ──── session dies ───► idle ◄──────────────┐
//	            ▲                              │ call, pause is over │
//	            └────────── connected ◄── connecting ── fails ──────┘ pause grows
//	Close from anywhere: no new calls, those in flight are cut, the child has ended
//
// A child has the environment that the configuration gives, and PATH and HOME. Its
// standard error goes to the log. At the end its input is closed, then it is asked to
// terminate, then it is killed, with the processes that it has started.
//
// A session ends, too, when its server breaks the bounds of messages, does not read what it
// is sent, or answers neither some calls in a row nor a ping: else one child that hangs
// would hold every later call. Its calls in flight fail, and the next one finds a new child.
//
// A tool that cannot be used fails Open, since the configuration can be changed then. In later
// listings it is left out, so that it does not take the others with it.
//
// A server is not trusted: its messages and the calls in flight are bounded, its tools are
// listed again at most once a second, it may not ask for anything (no
// sampling, no elicitation, no roots), and what it says of its tools decides about
// retries only where the configuration says so.
package mcptool
