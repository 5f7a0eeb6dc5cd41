package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
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
	by      session.Caller   // zero for an executor and the service itself
	fileIDs []string         // of the files in the messages read so far
	asked   *eventv1.Message // the message that may bring tools and instructions; nil for none
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

// atMost keeps tooLarge if the size is above the limit.
func (x *reader) atMost(reason, what string, size, limit int) {
	if size > limit {
		x.fail(tooLarge(reason, what, size, limit))
	}
}

// tooLarge returns TooLarge with a reason, the size and the limit in bytes.
func tooLarge(reason, what string, size, limit int) error {
	return &fault.Fault{
		Kind: fault.TooLarge, Reason: reason, Detail: fmt.Sprintf("%s has %d bytes; the limit is %d", what, size, limit),
		Meta: map[string]string{fault.SizeBytes: strconv.Itoa(size), fault.LimitBytes: strconv.Itoa(limit)},
	}
}

const (
	maxIDBytes         = 256             // by the contract
	maxCheckpointBytes = maxIDBytes + 64 // a checkpoint's id contains the session's
	maxActorBytes      = maxIDBytes + 16 // a prefix and an id
)

// idProblem describes the fault of an id; "" for a valid one.
func idProblem(id string) string { return nameProblem(id, maxIDBytes) }

// nameProblem describes the fault of an id or a key of at most so many bytes; "" for a valid one.
func nameProblem(id string, maxBytes int) string {
	switch {
	case id == "":
		return "is missing"
	case len(id) > maxBytes:
		return fmt.Sprintf("is longer than %d bytes", maxBytes)
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

// user returns the user of the sessions that a caller creates or looks for. Without a user in the request it is the
// caller's own; empty for all. Invalid (ID_INVALID), Denied (OWNER_REFUSED).
func (x *reader) user(requested string) string {
	x.optionalID("user_id", requested)
	if requested == "" {
		return x.by.Owner
	}
	return x.ownUser(requested)
}

// ownUser gives Denied (OWNER_REFUSED) for another user than the caller's own.
func (x *reader) ownUser(requested string) string {
	if x.by.Owner != "" && requested != x.by.Owner {
		x.fail(fault.New(fault.Denied, "OWNER_REFUSED",
			"the credential reaches only the sessions of user %q, not of %q; omit the user", x.by.Owner, requested))
	}
	return requested
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

// state gives Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
func (x *reader) state(state string) string {
	x.atMost("STATE_SIZE_EXCEEDED", "the custom state", len(state), x.limits.StateBytes)
	if !isJSON(state) || !beginsWith(state, '{') {
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

// readBusyPolicy returns an empty policy for an unspecified one. Invalid (BUSY_POLICY_INVALID).
func readBusyPolicy(x *reader, p statev1.BusyPolicy) session.BusyPolicy {
	policy, known := busyIn[p]
	if !known && p != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		x.refuse("BUSY_POLICY_INVALID", "%s is not a policy; the policies are REJECT, ENQUEUE, INTERRUPT and ROLLBACK", p)
	}
	return policy
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

// origin has the defaults for empty fields of a message.
type origin struct {
	runID  string
	step   int32
	ownRun bool // the message belongs to the run, whichever it names
}

// maxUIMetadata bounds the metadata and the data parts of a client's message, in bytes each.
const maxUIMetadata = 64 << 10

// checkMessage checks the common fields of all messages. Invalid (METADATA_INVALID, ID_INVALID), TooLarge
// (MESSAGE_TOO_LARGE).
func (x *reader) checkMessage(m *eventv1.Message, limit int) {
	if size := proto.Size(m); size > limit {
		x.fail(tooLarge("MESSAGE_TOO_LARGE", fmt.Sprintf("message %q", m.GetId()), size, limit))
	}
	if text := m.GetUiMetadata(); len(text) > maxUIMetadata || !isJSONOrEmpty(text) {
		x.refuse("METADATA_INVALID", "the ui_metadata of message %q is not one JSON text of at most %d bytes", m.GetId(), maxUIMetadata)
	}
	if text := m.GetUiParts(); len(text) > maxUIMetadata || !isJSONOrEmpty(text) {
		x.refuse("METADATA_INVALID", "the ui_parts of message %q are not one JSON text of at most %d bytes", m.GetId(), maxUIMetadata)
	}
	x.optionalID("a message's run_id", m.GetRunId())
	x.metadata(m.GetMetadata())
	if m.GetCaller() != nil && m != x.asked {
		x.refuse("MESSAGE_INVALID", "message %q brings tools or instructions; only the last message of a new run may", m.GetId())
	}
}

// message reads a message of at most limit bytes. It fills in the empty fields of a copy.
func (x *reader) message(m *eventv1.Message, limit int, from origin) session.Message {
	x.checkMessage(m, limit)
	if x.err != nil {
		return session.Message{}
	}
	m = proto.CloneOf(m)
	if m.Id == "" {
		m.Id = x.ids.message()
	}
	if m.RunId == "" || from.ownRun {
		m.RunId = from.runID
	}
	if m.Step == 0 {
		m.Step = from.step
	}
	if m.CreatedAt == 0 {
		m.CreatedAt = int64(x.now)
	}
	row := session.Message{
		ID: m.Id, Role: roleNames[m.Role], RunID: m.RunId, Step: m.Step, CreatedAt: session.Millis(m.CreatedAt), Body: x.encode(m),
	}
	for _, p := range m.GetParts() {
		if id, ok := eventv1.FileID(p.GetFile().GetUrl()); ok {
			row.FileIDs = append(row.FileIDs, x.id("a file id", id))
		}
	}
	x.fileIDs = append(x.fileIDs, row.FileIDs...)
	return row
}

// messageCount gives TooLarge (TOO_MANY_MESSAGES).
func (x *reader) messageCount(n int) {
	if n > x.limits.Messages {
		x.fail(fault.New(fault.TooLarge, "TOO_MANY_MESSAGES",
			"the request has %d messages; the limit is %d: send them in several requests", n, x.limits.Messages).
			With("count", strconv.Itoa(n)).With("limit", strconv.Itoa(x.limits.Messages)))
	}
}

// userMessages reads the messages of a StartRun. Invalid (MESSAGE_INVALID, ID_INVALID, METADATA_INVALID), TooLarge
// (MESSAGE_TOO_LARGE, TOO_MANY_MESSAGES).
func (x *reader) userMessages(messages []*eventv1.Message, mayBeEmpty bool, runID string) []session.Message {
	x.messageCount(len(messages))
	if len(messages) == 0 && !mayBeEmpty {
		x.refuse("MESSAGE_INVALID", "messages is empty; a run begins with at least one user message")
	}
	rows := make([]session.Message, 0, len(messages))
	for i, m := range messages {
		isUser := m.GetRole() == eventv1.Role_ROLE_USER
		if !isUser && (m.GetRole() != eventv1.Role_ROLE_CONTEXT || !m.GetHidden() || i == len(messages)-1) {
			x.refuse("MESSAGE_INVALID", "messages[%d] has the role %s; only user messages start a run, behind rows of context", i, m.GetRole())
		}
		x.optionalID("a message's id", m.GetId())
		content := false
		for _, part := range m.GetParts() {
			switch p := part.GetPart().(type) {
			case *eventv1.Part_Text:
				content = content || strings.TrimSpace(p.Text.GetText()) != ""
			case *eventv1.Part_File:
				content = content || p.File.GetUrl() != ""
			default:
				x.refuse("MESSAGE_INVALID", "messages[%d] has a part that is neither text nor a file", i)
			}
		}
		if !content && isUser {
			x.refuse("MESSAGE_INVALID", "messages[%d] has no content; give it a text or a file", i)
		}
		rows = append(rows, x.message(m, x.limits.MessageBytes, origin{runID: runID}))
		if x.err != nil {
			break
		}
	}
	return rows
}

// appended reads messages of any role from a host. Faults as userMessages.
func (x *reader) appended(messages []*eventv1.Message) []session.Message {
	x.messageCount(len(messages))
	return x.conversation(messages, "")
}

// conversation reads any number of messages of any role. Those of users belong to the run; an empty id leaves them as
// they are.
func (x *reader) conversation(messages []*eventv1.Message, userRunID string) []session.Message {
	rows := make([]session.Message, 0, len(messages))
	for i, m := range messages {
		if roleNames[m.GetRole()] == "" {
			x.refuse("MESSAGE_INVALID", "messages[%d] has no role", i)
		}
		if len(m.GetParts()) == 0 {
			x.refuse("MESSAGE_INVALID", "messages[%d] has no content; give it a part", i)
		}
		x.optionalID("a message's id", m.GetId())
		from := origin{}
		if m.GetRole() == eventv1.Role_ROLE_USER && userRunID != "" {
			from = origin{runID: userRunID, ownRun: true}
		}
		rows = append(rows, x.message(m, x.limits.MessageBytes, from))
		if x.err != nil {
			break
		}
	}
	return rows
}

// history reads the conversation of a client. Its users' messages belong to the first run: an edit of one goes back to
// the state at the start of that run. Faults as userMessages, and TooLarge (HISTORY_TOO_LARGE).
func (x *reader) history(messages []*eventv1.Message, runID string) []session.Message {
	if len(messages) > x.limits.HistoryMessages {
		x.fail(fault.New(fault.TooLarge, "HISTORY_TOO_LARGE",
			"the conversation so far has %d messages; the limit is %d", len(messages), x.limits.HistoryMessages))
	}
	size := 0
	for i, m := range messages {
		if m.GetRole() == eventv1.Role_ROLE_CONTEXT || m.GetStep() != 0 || m.GetHidden() {
			x.refuse("MESSAGE_INVALID", "history[%d] has the role %s, or fields of the runtime", i, m.GetRole())
		}
		size += proto.Size(m)
	}
	x.atMost("HISTORY_TOO_LARGE", "the conversation so far", size, x.limits.HistoryBytes)
	return x.conversation(messages, runID)
}

// stepMessages reads the messages of a committed step. Faults as userMessages.
func (x *reader) stepMessages(messages []*eventv1.Message, from origin) []session.Message {
	rows := make([]session.Message, 0, len(messages))
	for _, m := range messages {
		x.id("a message's id", m.GetId())
		if m.GetRole() == eventv1.Role_ROLE_UNSPECIFIED {
			x.refuse("MESSAGE_INVALID", "message %q has no role", m.GetId())
		}
		rows = append(rows, x.message(m, x.limits.StepBytes, from))
		if x.err != nil {
			break
		}
	}
	return rows
}

// answer reads the answer to a call. Invalid (ID_INVALID, ANSWER_INVALID). An oversized answer gets the Refusal
// TooLarge (RESULT_TOO_LARGE).
func (x *reader) answer(callID string, given *statev1.CallAnswer) session.Answer {
	a := session.Answer{CallID: x.id("tool_call_id", callID)}
	oversized := func(size, limit int) {
		if size > limit {
			a.Refusal = tooLarge("RESULT_TOO_LARGE", "the answer", size, limit)
		}
	}
	switch answer := given.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		a.Kind = session.ClientTool
		if oversized(len(answer.Result), x.limits.ResultBytes); a.Refusal == nil && !isJSON(answer.Result) {
			x.refuse("ANSWER_INVALID", "the result is not one JSON text")
		}
	case *statev1.CallAnswer_Error:
		oversized(max(len(answer.Error), len(given.GetPublicError())), x.limits.ErrorBytes)
		if answer.Error == "" {
			x.refuse("ANSWER_INVALID", "the error has no text; say what went wrong")
		}
	case *statev1.CallAnswer_Approval:
		a.Kind, a.ApprovalID, a.Approves = session.Approval, answer.Approval.GetApprovalId(), answer.Approval.GetApproved()
		if p := idProblem(a.ApprovalID); p != "" {
			x.refuse("ANSWER_INVALID", "approval_id %s; name the approval that is answered", p)
		}
		oversized(len(answer.Approval.GetReason()), x.limits.ErrorBytes)
	default:
		x.refuse("ANSWER_INVALID", "the answer is empty; give a result, an error or an approval")
	}
	if x.err != nil || a.Refusal != nil {
		return a
	}
	stored := proto.CloneOf(given)
	stored.Source = statev1.AnswerSource_ANSWER_SOURCE_CLIENT
	a.Response = x.encode(stored)
	return a
}

// answers reads the answers of a request. Invalid (TOO_MANY_ANSWERS), and the faults of answer. The refusal of an
// oversized answer counts only if its call accepts an answer: it may repeat the result of a server tool, which has a
// limit of its own.
func (x *reader) answers(given []*statev1.SubmittedAnswer) []session.Answer {
	if len(given) > maxAnswers {
		x.refuse("TOO_MANY_ANSWERS", "the request has %d answers; the limit is %d: send the rest in another request", len(given), maxAnswers)
	}
	answers := make([]session.Answer, len(given))
	for i, g := range given {
		if answers[i] = x.answer(g.GetToolCallId(), g.GetAnswer()); x.err != nil {
			return nil
		}
	}
	return answers
}

// addition reads the messages to append, and the state to write, before a run begins. Faults as appended and ops.
func (x *reader) addition(r interface {
	GetAppendMessages() []*eventv1.Message
	GetStateOps() []*statev1.StateOp
}) session.Addition {
	return session.Addition{Append: x.appended(r.GetAppendMessages()), Ops: x.ops(r.GetStateOps())}
}

// claim reads the reference of an executor's write, and checks its grant.
func (x *reader) claim(g *grants, r *statev1.RunRef) session.ClaimRef {
	ref := session.ClaimRef{Key: x.key(r), RunID: x.id("run_id", r.GetRunId()), Epoch: r.GetEpoch()}
	if x.err == nil {
		x.err = g.covers(ref, r.GetGrant())
	}
	return ref
}

// ops gives Invalid (STATE_INVALID) and TooLarge (STATE_SIZE_EXCEEDED).
func (x *reader) ops(ops []*statev1.StateOp) []session.StateOp {
	if len(ops) > x.limits.Ops {
		x.refuse("STATE_INVALID", "there are %d state writes; the limit is %d: write each key once, with all its items", len(ops), x.limits.Ops)
	}
	rows := slices.Grow([]session.StateOp(nil), len(ops))
	for i, op := range ops {
		row, problem := opIn(op)
		if problem != "" {
			x.refuse("STATE_INVALID", "ops[%d] on key %q %s", i, op.GetKey(), problem)
			return nil
		}
		rows = append(rows, row)
	}
	if size := session.OpsBytes(rows); size > x.limits.StagedBytes {
		x.fail(session.StateTooLarge(size, x.limits.StagedBytes, rows))
	}
	return rows
}

// opIn converts a state write, or describes its fault.
func opIn(op *statev1.StateOp) (row session.StateOp, problem string) {
	if p := idProblem(op.GetKey()); p != "" {
		return row, "has a key that " + p
	}
	row.Key = op.GetKey()
	switch o := op.GetOp().(type) {
	case *statev1.StateOp_Replace:
		row.Kind, row.Value = session.OpReplace, o.Replace
	case *statev1.StateOp_Append:
		row.Kind, row.Value = session.OpAppend, o.Append
		if !beginsWith(o.Append, '[') {
			return row, "appends a value that is not a JSON array"
		}
	case *statev1.StateOp_Delete:
		row.Kind = session.OpDelete
		if !o.Delete {
			return row, "has delete: false, which has no meaning"
		}
		return row, ""
	default:
		return row, "has no op"
	}
	if !isJSON(row.Value) {
		return row, "has a value that is not JSON"
	}
	return row, ""
}

// outcome gives Invalid (OUTCOME_INVALID).
func (x *reader) outcome(o *statev1.Outcome, maySuspend bool) session.Outcome {
	const reason, maxFinishReason = "OUTCOME_INVALID", 64
	out := session.Outcome{
		Status: runStatusIn[o.GetStatus()], Output: o.GetOutput(), CompletionReason: o.GetCompletionReason(), FinishReason: o.GetFinishReason(),
		Failure: x.failure(o.GetFailure()),
	}
	if u := o.GetUsage(); u != nil {
		out.Usage = &session.Tokens{
			Prompt: u.GetPromptTokens(), Completion: u.GetCompletionTokens(), Reasoning: u.GetReasoningTokens(),
			Cached: u.GetCachedTokens(), Total: u.GetTotalTokens(),
		}
	}
	suspended := session.Status(out.Status).Suspended()
	switch {
	case suspended && !maySuspend:
		x.refuse(reason, "a suspended outcome comes with the commit of the step that leaves calls open")
	case out.Status == session.RunFailed && o.GetFailure().GetError() == "":
		x.refuse(reason, "a failed run needs a failure with an error text")
	case !suspended && out.Status != session.RunFailed && out.Status != session.RunCompleted && out.Status != session.RunInterrupted:
		x.refuse(reason, "a run cannot end as %s; valid outcomes are COMPLETED, FAILED and INTERRUPTED", o.GetStatus())
	case len(out.Output) > x.limits.StepBytes:
		x.refuse(reason, "the output has %d bytes; the limit is %d", len(out.Output), x.limits.StepBytes)
	case !isJSONOrEmpty(out.Output):
		x.refuse(reason, "the output is not one JSON text")
	case len(out.FinishReason) > maxFinishReason:
		x.refuse(reason, "the finish_reason has %d bytes; the limit is %d: give a short reason, such as stop or length",
			len(out.FinishReason), maxFinishReason)
	}
	for _, name := range [...]struct{ field, text string }{
		{"completion_reason", out.CompletionReason}, {"failure.code", o.GetFailure().GetCode()}, {"finish_reason", out.FinishReason},
	} {
		if p := idProblem(name.text); name.text != "" && p != "" {
			x.refuse(reason, "%s %s", name.field, p)
		}
	}
	return out
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

// failure returns nil for nil.
func (x *reader) failure(f *statev1.Failure) *session.Failure {
	if f == nil {
		return nil
	}
	return &session.Failure{
		Error: truncate(f.GetError(), x.limits.ErrorBytes), Detail: truncate(f.GetDetail(), x.limits.ErrorBytes),
		Code: f.GetCode(), Retryable: f.GetRetryable(),
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
