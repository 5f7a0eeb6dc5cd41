package chat

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// request is the body of POST /chat as the AI SDK's DefaultChatTransport sends
// it. Keys that it does not name are the app's own and mean nothing here.
type request struct {
	ID        string
	Last      *message        // of messages; nil when there is none
	Message   json.RawMessage // the last message alone, or a text
	Trigger   string
	AgentType string
	OnBusy    string // what becomes of the message when a run is live; "": what the agent says
}

var busyPolicies = map[string]statev1.BusyPolicy{
	"":          statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED,
	"reject":    statev1.BusyPolicy_BUSY_POLICY_REJECT,
	"enqueue":   statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
	"interrupt": statev1.BusyPolicy_BUSY_POLICY_INTERRUPT,
	"rollback":  statev1.BusyPolicy_BUSY_POLICY_ROLLBACK,
}

// onBusy is the policy of the body, or else that of the header. Invalid
// (ON_BUSY_INVALID).
func onBusy(r *http.Request, body *request) (statev1.BusyPolicy, error) {
	name := body.OnBusy
	if name == "" {
		name = r.Header.Get(busyHeader)
	}
	policy, known := busyPolicies[name]
	if !known {
		return policy, fault.New(fault.Invalid, "ON_BUSY_INVALID", "onBusy is %.50q: it has to be reject, enqueue, interrupt or rollback", name)
	}
	return policy, nil
}

// message is a UIMessage, as much of it as a server needs.
type message struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

type part struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	MediaType string `json:"mediaType"`
	URL       string `json:"url"`
	Filename  string `json:"filename"`
}

const (
	triggerSubmit     = "submit-message"
	triggerRegenerate = "regenerate-message"
)

// userMessage gives the message that the run begins with: the last one, which
// is the only one that the state service does not have. Invalid:
// MESSAGE_INVALID, ID_INVALID, TRIGGER_UNSUPPORTED, REGENERATE_UNSUPPORTED,
// CLIENT_TOOLS_UNSUPPORTED.
func (r *request) userMessage() (*eventv1.Message, error) {
	last, err := r.last()
	if err != nil {
		return nil, err
	}
	switch {
	case r.Trigger == triggerRegenerate:
		return nil, fault.New(fault.Invalid, "REGENERATE_UNSUPPORTED", "this version cannot answer a message again; send a new message")
	case r.Trigger != "" && r.Trigger != triggerSubmit:
		return nil, fault.New(fault.Invalid, "TRIGGER_UNSUPPORTED", "trigger is %.50q: it has to be %s", r.Trigger, triggerSubmit)
	case last.Role == "assistant":
		return nil, fault.New(fault.Invalid, "CLIENT_TOOLS_UNSUPPORTED", "the last message is the assistant's: this version takes no tool results or approvals from clients yet")
	case last.Role != "user":
		return nil, fault.New(fault.Invalid, "MESSAGE_INVALID", "the last message has to have the role user")
	}
	return last.stored()
}

func (r *request) last() (*message, error) {
	if r.Last != nil {
		return r.Last, nil
	}
	if len(r.Message) == 0 {
		return nil, fault.New(fault.Invalid, "MESSAGE_INVALID", "the body has neither messages nor message")
	}
	var text string
	if json.Unmarshal(r.Message, &text) == nil {
		return &message{Role: "user", Parts: []part{{Type: "text", Text: text}}}, nil
	}
	m := &message{}
	if err := json.Unmarshal(r.Message, m); err != nil {
		return nil, fault.New(fault.Invalid, "BODY_INVALID", "message is neither a UI message nor a text")
	}
	return m, nil
}

// stored makes the message for the state service. Parts that only mean something
// to the app, such as data parts, stay out.
func (m *message) stored() (*eventv1.Message, error) {
	if m.ID != "" {
		if err := httpapi.CheckID("the id of the message", m.ID); err != nil {
			return nil, err
		}
	}
	out := &eventv1.Message{Id: m.ID, Role: eventv1.Role_ROLE_USER}
	for _, p := range m.Parts {
		stored, err := p.stored()
		if err != nil {
			return nil, err
		}
		if stored != nil {
			out.Parts = append(out.Parts, stored)
		}
	}
	if len(out.Parts) == 0 {
		return nil, fault.New(fault.Invalid, "MESSAGE_INVALID", "the message has neither text nor a file")
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
	return strings.EqualFold(scheme, "data") || strings.EqualFold(scheme, "https")
}
