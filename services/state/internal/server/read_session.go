package server

import (
	"strings"
	"unicode"
	"unicode/utf8"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

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
