package server

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// origin has the defaults for empty fields of a message.
type origin struct {
	runID  string
	step   int32
	ownRun bool // the message belongs to the run, whichever it names
}

// maxUIMetadata bounds the metadata and the data parts of a client's message, in bytes each.
const maxUIMetadata = 64 << 10

func (x *reader) messageInvalid(format string, args ...any) {
	x.refuse("MESSAGE_INVALID", format, args...)
}

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
			row.FileIDs = append(row.FileIDs, id)
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
		x.messageInvalid("messages is empty; a run begins with at least one user message")
	}
	rows := make([]session.Message, 0, len(messages))
	for i, m := range messages {
		if m.GetRole() != eventv1.Role_ROLE_USER {
			x.messageInvalid("messages[%d] has the role %s; only user messages start a run", i, m.GetRole())
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
				x.messageInvalid("messages[%d] has a part that is neither text nor a file", i)
			}
		}
		if !content {
			x.messageInvalid("messages[%d] has no content; give it a text or a file", i)
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
			x.messageInvalid("messages[%d] has no role", i)
		}
		if len(m.GetParts()) == 0 {
			x.messageInvalid("messages[%d] has no content; give it a part", i)
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
			x.messageInvalid("history[%d] has the role %s, or fields of the runtime", i, m.GetRole())
		}
		size += proto.Size(m)
	}
	if size > x.limits.HistoryBytes {
		x.fail(tooLarge("HISTORY_TOO_LARGE", "the conversation so far", size, x.limits.HistoryBytes))
	}
	return x.conversation(messages, runID)
}

// stepMessages reads the messages of a committed step. Faults as userMessages.
func (x *reader) stepMessages(messages []*eventv1.Message, from origin) []session.Message {
	rows := make([]session.Message, 0, len(messages))
	for _, m := range messages {
		x.id("a message's id", m.GetId())
		if m.GetRole() == eventv1.Role_ROLE_UNSPECIFIED {
			x.messageInvalid("message %q has no role", m.GetId())
		}
		rows = append(rows, x.message(m, x.limits.StepBytes, from))
		if x.err != nil {
			break
		}
	}
	return rows
}
