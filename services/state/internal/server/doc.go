// Package server implements the gRPC services of the state service, one type each. It
// checks requests (check*.go), converts them to commands of package session, and converts
// the results to responses (convert*.go).
//
//	request ──check──▶ convert ──▶ command ──runner──▶ store.Update ──▶ scheduler.Notify ──▶ response
//
// # How commands run
//
// Most commands see one session. A change of a session's status also affects its family:
// the parent is notified, and continues if it waits for nothing else; the children of a failed or
// deleted session end with it. Only the rows name the affected sessions. So the runner
// runs such a command on its own session first. If the command needs others, it gives
// session.IncompleteViewError, and the runner repeats it on all of them. Each try decides on fresh rows,
// and assumes nothing from the one before.
//
//	Update(s) ──▶ Wider{parent} ──▶ Update(s, parent) ──▶ Wider{grandparent} ──▶ … ──▶ written, all or nothing
//
// A plan, a result, and a step within a run need one try.
//
// Requests are encoded and decoded outside the transaction. session.BodyFuncs is the
// exception: the messages to compare are known from the locked rows only.
//
// Package scheduler receives the changes of each command, and hands out the work.
package server
