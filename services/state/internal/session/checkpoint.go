package session

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

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
