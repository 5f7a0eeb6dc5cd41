// Package endpoint calls agent endpoints: HTTP handlers of applications that describe agents, and run their tools and
// callbacks. docs/endpoint.md is the specification of the wire.
//
//	Client.Describe ── GET ──▶ the description, which package agents reads like a file
//	Client.Tool, Client.Agent  the functions of an agent.Agent for the callbacks of a description
//	       └─ run ── attempt ── POST ──▶ lines ──▶ the agent.Host of the call, and the result
//
// # An unfinished call
//
// Each attempt is one request. What became of it decides about the next one:
//
//	unsent    no connection, or 429 or 503: repeated with a growing delay, as long as the call lives
//	cut       no last line: repeated for a minute if the call may run twice
//	anything  the result or the failure of the call
//
// A request counts as sent when its headers were written to a connection. net/http repeats a POST by itself only if nothing of
// it was written.
//
// A repeated attempt begins with the custom state before the first one, so the writes of a cut attempt do not count. Events
// and usage of it do, as after a crash of the executor.
//
// # Bounds
//
// An endpoint is not trusted to end. A line, all lines of an answer, the time between two lines, the headers and the body of
// an error are limited. So are the calls in progress, the time of each attempt, and, by agent.Host, the events and writes.
// Redirects are not followed.
package endpoint
