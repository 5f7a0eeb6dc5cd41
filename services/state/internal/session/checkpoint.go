package session

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Checkpoint is the record of a committed step: the conversation and the custom state after
// it, and the answer of its commit.
type Checkpoint struct {
	ID           string
	RunID        string
	Step         int32
	Epoch        int64
	Version      int64 // of the session after the step
	MessageCount int64
	Status       Status
	StateVersion int64 // of the custom state, shared by steps that do not change it
	StateBase    int64 // as in Session
	Warnings     []string
	CreatedAt    Millis

	// Record is opaque: the step as readers saw it, beside its messages. Only StoredStep
	// returns it.
	Record []byte
}

// StoredStep is a committed step for readers. A branch does not have the steps of its source.
type StoredStep struct {
	Checkpoint           // including Record
	Follows    int32     // the stored step before; 0 for none
	BeginsRun  bool      // it is the first stored step of its run
	Messages   []Message // of the run and the step, in order
}

// CheckpointID returns the id of a step's checkpoint, in the form of the specification
// (§2.1). random is six hexadecimal digits.
func CheckpointID(sessionID string, step int32, now Millis, random string) string {
	return fmt.Sprintf("cpv1-%s-s%d-t%d-%s", sessionID, step, now, random)
}

// CheckpointSteps returns the first and last step that the checkpoint may belong to: one
// step for an id made by CheckpointID, any step for another id.
func CheckpointSteps(id string) (first, last int32) {
	const digits = "0123456789"
	rest, ok := strings.CutPrefix(id, "cpv1-")
	at := strings.LastIndexByte(rest, '-')
	if !ok || at < 0 {
		return 0, math.MaxInt32
	}
	rest = strings.TrimRight(rest[:at], digits) // the time
	rest, ok = strings.CutSuffix(rest, "-t")
	name := strings.TrimRight(rest, digits)
	step, err := strconv.ParseInt(rest[len(name):], 10, 32)
	if !ok || err != nil || !strings.HasSuffix(name, "-s") {
		return 0, math.MaxInt32
	}
	return int32(step), int32(step)
}
