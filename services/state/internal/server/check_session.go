package server

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// checkMetadata gives Invalid (METADATA_INVALID). Values may have zero characters: they
// are stored inside the body of a message.
func (l Limits) checkMetadata(pairs map[string]string) error {
	if len(pairs) > l.Metadata {
		return invalid("METADATA_INVALID", "there are %d metadata pairs; the limit is %d", len(pairs), l.Metadata)
	}
	for key, value := range pairs {
		if p := idProblem(key); p != "" {
			return invalid("METADATA_INVALID", "metadata key %q %s", key, p)
		}
		if len(value) > l.MetadataBytes {
			return invalid("METADATA_INVALID", "the value of metadata key %q has %d bytes; the limit is %d", key, len(value), l.MetadataBytes)
		}
	}
	return nil
}

// checkTextMetadata is checkMetadata for pairs in text columns of the database.
func (l Limits) checkTextMetadata(pairs map[string]string) error {
	for key, value := range pairs {
		if strings.ContainsRune(value, 0) {
			return invalid("METADATA_INVALID", "the value of metadata key %q has a zero character, which a database does not store", key)
		}
	}
	return l.checkMetadata(pairs)
}

// checkTags gives Invalid (TAGS_INVALID).
func (l Limits) checkTags(tags []string) error {
	if len(tags) > l.Tags {
		return invalid("TAGS_INVALID", "there are %d tags; the limit is %d", len(tags), l.Tags)
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > l.TagBytes || strings.ContainsFunc(tag, unicode.IsControl) {
			return invalid("TAGS_INVALID", "tag %q is empty, longer than %d bytes, or has control characters", tag, l.TagBytes)
		}
	}
	return nil
}

// checkTitle gives Invalid (TITLE_INVALID).
func (l Limits) checkTitle(title string) error {
	if len(title) > l.TitleBytes || !utf8.ValidString(title) || strings.ContainsFunc(title, unicode.IsControl) {
		return invalid("TITLE_INVALID", "the title is longer than %d bytes, is not UTF-8, or has control characters", l.TitleBytes)
	}
	return nil
}

// checkState gives Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
func (l Limits) checkState(state string) error {
	switch {
	case len(state) > l.StateBytes:
		return session.StateTooLarge(len(state), l.StateBytes, nil)
	case !isJSON(state) || !beginsWith(state, '{'):
		return invalid("STATE_INVALID", "custom_state is not a JSON object")
	}
	return nil
}

// checkProperties checks the properties of a new session, or of a query for sessions. An empty
// state is valid.
func (l Limits) checkProperties(tags []string, metadata map[string]string, state string) error {
	err := cmp.Or(l.checkTags(tags), l.checkTextMetadata(metadata))
	if err != nil || state == "" {
		return err
	}
	return l.checkState(state)
}

// checkParent gives Invalid (ID_INVALID, SUB_SESSION_INVALID). nil is valid.
func checkParent(p *statev1.Parent) error {
	if p == nil {
		return nil
	}
	return cmp.Or(checkID("parent.session_id", p.GetSessionId()),
		checkOptionalID("parent.tool_call_id", p.GetToolCallId()),
		checkOptionalID("parent.name", p.GetName()),
		checkMode(p.GetMode()))
}

func checkMode(m statev1.SubSessionMode) error {
	if _, known := modeIn[m]; !known && m != statev1.SubSessionMode_SUB_SESSION_MODE_UNSPECIFIED {
		return invalid("SUB_SESSION_INVALID", "%s is not a mode of a sub-session", m)
	}
	return nil
}

// checkBusy gives Invalid (BUSY_POLICY_INVALID).
func checkBusy(p statev1.BusyPolicy) error {
	if _, known := busyIn[p]; !known && p != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		return invalid("BUSY_POLICY_INVALID", "%s is not a policy; the policies are REJECT, ENQUEUE, INTERRUPT and ROLLBACK", p)
	}
	return nil
}

// checkSubSession gives Invalid (ID_INVALID, STATUS_INVALID, SUB_SESSION_INVALID).
func (l Limits) checkSubSession(c *statev1.SubSession) error {
	if err := cmp.Or(checkID("sub_session.session_id", c.GetSessionId()),
		checkOptionalID("agent_type", c.GetAgentType()),
		checkOptionalID("parent_tool_call_id", c.GetParentToolCallId()),
		checkOptionalID("name", c.GetName()),
		checkMode(c.GetMode())); err != nil {
		return err
	}
	_, statusKnown := statusIn[c.GetStatus()]
	location, locationKnown := locationIn[c.GetLocation()]
	switch remote := c.GetRemote(); {
	case !statusKnown:
		return invalid("STATUS_INVALID", "%s is not a status of a sub-session", c.GetStatus())
	case !locationKnown:
		return invalid("SUB_SESSION_INVALID", "%s is not a location; a sub-session is local or remote", c.GetLocation())
	case remote != "" && location == session.Local:
		return invalid("SUB_SESSION_INVALID", "a local sub-session has no remote")
	case len(remote) > l.MetadataBytes || !isJSONOrEmpty(remote):
		return invalid("SUB_SESSION_INVALID", "remote is not one JSON text of at most %d bytes", l.MetadataBytes)
	}
	return nil
}
