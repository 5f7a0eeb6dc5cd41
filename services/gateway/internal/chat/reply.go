package chat

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Limits of the state service on answers.
const (
	maxAnswers = 1000
	maxResult  = 1_000_000 // bytes
	maxError   = 8 << 10   // bytes, also of a reason
)

// reply is the client's copy of an assistant message, with its answers.
type reply struct {
	id       string
	steps    int // how many have begun
	answers  []callAnswer
	calls    map[string]callState // calls that the client has, with their input
	texts    []int                // bytes of each text or reasoning of the last step
	tooLarge bool                 // an answer of the last step was dropped because of its size
}

// callState is the state of a call at the client.
type callState int

const (
	callWaiting callState = iota + 1 // for an answer, or for the server
	callDecided                      // the client has approved or rejected it
	callEnded                        // with an end from the client or the server
)

// callAnswer is an answer to a call, or the end of a server tool. Only the state service can tell
// the two apart.
type callAnswer struct {
	call   string
	step   int // the number of the call's step in the message; 0 before the first
	answer *statev1.CallAnswer
}

// readReply decodes an assistant message. Invalid: MESSAGE_INVALID, ID_INVALID.
func readReply(text []byte) (*reply, error) {
	r := &reply{calls: map[string]callState{}}
	err := walkObject(text, func(name string, value []byte, at int64) error {
		switch {
		case strings.EqualFold(name, "id"):
			return located(json.Unmarshal(value, &r.id), name, at)
		case strings.EqualFold(name, "parts"):
			*r = reply{id: r.id, calls: map[string]callState{}} // clearing a large map for each of many lists would take long
			return located(walkArray(value, r.addPart), name, at)
		default:
			return nil
		}
	})
	if err == nil && r.id != "" {
		err = httpapi.CheckID("the id of the message", r.id)
	}
	if len(r.answers) > maxAnswers { // open calls are in the last step
		r.answers = r.answers[len(r.answers)-maxAnswers:]
	}
	return r, err
}

// States of a tool part. input-streaming has only a part of the input; the others have an end or an
// answer. In other states the call waits.
const (
	inputStreaming    = "input-streaming"
	outputAvailable   = "output-available"
	outputError       = "output-error"
	outputDenied      = "output-denied"
	approvalResponded = "approval-responded"
)

// tool is the part of a tool call.
type tool struct {
	Type       string    `json:"type"`
	ToolCallID string    `json:"toolCallId"`
	State      string    `json:"state"`
	Output     rawOutput `json:"output"`
	ErrorText  string    `json:"errorText"`
	Approval   *struct {
		ID       string `json:"id"`
		Approved *bool  `json:"approved"`
		Reason   string `json:"reason"`
	} `json:"approval"`
}

// rawOutput is a JSON value as a slice of the decoded text. It is valid as long as that text.
type rawOutput []byte

func (p *rawOutput) UnmarshalJSON(text []byte) error {
	*p = text
	return nil
}

// Marks of the relevant parts. Most parts are texts and have neither.
var (
	stepMark = []byte(`"step-start"`)
	callMark = []byte(`"toolCallId"`)
)

// addPart adds the next part.
func (r *reply) addPart(text []byte, at int64) error {
	switch {
	case text[0] != '{':
		return nil
	case !bytes.Contains(text, stepMark) && !bytes.Contains(text, callMark):
		r.addText(text)
		return nil
	}
	var t tool
	if err := json.Unmarshal(text, &t); err != nil {
		return located(err, "", at)
	}
	if t.Type == "step-start" {
		r.steps++
		r.texts, r.tooLarge = nil, false
		return nil
	}
	if t.Type != "dynamic-tool" && !strings.HasPrefix(t.Type, "tool-") || t.ToolCallID == "" {
		return nil
	}
	if err := httpapi.CheckID("toolCallId", t.ToolCallID); err != nil {
		return err
	}
	answer, large, err := t.answer()
	if err != nil {
		return err
	}
	if t.State != inputStreaming {
		r.calls[t.ToolCallID] = t.callState()
	}
	switch {
	case answer == nil:
	case large:
		r.tooLarge = true
	default:
		r.answers = append(r.answers, callAnswer{t.ToolCallID, r.steps, answer})
	}
	return nil
}

// addText adds the size of a text or reasoning part, and ignores others.
func (r *reply) addText(text []byte) {
	var p struct{ Type, Text string }
	if json.Unmarshal(text, &p) == nil && (p.Type == "text" || p.Type == "reasoning") {
		r.texts = append(r.texts, len(p.Text))
	}
}

func (t *tool) callState() callState {
	switch t.State {
	case approvalResponded:
		return callDecided
	case outputAvailable, outputError, outputDenied:
		return callEnded
	default:
		return callWaiting
	}
}

// answer returns the answer or end of the call, nil for none, and whether it exceeds the limits of
// the state service. After an approval decision, the end is the server's: nil.
func (t *tool) answer() (answer *statev1.CallAnswer, large bool, err error) {
	switch {
	case t.State == approvalResponded:
		if t.Approval == nil || t.Approval.ID == "" || t.Approval.Approved == nil {
			return nil, false, fault.New(fault.Invalid, "MESSAGE_INVALID",
				"the part of call %.50q answers an approval: it needs approval{id, approved}", t.ToolCallID)
		}
		a := &statev1.ApprovalAnswer{ApprovalId: t.Approval.ID, Approved: *t.Approval.Approved, Reason: t.Approval.Reason}
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: a}}, len(a.GetReason()) > maxError, nil
	case t.Approval != nil && t.Approval.Approved != nil:
		return nil, false, nil
	case t.State == outputAvailable:
		result := "null" // clients leave out undefined values
		if len(t.Output) > 0 {
			result = strings.ToValidUTF8(string(t.Output), string(utf8.RuneError))
		}
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: result}}, len(result) > maxResult, nil
	case t.State == outputError:
		text := t.ErrorText
		if text == "" {
			text = noErrorText
		}
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: text}}, len(text) > maxError, nil
	default:
		return nil, false, nil
	}
}

// noErrorText replaces a missing error text of a client.
const noErrorText = "The tool failed."

// lastStepAnswers returns the answers to calls of the last step. Other calls cannot be open.
func (r *reply) lastStepAnswers() []callAnswer {
	if r == nil {
		return nil
	}
	for i, a := range r.answers {
		if a.step == r.steps {
			return r.answers[i:]
		}
	}
	return nil
}

// toSubmitted converts answers for the state service.
func toSubmitted(answers []callAnswer) []*statev1.SubmittedAnswer {
	out := make([]*statev1.SubmittedAnswer, len(answers))
	for i, a := range answers {
		out[i] = &statev1.SubmittedAnswer{ToolCallId: a.call, Answer: a.answer}
	}
	return out
}
