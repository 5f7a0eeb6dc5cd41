// Package chatws serves the chat (package chat) over a WebSocket, in the protocol of the AI SDK's
// WebSocketChatTransport. One socket carries many requests. Each is a POST /chat (send) or a GET
// /chat/{id}/stream (resume).
//
//	client                                  gateway
//	send    requestId, id, messages, … ──▶
//	                                   ◀──  start  requestId
//	                                   ◀──  chunk  requestId, sequence 0, 1, 2 …, chunk
//	                                   ◀──  end    requestId
//	resume  requestId, id              ──▶  the same, or no-active
//	abort   requestId                  ──▶  nothing more of that request; the run goes on
//
// # How a request ends
//
// The client takes end, no-active and error for final. end is sent after a whole message, and error
// for a refused request, before its start. If a message cannot be finished, neither is sent: the
// socket is closed. The client takes that for a drop of all its requests, and resumes them. The
// server never closes with code 1000.
//
// # Goroutines
//
//	listen     one per socket; reads frames and refuses invalid ones
//	serve      one per request in flight, at most Sockets.Requests; writes its message
//	keepAlive  one per socket; pings
//
// Each goroutine writes its own messages, one at a time; nothing else is queued. A write that takes
// longer than Sockets.Timeout ends the socket. A client that reads too slowly delays its own
// deliveries. They fall behind and are cut like any slow reader; other clients are not delayed.
package chatws
