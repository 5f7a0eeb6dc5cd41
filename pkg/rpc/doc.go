// Package rpc is how services meet: a network, a server, a client, and the one
// place where errors and codes are translated into each other.
//
//	handler ── error ──▶ StatusError ── status + ErrorInfo ──▶ FaultError ──▶ *fault.Fault
//	           │
//	           └─ not a fault: logged here, and only "internal error" travels
//
// # Errors
//
// A *fault.Fault crosses the wire whole: its kind, reason, detail and metadata
// are the same on the other side, over unary calls and streams, over gRPC and
// Connect, over one hop or several. The code follows from the kind (Code,
// HTTPStatus); where two kinds share a code, the kind travels beside it.
//
// An ended context becomes CANCELLED or DEADLINE_EXCEEDED. A gRPC status or
// Connect error that a handler returns keeps its code and loses its text.
// Everything else, a panic too, becomes INTERNAL with a fixed text, and is
// logged with the call's context where it happened.
//
// On the client, a failed call returns an error in which errors.As finds a
// *fault.Fault, with two exceptions: io.EOF at the end of a stream stays as it is,
// and when the caller's own context has ended, the error is that context's.
// Errors that gRPC itself makes (nobody listens, the connection broke, a
// message is too large) are faults as well; their detail is a fixed text, safe
// to pass on, and the transport's own words are in the error that wraps it.
//
// # Networks
//
// Services that share a process call each other's handlers over NewProcess, others
// meet on TCP. NewMemory has connections without a machine's network: tests use it
// to have everything that a connection has. Nothing else differs: the same server and
// client code runs on all of them.
//
// # Pipes
//
// The calls that a client names in ClientConfig.Piped share one long-lived stream for each
// connection, whose frames hold whatever waits: see internal/pipe. Every Server takes them. All other
// calls, and those to a server that knows no pipes, are ordinary ones.
//
// # Traces
//
// A trace goes through every call. Calls have spans of their own where the process
// records spans, that is unless its tracer provider is the one that does nothing.
// Calls over a pipe and within a process have none: what is worth a span there is a step.
//
// # The end of a server
//
// Serve ends always. Calls in flight get a grace, streams that are open for
// ever are then cut, and a handler that ignores its ended context is reported
// rather than waited for. Pipes end on their own: the server asks their clients for it.
package rpc
