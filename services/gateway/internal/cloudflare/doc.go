// Package cloudflare serves the clients of Cloudflare Agents unmodified: AgentClient, useAgent and
// agentFetch of the npm package agents, and useAgentChat of @cloudflare/ai-chat.
//
// # Instances
//
// The path /agents/{agent}/{name} names an instance of an agent. An instance is one session, whose
// id is made of the agent and the name (sessionID), so every other interface reaches it as well.
// The session is created by the first write: opening a page writes nothing.
//
// # Goroutines
//
//	instance  one per instance with sockets on this gateway; reads the session when it may have changed
//	listen    one per socket; reads frames
//	deliver   one per turn in delivery, at most Sockets.Requests per socket
//	work      one per socket; handles frames in their order, and shows the client what has changed
//
// Each frame of a client is handled before the next one, so a client's writes are committed in its
// order. One frame is read ahead. The client is then blocked by the flow control of its connection. The
// files of a message are stored while its frame arrives (upload).
//
// # State
//
// The custom state of the session is the state of the instance. A client replaces the whole state.
// The last committed write wins, also over a run of the agent: a run writes single keys, each
// merged into the newest state.
//
//	client ── cf_agent_state ──▶ SaveState ──▶ instance reads ──▶ cf_agent_state to the others
//
// The instance reads the session after a write of its own sockets, after a hint of the live log, and
// at least every Sockets.Poll. A reading replaces the one before it, so clients receive states in the
// order of their commits, and may miss states between two readings. A client does not receive its own
// write back, unless another state was under way to it when it wrote: its copy would then differ
// from the stored state for ever. The answer to a ping says what the client has received.
//
// # Turns
//
// A turn is the delivery of one message. It uses the exchanges of package chat, so that frames have the
// parts of POST /chat. Each socket reads its turns by itself, at its own pace; the live log is read once
// for all. The frames of a turn have the same id for all clients: the request key of its run.
//
//	own           after the client's message; if that had files, the conversation follows with references
//	observed      a reading has a live run that no turn of this socket delivers
//	replayed      the client has taken an offer (cf_agent_stream_resuming): the message from its start
//	continuation  the client has answered an approval of the message, and takes the offer of the next run. After
//	              answers of tools it is a replay
//
// A message during a turn waits for its end, unless the message or the agent has another policy.
//
// Outside of turns, a reading that shows other messages than the client has (view) makes the gateway
// send the conversation. Readings that began before the end of a turn are passed over: they may be
// without its message, and the end of a turn is a reason to read the session.
//
// # Methods
//
// A call (rpc) goes to an executor that serves the agent, and is in no order with other frames. The
// executor reads and writes the state through the state service; a write is a reason to read the
// session. The call ends with the socket.
package cloudflare
