// Package pipe carries many unary calls over one long-lived gRPC stream. A unary
// call of its own costs the headers and the set-up of an HTTP/2 stream on both
// sides, which is more than most calls of a step need for everything else.
//
//	callers ──▶ outbox ──▶ one writer ══ frames ══▶ reader ──▶ workers ──▶ handlers
//	   ▲                                                                     │
//	   └──────── reader ◀══ frames ══ one writer ◀── outbox ◀── answers ◀────┘
//
// # Frames
//
// Whatever waits when the writer is free goes into one frame, up to FrameBytes.
// There is no timer: an idle pipe sends at once. A frame is this protobuf message:
//
//	message Frame {
//	  repeated Call calls = 1;        // client to server
//	  repeated Answer answers = 2;    // server to client
//	  repeated uint64 cancelled = 3;  // client to server: numbers of calls
//	  bool ending = 4;                // server to client: open another pipe
//	}
//	message Call {
//	  uint64 number = 1;              // unique within the pipe
//	  uint64 method = 2;              // index into the methods of the stream's metadata
//	  uint64 timeout_us = 3;          // time that the caller still has; 0 is no limit
//	  string traceparent = 4;         // of a sampled trace only
//	  string tracestate = 5;
//	  bytes payload = 6;
//	}
//	message Answer {
//	  uint64 number = 1;
//	  bytes payload = 2;
//	  bytes status = 3;               // google.rpc.Status; absent is success
//	}
//
// It is encoded by hand, so that an entry is written once, by the goroutine that has it.
//
// # What a call has
//
// A call has the deadline, the cancellation and the sampled trace of its context, and the
// server's handlers and boundary are those of unary calls. It has neither metadata nor
// call options nor a span of its own: the token is checked when the pipe is opened.
//
// # Flow control
//
// At most MaxCalls calls of a pipe are in flight. Those beyond wait in their
// callers, each as long as its own context allows. A call that its caller has given up keeps its place
// until the server has answered it, so the server never has more than MaxCalls
// and always reads on. A request above FrameBytes is a unary call of its own: it
// would hold up all others.
//
// # The end of a pipe
//
// A pipe that breaks fails its calls with UNAVAILABLE, whether or not they have been
// done, as a broken connection does with unary calls. Callers send idempotent
// calls again, by their epoch and number, and the next call opens the next pipe. A server that stops says so
// in a frame, answers what it has received, and ends the pipe once its client has
// closed it. A server that knows no pipes gets unary calls.
package pipe
