package session

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// CheckpointID names the checkpoint of a step in the form of the specification (§2.1);
// random are six hexadecimal digits.
func CheckpointID(sessionID string, step int32, now Millis, random string) string {
	return fmt.Sprintf("cpv1-%s-s%d-t%d-%s", sessionID, step, now, random)
}

// CheckpointSteps returns the steps that the checkpoint of an id may belong to, the last
// one included: one step for an id of CheckpointID, and any for another.
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
