package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Checks return the first fault of a request; nil for a valid one. Checks with a configured
// limit are methods of Limits.

// invalid returns Invalid with a reason and the advice in the text.
func invalid(reason, format string, args ...any) error {
	return fault.New(fault.Invalid, reason, format, args...)
}

// tooLarge returns TooLarge with a reason, the size and the limit in bytes.
func tooLarge(reason, what string, size, limit int) error {
	return fault.New(fault.TooLarge, reason, "%s has %d bytes; the limit is %d", what, size, limit).WithSizes(int64(size), int64(limit))
}

const (
	maxIDBytes         = 256             // by the contract
	maxCheckpointBytes = maxIDBytes + 64 // a checkpoint's id contains the session's
)

// idProblem describes the fault of an id; "" for a valid one.
func idProblem(id string) string {
	switch {
	case id == "":
		return "is missing"
	case len(id) > maxIDBytes:
		return "is longer than 256 bytes"
	case !utf8.ValidString(id):
		return "is not UTF-8"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "has control characters"
	}
	return ""
}

// checkID gives Invalid (ID_INVALID).
func checkID(field, id string) error {
	if p := idProblem(id); p != "" {
		return invalid("ID_INVALID", "%s %s; an id has 1 to 256 bytes of UTF-8 without control characters", field, p)
	}
	return nil
}

// checkOptionalID is checkID for an optional id: empty is valid.
func checkOptionalID(field, id string) error {
	if id == "" {
		return nil
	}
	return checkID(field, id)
}

func checkCheckpointID(id string) error {
	if id == "" || len(id) > maxCheckpointBytes || strings.ContainsFunc(id, unicode.IsControl) {
		return invalid("ID_INVALID", "checkpoint_id is empty, longer than %d bytes, or has control characters", maxCheckpointBytes)
	}
	return nil
}

func checkOptionalCheckpointID(id string) error {
	if id == "" {
		return nil
	}
	return checkCheckpointID(id)
}

func checkKey(tenant, sessionID string) (session.Key, error) {
	return session.Key{Tenant: tenant, SessionID: sessionID}, cmp.Or(checkID("tenant", tenant), checkID("session_id", sessionID))
}

func checkRef(r *statev1.RunRef) (session.ClaimRef, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	return session.ClaimRef{Key: key, RunID: r.GetRunId(), Epoch: r.GetEpoch()}, cmp.Or(err, checkID("run_id", r.GetRunId()))
}

// checkHeld gives Invalid (EXECUTOR_INVALID, ID_INVALID).
func checkHeld(runIDs []string) error {
	const limit = 100_000
	if len(runIDs) > limit {
		return invalid("EXECUTOR_INVALID", "an executor cannot hold %d runs; the limit is %d", len(runIDs), limit)
	}
	return checkIDs("a held run id", runIDs)
}

func checkIDs(field string, ids []string) error {
	for _, id := range ids {
		if err := checkID(field, id); err != nil {
			return err
		}
	}
	return nil
}

// checkRange gives Invalid with the reason unless n is 0 to highest. advice names the valid
// values.
func checkRange[N int32 | int64](reason, field string, n, highest N, advice string) error {
	if n < 0 || n > highest {
		return invalid(reason, "%s is %d; %s", field, n, advice)
	}
	return nil
}

// pageLimit returns the limit of a page: 1 to 200, 50 for 0. Invalid (LIMIT_INVALID).
func pageLimit(limit int32) (int, error) {
	const highest, byDefault = 200, 50
	err := checkRange("LIMIT_INVALID", "limit", limit, highest, "give 1 to 200, or 0 for 50")
	return int(cmp.Or(limit, byDefault)), err
}

func checkOffset(offset int32) error {
	return checkRange("LIMIT_INVALID", "offset", offset, math.MaxInt32, "the first one is 0")
}

// checkTimeout gives Invalid (TIMEOUT_INVALID).
func checkTimeout(ms int64) error {
	const longest = 30 * 24 * time.Hour
	return checkRange("TIMEOUT_INVALID", "timeout_ms", ms, longest.Milliseconds(), "give at highest 2592000000, 30 days, or 0 for none")
}

// splitPage splits a page from rows. One row beyond the limit means more follow.
func splitPage[R any](rows []R, limit int) (page []R, more bool) {
	return rows[:min(limit, len(rows))], len(rows) > limit
}

// textProblem describes the fault of a text for people; "" for a valid one.
func (l Limits) textProblem(text string) string {
	switch {
	case len(text) > l.ErrorBytes:
		return fmt.Sprintf("has %d bytes; the limit is %d", len(text), l.ErrorBytes)
	case strings.ContainsRune(text, 0):
		return "has a zero character, which a database does not store"
	}
	return ""
}

func isJSON(text string) bool { return json.Valid([]byte(text)) }

// isJSONOrEmpty is isJSON for optional fields.
func isJSONOrEmpty(text string) bool { return text == "" || isJSON(text) }

// beginsWith reports whether the first character of a JSON text is c.
func beginsWith(text string, c byte) bool {
	trimmed := strings.TrimLeft(text, " \t\r\n")
	return trimmed != "" && trimmed[0] == c
}
