// Package pipe carries many unary calls over one long-lived gRPC stream. The headers and the set-up of a
// separate HTTP/2 stream cost more than the rest of most calls in a step.
//
//	callers ──▶ outbox ──▶ one writer ══ frames ══▶ reader ──▶ workers ──▶ handlers
//	   ▲                                                                     │
//	   └──────── reader ◀══ frames ══ one writer ◀── outbox ◀── answers ◀────┘
//
// # Frames
//
// When the writer is free, all waiting entries go into one frame, up to FrameBytes. There is no timer: an idle
// pipe sends at once. A frame is this protobuf message:
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
//	  uint64 timeout_us = 3;          // the caller's remaining time; 0 is no limit
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
// Frames are encoded by hand, so each goroutine writes its own entry once.
//
// # Calls
//
// A call has the deadline, the cancellation and the sampled trace of its context. The server uses the handlers
// and the boundary of unary calls. A call has no metadata, call options or span. The server checks the
// credentials that opened the pipe again for each call, and whether their role may call the method.
//
// # Flow control
//
// At most MaxCalls calls of a pipe are in flight. Further calls wait in their callers until their context ends.
// A cancelled call keeps its place until the server has answered it, so the server never has more than MaxCalls
// and always continues to read. A request above FrameBytes becomes a unary call, because it would delay all
// others.
//
// # The end of a pipe
//
// A broken pipe fails its calls with UNAVAILABLE, whether or not they were executed, like a broken connection
// with unary calls. Callers repeat idempotent calls by their epoch and number, and the next call opens the next
// pipe. A stopping server announces it in a frame, answers the received calls, and ends the pipe once its client
// has closed it. A server without pipes receives unary calls.
package pipe
