// Package chatws serves the chat (package chat) over a WebSocket, as the AI SDK's
// WebSocketChatTransport speaks it: one socket carries many requests, each of which is a
// POST /chat (send) or a GET /chat/{id}/stream (resume).
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
// The client takes end, no-active and error for final. So end is sent for a message that
// is whole, and error for a request that was refused, which is before its start: nothing
// has come of it. A message that was begun and cannot be finished has neither: the socket
// is closed, which the client takes for a drop, for all requests on it, and after a drop
// it resumes. No close of ours has the code 1000.
//
// # Who writes
//
//	listen     one a socket; reads frames, and refuses those that are wrong
//	serve      one a request in flight, Sockets.Requests at most; tells its message
//	keepAlive  one a socket; pings
//
// Each writes by itself, a message at a time, and waits for the one before it; nothing
// else is queued. Whoever waits for a client longer than Sockets.Timeout ends the socket.
// A client that takes its messages, but too slowly, holds up those that tell, and they are
// cut by their feed, as every reader is that lags behind; nobody else waits for it.
package chatws
