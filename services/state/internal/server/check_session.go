package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func (l Limits) checkMetadata(pairs map[string]string) error {
	if len(pairs) > l.Metadata {
		return fault.New(fault.Invalid, "METADATA_INVALID", "there are %d metadata pairs; the limit is %d", len(pairs), l.Metadata)
	}
	for key, value := range pairs {
		if p := problem(key); p != "" {
			return fault.New(fault.Invalid, "METADATA_INVALID", "metadata key %q %s", key, p)
		}
		if len(value) > l.MetadataBytes {
			return fault.New(fault.Invalid, "METADATA_INVALID", "the value of metadata key %q has %d bytes; the limit is %d", key, len(value), l.MetadataBytes)
		}
	}
	return nil
}

func (l Limits) checkTags(tags []string) error {
	if len(tags) > l.Tags {
		return fault.New(fault.Invalid, "TAGS_INVALID", "there are %d tags; the limit is %d", len(tags), l.Tags)
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > l.TagBytes || strings.ContainsFunc(tag, unicode.IsControl) {
			return fault.New(fault.Invalid, "TAGS_INVALID", "tag %q is empty, longer than %d bytes, or has control characters", tag, l.TagBytes)
		}
	}
	return nil
}

// checkState gives Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
func (l Limits) checkState(state string) error {
	if len(state) > l.StateBytes {
		return session.StateTooLarge(len(state), l.StateBytes, nil)
	}
	if !json.Valid([]byte(state)) || !begins(state, '{') {
		return fault.New(fault.Invalid, "STATE_INVALID", "custom_state is not a JSON object")
	}
	return nil
}

func begins(text string, c byte) bool {
	trimmed := strings.TrimLeft(text, " \t\r\n")
	return trimmed != "" && trimmed[0] == c
}

// checkKept checks metadata that a database keeps as text, not within the body
// of a message.
func (l Limits) checkKept(pairs map[string]string) error {
	for key, value := range pairs {
		if strings.ContainsRune(value, 0) {
			return fault.New(fault.Invalid, "METADATA_INVALID", "the value of metadata key %q has a zero character, which a database does not keep", key)
		}
	}
	return l.checkMetadata(pairs)
}

// checkBirth checks what a new session begins with.
func (l Limits) checkBirth(tags []string, metadata map[string]string, state string) error {
	if err := l.checkTags(tags); err != nil {
		return err
	}
	if err := l.checkKept(metadata); err != nil {
		return err
	}
	if state == "" {
		return nil
	}
	return l.checkState(state)
}

// checkParent gives Invalid (ID_INVALID, SUB_SESSION_INVALID).
func checkParent(p *statev1.Parent) error {
	if p == nil {
		return nil
	}
	if err := checkID("parent.session_id", p.GetSessionId()); err != nil {
		return err
	}
	if err := checkOptionalIDs(map[string]string{"parent.tool_call_id": p.GetToolCallId(), "parent.name": p.GetName()}); err != nil {
		return err
	}
	return checkMode(p.GetMode())
}

func checkMode(m statev1.SubSessionMode) error {
	if _, known := modeIn[m]; !known && m != statev1.SubSessionMode_SUB_SESSION_MODE_UNSPECIFIED {
		return subSessionInvalid("%s is not a mode of a sub-session", m)
	}
	return nil
}

func subSessionInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "SUB_SESSION_INVALID", format, args...)
}

func statusInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "STATUS_INVALID", format, args...)
}

// checkSubSession gives Invalid (ID_INVALID, STATUS_INVALID,
// SUB_SESSION_INVALID).
func (l Limits) checkSubSession(c *statev1.SubSession) error {
	if err := checkID("sub_session.session_id", c.GetSessionId()); err != nil {
		return err
	}
	if err := checkOptionalIDs(map[string]string{
		"agent_type": c.GetAgentType(), "parent_tool_call_id": c.GetParentToolCallId(), "name": c.GetName(),
	}); err != nil {
		return err
	}
	if _, known := statusIn[c.GetStatus()]; !known {
		return statusInvalid("%s is not a status of a sub-session", c.GetStatus())
	}
	if _, known := locationIn[c.GetLocation()]; !known {
		return subSessionInvalid("%s is not a location; a sub-session is local or remote", c.GetLocation())
	}
	if c.GetRemote() != "" && c.GetLocation() == statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL {
		return subSessionInvalid("a local sub-session is not reached by a remote")
	}
	if len(c.GetRemote()) > l.MetadataBytes || c.GetRemote() != "" && !json.Valid([]byte(c.GetRemote())) {
		return subSessionInvalid("remote is not one JSON text of at most %d bytes", l.MetadataBytes)
	}
	return checkMode(c.GetMode())
}

// wrongText says what is wrong with a sentence for people, "" when nothing is.
func (l Limits) wrongText(text string) string {
	switch {
	case len(text) > l.ErrorBytes:
		return fmt.Sprintf("has %d bytes; the limit is %d", len(text), l.ErrorBytes)
	case strings.ContainsRune(text, 0):
		return "has a zero character, which a database does not keep"
	}
	return ""
}
