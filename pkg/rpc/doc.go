// Package rpc connects services: networks, servers, clients, and the translation between errors and codes.
//
//	handler ── error ──▶ StatusError ── status + ErrorInfo ──▶ FaultError ──▶ *fault.Fault
//	           │
//	           └─ not a fault: logged here, and only "internal error" travels
//
// # Errors
//
// A *fault.Fault crosses the wire whole. Its kind, reason, detail and metadata are the same on the other side,
// over unary calls and streams, over gRPC and Connect, over any number of hops. The code follows from the kind
// (Code, HTTPStatus); for kinds with a shared code, the kind travels beside it.
//
// An ended context becomes CANCELLED or DEADLINE_EXCEEDED. A gRPC status or Connect error from a handler keeps
// its code and loses its text. Everything else, including a panic, becomes INTERNAL with a fixed text and is
// logged with the call's context.
//
// On the client, the error of a failed call holds a *fault.Fault, with two exceptions: io.EOF at the end of a
// stream stays, and if the caller's own context has ended, the error is the context's. gRPC's own errors (no
// listener, a broken connection, a message above the limit) are faults as well. Their detail is a fixed text,
// safe to forward; the wrapping error holds the transport's text.
//
// # Networks
//
// Services in one process call each other's handlers over NewProcess. Others use TCP. NewMemory provides
// connections without the machine's network, for tests that need real connections. The same server and client
// code runs on all networks.
//
// # Roles
//
// A caller has the role that its token and its certificate name (see Security), and may call the methods whose contract
// names the role (see MethodRoles). Other calls are Denied (ROLE_REFUSED). The role is checked before each handler, also
// for calls over a pipe, and handlers get it from RoleOf. Callers within the process may call everything.
//
// # Pipes
//
// Calls of the methods in ClientConfig.Piped share one long-lived stream per connection, whose frames hold all
// waiting calls: see internal/pipe. Every Server accepts them. Other calls, and calls to a server without pipes,
// are ordinary calls.
//
// # Traces
//
// Every call propagates the trace. Calls have spans if the process records spans, that is, unless its tracer
// provider is the no-op one. Calls over a pipe and within a process have no spans; the step around them has one.
//
// # Shutdown
//
// Serve always ends. Calls in flight get a grace period. Then open streams are cut. A handler that ignores its
// ended context is reported, not awaited. The server asks its clients to close their pipes.
package rpc
