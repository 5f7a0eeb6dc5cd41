package server

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxIDBytes is the longest id, by the contract.
const maxIDBytes = 256

// problem says what is wrong with an id, "" when nothing is.
func problem(id string) string {
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
	if p := problem(id); p != "" {
		return fault.New(fault.Invalid, "ID_INVALID", "%s %s; an id has 1 to 256 bytes of UTF-8 without control characters", field, p)
	}
	return nil
}

func checkOptionalID(field, id string) error {
	if id == "" {
		return nil
	}
	return checkID(field, id)
}

func checkKey(tenant, sessionID string) (session.Key, error) {
	if err := checkID("tenant", tenant); err != nil {
		return session.Key{}, err
	}
	if err := checkID("session_id", sessionID); err != nil {
		return session.Key{}, err
	}
	return session.Key{Tenant: tenant, SessionID: sessionID}, nil
}

func checkRef(r *statev1.RunRef) (session.Ref, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return session.Ref{}, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return session.Ref{}, err
	}
	return session.Ref{Key: key, RunID: r.GetRunId(), Epoch: r.GetEpoch()}, nil
}

// checkPage returns the limit of a page: 1 to 200, 50 when the request leaves it.
func checkPage(limit int32) (int, error) {
	const most, usual = 200, 50
	if limit < 0 || limit > most {
		return 0, fault.New(fault.Invalid, "LIMIT_INVALID", "limit is %d; ask for 1 to 200, or 0 for 50", limit)
	}
	if limit == 0 {
		return usual, nil
	}
	return int(limit), nil
}

// checkOffset gives Invalid (LIMIT_INVALID).
func checkOffset(offset int32) error {
	if offset < 0 {
		return fault.New(fault.Invalid, "LIMIT_INVALID", "offset is %d; the first one is 0", offset)
	}
	return nil
}

// pageOf returns the page among rows that are one more than the limit when there
// is more behind it.
func pageOf[R any](rows []R, limit int) (page []R, more bool) {
	return rows[:min(limit, len(rows))], len(rows) > limit
}

// checkOptionalIDs checks the ids by their fields, which may be empty.
func checkOptionalIDs(ids map[string]string) error {
	for field, id := range ids {
		if err := checkOptionalID(field, id); err != nil {
			return err
		}
	}
	return nil
}
