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

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// reader turns a request into a command in one walk: whoever reads a value also checks it. It keeps the first fault in
// err, and what is read after a fault has no meaning. So a caller reads the whole request, and looks at err once.
type reader struct {
	request proto.Message // nil for a command of the service itself
	limits  Limits
	ids     ids
	now     session.Millis
	by      session.Caller // zero for an executor and the service itself
	fileIDs []string       // of the files in the messages read so far
	err     error
}

// callerRequest is a request on behalf of a caller.
type callerRequest interface{ GetCaller() *statev1.Caller }

// read begins to read a request, with its caller. Invalid (ID_INVALID).
func (r *runner) read(request proto.Message) *reader {
	x := &reader{request: request, limits: r.limits, ids: r.ids, now: r.clock.millis()}
	if c, ok := request.(callerRequest); ok {
		x.by = session.Caller{Actor: x.actor(c.GetCaller().GetActor()), Owner: x.optionalID("caller.owner", c.GetCaller().GetOwner())}
	}
	return x
}

// bytes estimates the memory that the command of the request holds while it waits.
func (x *reader) bytes() int {
	const byDefault = 1024
	if x.request == nil {
		return byDefault
	}
	return proto.Size(x.request)
}

// owned returns the part of the store that the caller reaches.
func (x *reader) owned(all store.Reader) store.Reader { return all.OwnedBy(x.by.Owner) }

// fail keeps the first fault.
func (x *reader) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// refuse keeps an Invalid with a reason and the advice in the text, unless there is a fault already.
func (x *reader) refuse(reason, format string, args ...any) {
	if x.err == nil {
		x.err = invalid(reason, format, args...)
	}
}

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
	maxActorBytes      = maxIDBytes + 16 // a prefix and an id
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

// id gives Invalid (ID_INVALID).
func (x *reader) id(field, id string) string {
	if p := idProblem(id); p != "" {
		x.refuse("ID_INVALID", "%s %s; an id has 1 to 256 bytes of UTF-8 without control characters", field, p)
	}
	return id
}

// optionalID is id for an optional id: empty is valid.
func (x *reader) optionalID(field, id string) string {
	if id == "" {
		return ""
	}
	return x.id(field, id)
}

func (x *reader) eachID(field string, ids []string) []string {
	for _, id := range ids {
		x.id(field, id)
	}
	return ids
}

func (x *reader) checkpointID(id string) string {
	if id == "" || len(id) > maxCheckpointBytes || strings.ContainsFunc(id, unicode.IsControl) {
		x.refuse("ID_INVALID", "checkpoint_id is empty, longer than %d bytes, or has control characters", maxCheckpointBytes)
	}
	return id
}

func (x *reader) optionalCheckpointID(id string) string {
	if id == "" {
		return ""
	}
	return x.checkpointID(id)
}

func (x *reader) actor(actor string) string {
	if len(actor) > maxActorBytes || !utf8.ValidString(actor) || strings.ContainsFunc(actor, unicode.IsControl) {
		x.refuse("ID_INVALID", "actor has %d bytes; give at most %d of UTF-8 without control characters", len(actor), maxActorBytes)
	}
	return actor
}

// user returns the user of the sessions that a caller creates or looks for. Denied (OWNER_REFUSED).
func (x *reader) user(requested string) string {
	user, err := x.by.User(requested)
	x.fail(err)
	return user
}

func (x *reader) key(r interface {
	GetTenant() string
	GetSessionId() string
}) session.Key {
	return session.Key{Tenant: x.id("tenant", r.GetTenant()), SessionID: x.id("session_id", r.GetSessionId())}
}

// number gives Invalid with the reason unless n is 0 to highest. advice names the valid values.
func number[N int32 | int64](x *reader, reason, field string, n, highest N, advice string) N {
	if n < 0 || n > highest {
		x.refuse(reason, "%s is %d; %s", field, n, advice)
	}
	return n
}

// pageLimit returns the limit of a page: 1 to 200, 50 for 0. Invalid (LIMIT_INVALID).
func (x *reader) pageLimit(limit int32) int {
	const highest, byDefault = 200, 50
	return int(cmp.Or(number(x, "LIMIT_INVALID", "limit", limit, highest, "give 1 to 200, or 0 for 50"), byDefault))
}

func (x *reader) offset(offset int32) int {
	return int(number(x, "LIMIT_INVALID", "offset", offset, math.MaxInt32, "the first one is 0"))
}

// splitPage splits a page from rows. One row beyond the limit means more follow.
func splitPage[R any](rows []R, limit int) (page []R, more bool) {
	return rows[:min(limit, len(rows))], len(rows) > limit
}

// deadline returns when a timeout from now ends; 0 for none. Invalid (TIMEOUT_INVALID).
func (x *reader) deadline(timeoutMS int64) session.Millis {
	const longest = 30 * 24 * time.Hour
	number(x, "TIMEOUT_INVALID", "timeout_ms", timeoutMS, longest.Milliseconds(), "give at highest 2592000000, 30 days, or 0 for none")
	if timeoutMS == 0 {
		return 0
	}
	return x.now + session.Millis(timeoutMS)
}

// text returns a text for people. Invalid with the reason.
func (x *reader) text(reason, what, text string) string {
	switch {
	case len(text) > x.limits.ErrorBytes:
		x.refuse(reason, "%s has %d bytes; the limit is %d", what, len(text), x.limits.ErrorBytes)
	case strings.ContainsRune(text, 0):
		x.refuse(reason, "%s has a zero character, which a database does not store", what)
	}
	return text
}

func isJSON(text string) bool { return json.Valid([]byte(text)) }

// isJSONOrEmpty is isJSON for optional fields.
func isJSONOrEmpty(text string) bool { return text == "" || isJSON(text) }

// beginsWith reports whether the first character of a JSON text is c.
func beginsWith(text string, c byte) bool {
	trimmed := strings.TrimLeft(text, " \t\r\n")
	return trimmed != "" && trimmed[0] == c
}

// encode returns equal bytes for equal messages.
func (x *reader) encode(m proto.Message) []byte {
	body, err := encode(m)
	x.fail(err)
	return body
}

// encode returns equal bytes for equal messages.
func encode(m proto.Message) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return body, nil
}
