// Package server implements the gRPC services of the state service. It checks that
// requests are well-formed (check*.go), converts them to commands of package session
// and converts the results to responses (convert*.go). Each gRPC service has a type of its own.
//
//	request ──check──▶ convert ──▶ command ──runner──▶ store.Update ──▶ scheduler.Notify ──▶ response
//
// # How commands run
//
// Most commands see one session. A command that changes its session's status also has
// consequences for the family: the parent learns of it, and continues if it waits for nothing
// else; the children of a session that fails or is deleted end with it. Only the rows tell
// which sessions these are. So the runner first runs such a command on its own session. If it
// needs others, it gives session.Wider, and the runner runs it again on all of them. The
// second try decides on fresh rows, and assumes nothing from the first.
//
//	Update(s) ──▶ Wider{parent} ──▶ Update(s, parent) ──▶ Wider{grandparent} ──▶ … ──▶ written, all or nothing
//
// A plan, a result, and a step that does not end its run never need a second try.
//
// Requests are encoded and decoded outside the transaction. The exception is
// session.Bodies: commands that compare stored messages learn only from the locked rows
// which ones.
//
// Package scheduler receives the changes of each command, and hands out the work.
package server
