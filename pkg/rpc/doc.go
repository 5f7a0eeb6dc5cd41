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
// Services that share a process talk over NewMemory, others over TCP. Nothing
// else differs: the same server and client code runs on both, interceptors,
// credentials and codecs included.
//
// # The end of a server
//
// Serve ends always. Calls in flight get a grace, streams that are open for
// ever are then cut, and a handler that ignores its ended context is reported
// rather than waited for.
package rpc
