package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// request is the body of POST /chat as the AI SDK's DefaultChatTransport sends it. Other keys
// belong to the app. They are ignored, and the answer says so.
type request struct {
	ID        string
	Trigger   string
	MessageID string
	AgentType string
	OnBusy    string // the policy while a run is live; "" for the agent's
	RunID     string // the newest run that the client knows; "" for none
	State     string // JSON: the custom state of a new session; "" for none
	// Tools and instructions of the page, for the turn that the message begins.
	Tools        []callerTool
	Instructions string

	budget  partBudget
	ignored []string // names of keys and kinds of parts without an effect

	list   excerpt // of messages
	single excerpt // of message: the last message alone, or its text
}

// excerpt is the decoded part of a conversation.
type excerpt struct {
	last     *message // if it is the assistant's, only id and role; nil for none
	reply    *reply   // the newest assistant message
	question *message // the last user message

	unanswered bool // question is after reply

	raw        []rawValue // the messages, of a long list the newest; nil once the run has started
	count      int        // how many there are
	questionAt int        // the index of the question in raw
	system     bool       // there is a system message
}

// excerpt returns the excerpt of messages, or else of message.
func (r *request) excerpt() excerpt {
	if r.list.last != nil {
		return r.list
	}
	return r.single
}

const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

var busyPolicies = map[string]statev1.BusyPolicy{
	"":          statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED,
	"reject":    statev1.BusyPolicy_BUSY_POLICY_REJECT,
	"enqueue":   statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
	"interrupt": statev1.BusyPolicy_BUSY_POLICY_INTERRUPT,
	"rollback":  statev1.BusyPolicy_BUSY_POLICY_ROLLBACK,
}

var missingPolicies = map[string]statev1.MissingPolicy{
	"keep":   statev1.MissingPolicy_MISSING_POLICY_UNSPECIFIED,
	"rewind": statev1.MissingPolicy_MISSING_POLICY_REWIND,
	"refuse": statev1.MissingPolicy_MISSING_POLICY_REFUSE,
}

// MissingPolicy returns the policy with the name, for Config.
func MissingPolicy(name string) statev1.MissingPolicy { return missingPolicies[name] }

// KnowsMissingPolicy reports whether a policy has the name.
func KnowsMissingPolicy(name string) bool {
	_, known := missingPolicies[name]
	return known
}

// onBusy returns the policy of the body, or else of the header. Invalid (ON_BUSY_INVALID).
func onBusy(h http.Header, body *request) (statev1.BusyPolicy, error) {
	name := body.OnBusy
	if name == "" {
		name = h.Get(busyHeader)
	}
	policy, known := busyPolicies[name]
	if !known {
		return policy, fault.New(fault.Invalid, "ON_BUSY_INVALID",
			"onBusy is %.50q: it must be reject, enqueue, interrupt or rollback", name)
	}
	return policy, nil
}

// message is a UIMessage, without the keys for clients alone.
type message struct {
	ID       string          `json:"id"`
	Role     string          `json:"role"`
	Parts    []part          `json:"parts"`
	Metadata json.RawMessage `json:"metadata"`
}

// callerTool is a tool of the page.
type callerTool struct {
	Name           string          `json:"name"`
	Description    string          `json:"description"`
	InputSchema    json.RawMessage `json:"inputSchema"`
	OutputSchema   json.RawMessage `json:"outputSchema"`
	Strict         bool            `json:"strict"`
	AnswerWithinMS int64           `json:"answerWithinMs"`
}

// callerInput returns what the page brings to the turn; nil for nothing.
func (r *request) callerInput() *eventv1.CallerInput {
	if len(r.Tools) == 0 && r.Instructions == "" {
		return nil
	}
	in := &eventv1.CallerInput{Instructions: r.Instructions}
	for _, t := range r.Tools {
		in.Tools = append(in.Tools, &eventv1.CallerTool{
			Name: t.Name, Description: t.Description, InputSchema: compact(t.InputSchema), OutputSchema: compact(t.OutputSchema),
			Strict: t.Strict, AnswerWithinMs: t.AnswerWithinMS,
		})
	}
	return in
}

// compact returns a JSON value without spaces, so that equal values of a repeated request are equal texts; "" for none.
func compact(value json.RawMessage) string {
	var out bytes.Buffer
	if len(value) == 0 || string(value) == "null" || json.Compact(&out, value) != nil {
		return ""
	}
	return out.String()
}

// maxMetadata bounds the metadata and the data parts of a user message, in bytes each.
const maxMetadata = 64 << 10

type part struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	MediaType string `json:"mediaType"`
	URL       string `json:"url"`
	Filename  string `json:"filename"`

	ID   json.RawMessage `json:"id"` // of a data part
	Data json.RawMessage `json:"data"`
}

// dataPrefix is followed by the name of a data part.
const dataPrefix = "data-"

// stored converts the message for the state service. It drops parts without a meaning here, and keeps data parts and the
// metadata as they are. Invalid (ID_INVALID, MESSAGE_INVALID, FILE_INVALID, METADATA_INVALID), TooLarge
// (MESSAGE_TOO_LARGE).
func (m *message) stored() (*eventv1.Message, error) {
	if m.ID != "" {
		if err := httpapi.CheckID("the id of the message", m.ID); err != nil {
			return nil, err
		}
	}
	if len(m.Metadata) > maxMetadata || !utf8.Valid(m.Metadata) {
		return nil, fault.New(fault.Invalid, "METADATA_INVALID",
			"the metadata of a message may have at most %d bytes of UTF-8; this one has %d", maxMetadata, len(m.Metadata))
	}
	out := &eventv1.Message{Id: m.ID, Role: eventv1.Role_ROLE_USER, UiMetadata: string(m.Metadata)}
	var data uistream.DataParts
	for _, p := range m.Parts {
		if strings.HasPrefix(p.Type, dataPrefix) {
			var id string
			if len(p.ID) > 0 && json.Unmarshal(p.ID, &id) != nil {
				return nil, fault.New(fault.Invalid, messageInvalid, "the id of a part of the type %.64q must be a text", p.Type)
			}
			data.Add(len(out.GetParts()), p.Type, id, cmp.Or(string(p.Data), "null"))
		}
		stored, err := p.stored()
		if err != nil {
			return nil, err
		}
		if stored != nil {
			out.Parts = append(out.Parts, stored)
		}
	}
	if len(out.Parts) == 0 {
		return nil, fault.New(fault.Invalid, messageInvalid, "the message has neither text nor a file")
	}
	out.UiParts = data.Text()
	if len(out.GetUiParts()) > maxMetadata || !utf8.ValidString(out.GetUiParts()) {
		return nil, fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE",
			"the data parts of a message may have at most %d bytes of UTF-8; these have %d", maxMetadata, len(out.GetUiParts()))
	}
	return out, nil
}

func (p part) stored() (*eventv1.Part, error) {
	switch {
	case p.Type == "text" && strings.TrimSpace(p.Text) != "":
		return &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: p.Text}}}, nil
	case p.Type == "file":
		if !fileURL(p.URL) || p.MediaType == "" {
			return nil, fault.New(fault.Invalid, "FILE_INVALID", "a file part needs a mediaType and a data: or https: url")
		}
		return &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: p.MediaType, Url: p.URL, Filename: p.Filename}}}, nil
	default:
		return nil, nil
	}
}

func fileURL(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	_, stored := eventv1.FileID(url) // package files has replaced a URL
	return stored || strings.EqualFold(scheme, "data") || strings.EqualFold(scheme, "https")
}
