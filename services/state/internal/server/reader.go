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
	limits  *Limits
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
	x := &reader{request: request, limits: &r.limits, ids: r.ids, now: r.clock.millis()}
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

// metadata gives Invalid (METADATA_INVALID). Values may have zero characters: they are stored inside the body of a
// message.
func (x *reader) metadata(pairs map[string]string) map[string]string {
	if n := len(pairs); n > x.limits.Metadata {
		x.refuse("METADATA_INVALID", "there are %d metadata pairs; the limit is %d", n, x.limits.Metadata)
	}
	for key, value := range pairs {
		if p := idProblem(key); p != "" {
			x.refuse("METADATA_INVALID", "metadata key %q %s", key, p)
		}
		if len(value) > x.limits.MetadataBytes {
			x.refuse("METADATA_INVALID", "the value of metadata key %q has %d bytes; the limit is %d", key, len(value), x.limits.MetadataBytes)
		}
	}
	return pairs
}

// textMetadata is metadata for pairs in text columns of the database.
func (x *reader) textMetadata(pairs map[string]string) map[string]string {
	for key, value := range pairs {
		if strings.ContainsRune(value, 0) {
			x.refuse("METADATA_INVALID", "the value of metadata key %q has a zero character, which a database does not store", key)
		}
	}
	return x.metadata(pairs)
}

// tags gives Invalid (TAGS_INVALID).
func (x *reader) tags(tags []string) []string {
	if len(tags) > x.limits.Tags {
		x.refuse("TAGS_INVALID", "there are %d tags; the limit is %d", len(tags), x.limits.Tags)
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > x.limits.TagBytes || strings.ContainsFunc(tag, unicode.IsControl) {
			x.refuse("TAGS_INVALID", "tag %q is empty, longer than %d bytes, or has control characters", tag, x.limits.TagBytes)
		}
	}
	return tags
}

// title gives Invalid (TITLE_INVALID).
func (x *reader) title(title *string) *string {
	if t := title; t != nil && (len(*t) > x.limits.TitleBytes || !utf8.ValidString(*t) || strings.ContainsFunc(*t, unicode.IsControl)) {
		x.refuse("TITLE_INVALID", "the title is longer than %d bytes, is not UTF-8, or has control characters", x.limits.TitleBytes)
	}
	return title
}

// state gives Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
func (x *reader) state(state string) string {
	switch {
	case len(state) > x.limits.StateBytes:
		x.fail(session.StateTooLarge(len(state), x.limits.StateBytes, nil))
	case !isJSON(state) || !beginsWith(state, '{'):
		x.refuse("STATE_INVALID", "custom_state is not a JSON object")
	}
	return state
}

// initialState is state for a new session: empty stands for an empty object.
func (x *reader) initialState(state string) string {
	if state == "" {
		return "{}"
	}
	return x.state(state)
}

// parentID returns the id of the parent of a new sub-session; empty for nil. Invalid (ID_INVALID).
func (x *reader) parentID(p *statev1.Parent) string {
	if p == nil {
		return ""
	}
	return x.id("parent.session_id", p.GetSessionId())
}

// child returns a parent's record of a new sub-session. Invalid (ID_INVALID, SUB_SESSION_INVALID). nil is valid.
func (x *reader) child(p *statev1.Parent) session.Child {
	return session.Child{
		CallID: x.optionalID("parent.tool_call_id", p.GetToolCallId()), Name: x.optionalID("parent.name", p.GetName()), Mode: x.mode(p.GetMode()),
	}
}

// mode returns an empty mode for an unspecified one.
func (x *reader) mode(m statev1.SubSessionMode) session.ChildMode {
	mode, known := modeIn[m]
	if !known && m != statev1.SubSessionMode_SUB_SESSION_MODE_UNSPECIFIED {
		x.refuse("SUB_SESSION_INVALID", "%s is not a mode of a sub-session", m)
	}
	return mode
}

// busy returns an empty policy for an unspecified one. Invalid (BUSY_POLICY_INVALID).
func (x *reader) busy(p statev1.BusyPolicy) session.BusyPolicy {
	policy, known := busyIn[p]
	if !known && p != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		x.refuse("BUSY_POLICY_INVALID", "%s is not a policy; the policies are REJECT, ENQUEUE, INTERRUPT and ROLLBACK", p)
	}
	return policy
}

// subSession reads a reference to a sub-session. Invalid (ID_INVALID, STATUS_INVALID, SUB_SESSION_INVALID).
func (x *reader) subSession(c *statev1.SubSession) session.Child {
	child := session.Child{
		SessionID: x.id("sub_session.session_id", c.GetSessionId()), AgentType: x.optionalID("agent_type", c.GetAgentType()),
		CallID: x.optionalID("parent_tool_call_id", c.GetParentToolCallId()), Name: x.optionalID("name", c.GetName()), Mode: x.mode(c.GetMode()),
		Remote: c.GetRemote(), StartedAt: session.Millis(c.GetStartedAt()), CompletedAt: session.Millis(c.GetCompletedAt()),
	}
	var statusKnown, locationKnown bool
	child.Status, statusKnown = statusIn[c.GetStatus()]
	child.Location, locationKnown = locationIn[c.GetLocation()]
	switch {
	case !statusKnown:
		x.refuse("STATUS_INVALID", "%s is not a status of a sub-session", c.GetStatus())
	case !locationKnown:
		x.refuse("SUB_SESSION_INVALID", "%s is not a location; a sub-session is local or remote", c.GetLocation())
	case child.Remote != "" && child.Location == session.Local:
		x.refuse("SUB_SESSION_INVALID", "a local sub-session has no remote")
	case len(child.Remote) > x.limits.MetadataBytes || !isJSONOrEmpty(child.Remote):
		x.refuse("SUB_SESSION_INVALID", "remote is not one JSON text of at most %d bytes", x.limits.MetadataBytes)
	}
	return child
}

// statuses gives Invalid (STATUS_INVALID).
func (x *reader) statuses(statuses []statev1.SessionStatus) []session.Status {
	var list []session.Status
	for _, s := range statuses {
		status, known := statusIn[s]
		if !known {
			x.refuse("STATUS_INVALID", "%s is not a status of a session", s)
		}
		list = append(list, status)
	}
	return list
}

// failure returns nil for nil.
func (x *reader) failure(f *statev1.Failure) *session.Failure {
	if f == nil {
		return nil
	}
	return &session.Failure{
		Error: truncate(f.GetError(), x.limits.ErrorBytes), Detail: truncate(f.GetDetail(), x.limits.ErrorBytes), Code: f.GetCode(), Retryable: f.GetRetryable(),
	}
}

// truncate shortens a text for people to at most limit bytes, between characters. It removes zero characters: databases
// do not store them. Refusing an error text would keep its run from ending.
func truncate(text string, limit int) string {
	const mark = "…"
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// trace returns a trace context without its invalid parts. An invalid trace does not stop a run.
func trace(traceparent, tracestate string) (string, string) {
	const longestParent, longestState = 128, 1024
	if !printable(traceparent, longestParent) {
		return "", ""
	}
	if !printable(tracestate, longestState) {
		return traceparent, ""
	}
	return traceparent, tracestate
}

func printable(text string, limit int) bool {
	return len(text) <= limit && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
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
