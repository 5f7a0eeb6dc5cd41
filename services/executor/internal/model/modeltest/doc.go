// Package modeltest is the conformance suite of model.Model.
//
// A harness provides a model for each scenario: from a script, or from a provider's recorded responses, replayed
// by a Server. The suite checks the replies and the contract of each event sequence: see Collect.
//
// Models that use HTTP must pass more. RunHTTP repeats the suite with differently encoded streams and adds
// faults of the connection, most of them made from the recordings. RunIdleTimeout checks timeouts. RunMutations changes the recordings in
// every way that the protocol and the standard of event streams allow, and demands the same reply.
package modeltest
