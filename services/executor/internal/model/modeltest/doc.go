// Package modeltest is the suite that every model passes whole.
//
// A harness gives it a model that makes one of the logical replies below, each
// in the way of its provider: a script, or recorded wire traffic that a Server
// replays. The suite checks what comes out, and that each sequence of events
// keeps the contract of model.Model: see Listen.
//
// A model that speaks HTTP passes more: RunWire has it hear the same replies
// however the stream is cut and written, and everything that goes wrong on a wire,
// most of it made from the recordings; RunSilence is about time.
package modeltest
