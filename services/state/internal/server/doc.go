// Package server implements the gRPC services of the state service, one type each. A reader turns a request into a
// command of package session in one walk, the runner runs it, and the results become a response (convert*.go).
//
//	request ──reader──▶ session.Command ──runner──▶ store.Update ──▶ scheduler.Notify ──▶ response
//
// Whoever reads a value also checks it. The reader keeps the first fault, so a method reads its whole request and then
// looks at the fault once.
//
// # How commands run
//
// session.Command.Apply decides on locked rows, by an ordered list of rules. Most commands see one session. A change of
// a session's status also affects its family: the parent is notified, and continues if it waits for nothing else; the
// children of a failed or deleted session end with it. Only the rows name the affected sessions. So the runner runs a
// command on its own session first. If the command needs others, it gives session.IncompleteViewError, and the runner
// repeats it on all of them. Each try decides on fresh rows, and assumes nothing from the one before.
//
//	Update(s) ──▶ parent is missing ──▶ Update(s, parent) ──▶ … ──▶ written, all or nothing
//
// A plan, a result, and a step within a run need one try.
//
// Requests are encoded and decoded outside the transaction. session.BodyFuncs is the
// exception: the messages to compare are known from the locked rows only.
//
// Package scheduler receives the changes of each command, and hands out the work.
package server
