package entry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// read returns the entry of a command, with nothing shared between both. It is nil for a command that is no entry.
func read(caller auth.Identity, command proto.Message) *Entry {
	e := &Entry{Caller: caller.Caller(), Actor: caller.Actor()}
	switch r := command.(type) {
	case *statev1.StartRunRequest:
		e.Kind, e.SessionID, e.RunID, e.Run, e.Answers = KindStart, r.GetSessionId(), r.GetSeenRunId(), readRun(r), readAnswers(r.GetAnswers())
		switch intent := r.GetIntent().(type) {
		case *statev1.StartRunRequest_Edit:
			e.Kind = KindEdit
		case *statev1.StartRunRequest_Regenerate:
			e.Kind = KindRegenerate
		case *statev1.StartRunRequest_Resume:
			e.Kind, e.CheckpointID = KindResume, intent.Resume.GetCheckpointId()
		case *statev1.StartRunRequest_Retry:
			e.Kind = KindRetry
		case *statev1.StartRunRequest_Branch:
			e.Kind, e.CheckpointID = KindBranch, intent.Branch.GetCheckpointId()
			e.SessionID, e.NewSessionID = intent.Branch.GetFromSessionId(), r.GetSessionId()
		}
	case *statev1.BranchRequest:
		e.Kind, e.SessionID, e.NewSessionID, e.CheckpointID = KindBranch, r.GetSessionId(), r.GetNewSessionId(), r.GetCheckpointId()
	case *statev1.SubmitCallRequest:
		e.Kind, e.SessionID = KindAnswer, r.GetSessionId()
		e.Answers = readAnswers([]*statev1.SubmittedAnswer{{ToolCallId: r.GetToolCallId(), Answer: r.GetAnswer()}})
	case *statev1.SubmitCallsRequest:
		e.Kind, e.SessionID, e.RunID, e.Answers = KindAnswer, r.GetSessionId(), r.GetSeenRunId(), readAnswers(r.GetAnswers())
	case *statev1.RequestStopRequest:
		e.Kind, e.SessionID, e.RunID = KindStop, r.GetSessionId(), r.GetRunId()
		e.Stop = &StopRequest{Abort: r.GetKind() == statev1.StopKind_STOP_KIND_ABORT, Reason: r.GetReason()}
	case *statev1.RewindRequest:
		e.Kind, e.SessionID, e.CheckpointID = KindRewind, r.GetSessionId(), r.GetCheckpointId()
	case *statev1.TruncateMessagesRequest:
		e.Kind, e.SessionID = KindRewind, r.GetSessionId()
	default:
		return nil
	}
	return e
}

// write changes a command as a hook has changed its entry. What a hook has left alone stays as it is, with all that an entry
// does not show.
func (e *Entry) write(caller auth.Identity, command proto.Message) error {
	before := read(caller, command)
	switch r := command.(type) {
	case *statev1.StartRunRequest:
		if e.Run == nil {
			return fmt.Errorf("a hook has removed Entry.Run of a request for a run")
		}
		if !reflect.DeepEqual(before.Answers, e.Answers) {
			r.Answers = writeAnswers(e.Answers)
		}
		return e.Run.write(before.Run, r)
	case *statev1.SubmitCallRequest:
		if len(e.Answers) != 1 || e.Answers[0].ToolCallID != r.GetToolCallId() {
			return fmt.Errorf("a hook must leave one answer for the call %q", r.GetToolCallId())
		}
		if !reflect.DeepEqual(before.Answers, e.Answers) {
			r.Answer = writeAnswers(e.Answers)[0].GetAnswer()
		}
	case *statev1.SubmitCallsRequest:
		if !reflect.DeepEqual(before.Answers, e.Answers) {
			r.Answers = writeAnswers(e.Answers)
		}
	case *statev1.RequestStopRequest:
		if e.Stop == nil {
			return fmt.Errorf("a hook has removed Entry.Stop of a stop")
		}
		r.Kind, r.Reason = statev1.StopKind_STOP_KIND_INTERRUPT, e.Stop.Reason
		if e.Stop.Abort {
			r.Kind = statev1.StopKind_STOP_KIND_ABORT
		}
	}
	return nil
}

func readRun(r *statev1.StartRunRequest) *Run {
	return &Run{
		AgentType: r.GetAgentType(), UserID: r.GetUserId(), OrganizationID: r.GetOrganizationId(),
		Tags: slices.Clone(r.GetTags()), Metadata: maps.Clone(r.GetMetadata()), State: jsonOf(r.GetCustomState()),
		Messages: readMessages(r.GetMessages()), AppendMessages: readMessages(*appended(r)),
		OnBusy: busyWord(r.GetOnBusy()), TimeoutMs: r.GetTimeoutMs(), Priority: r.GetPriority(),
	}
}

func (r *Run) write(before *Run, to *statev1.StartRunRequest) error {
	if r.OnBusy != before.OnBusy {
		policy, known := statev1.BusyPolicy_value[busyPrefix+strings.ToUpper(cmp.Or(r.OnBusy, "unspecified"))]
		if !known {
			return fmt.Errorf("a hook has set OnBusy to %.50q: it must be reject, enqueue, interrupt or rollback", r.OnBusy)
		}
		to.OnBusy = statev1.BusyPolicy(policy)
	}
	to.AgentType, to.UserId, to.OrganizationId = r.AgentType, r.UserID, r.OrganizationID
	to.Tags, to.Metadata, to.CustomState = slices.Clone(r.Tags), maps.Clone(r.Metadata), string(r.State)
	if to.GetCustomState() == "null" {
		to.CustomState = ""
	}
	to.TimeoutMs, to.Priority = r.TimeoutMs, r.Priority
	var err error
	if to.Messages, err = writeMessages(before.Messages, r.Messages, to.GetMessages()); err != nil {
		return err
	}
	list := appended(to)
	*list, err = writeMessages(before.AppendMessages, r.AppendMessages, *list)
	return err
}

// appended returns where the messages are that a run appends first.
func appended(r *statev1.StartRunRequest) *[]*eventv1.Message {
	switch intent := r.GetIntent().(type) {
	case *statev1.StartRunRequest_Resume:
		return &intent.Resume.AppendMessages
	case *statev1.StartRunRequest_Retry:
		return &intent.Retry.AppendMessages
	case *statev1.StartRunRequest_Branch:
		return &intent.Branch.AppendMessages
	default:
		return new([]*eventv1.Message)
	}
}

// busyPrefix begins the names of busy policies in the contract.
const busyPrefix = "BUSY_POLICY_"

func busyWord(p statev1.BusyPolicy) string {
	if p == statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(p.String(), busyPrefix))
}

// jsonOf returns a JSON text; nil for none.
func jsonOf(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func readMessages(messages []*eventv1.Message) []Message {
	var out []Message
	for _, m := range messages {
		shown := Message{ID: m.GetId(), Role: roleWord(m.GetRole()), Hidden: m.GetHidden()}
		var texts []string
		for _, p := range m.GetParts() {
			if text := p.GetText(); text != nil {
				texts = append(texts, text.GetText())
			}
			if f := p.GetFile(); f != nil {
				shown.Files = append(shown.Files, File{URL: f.GetUrl(), MediaType: f.GetMediaType(), Filename: f.GetFilename()})
			}
		}
		shown.Text = strings.Join(texts, "")
		out = append(out, shown)
	}
	return out
}

// writeMessages returns the messages as a hook has left them. One that it has left alone keeps all that a Message does not show,
// wherever it now stands. A changed one keeps its metadata, and its data parts as long as the number of its parts is the same.
func writeMessages(before, after []Message, messages []*eventv1.Message) ([]*eventv1.Message, error) {
	var out []*eventv1.Message
	for i, m := range after {
		same := -1
		for at, b := range before {
			if reflect.DeepEqual(b, m) && !slices.Contains(out, messages[at]) {
				same = at
				break
			}
		}
		if same >= 0 {
			out = append(out, messages[same])
			continue
		}
		var original *eventv1.Message
		if at := slices.IndexFunc(before, func(b Message) bool { return b.ID == m.ID && m.ID != "" }); at >= 0 {
			original = messages[at]
		} else if len(before) == len(after) && before[i].ID == m.ID {
			original = messages[i]
		}
		role, known := roles[m.Role]
		if original != nil && m.Role == roleWord(original.GetRole()) { // such as that of a row of context
			role, known = original.GetRole(), true
		}
		if !known {
			return nil, fmt.Errorf("a hook has written a message with the role %.50q: it must be user, assistant or system", m.Role)
		}
		changed := &eventv1.Message{
			Id: m.ID, Role: role, Hidden: m.Hidden, Metadata: original.GetMetadata(), UiMetadata: original.GetUiMetadata(),
		}
		if m.Text != "" {
			changed.Parts = append(changed.Parts, &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: m.Text}}})
		}
		for _, f := range m.Files {
			file := &eventv1.FilePart{Url: f.URL, MediaType: f.MediaType, Filename: f.Filename}
			changed.Parts = append(changed.Parts, &eventv1.Part{Part: &eventv1.Part_File{File: file}})
		}
		if len(changed.GetParts()) == len(original.GetParts()) {
			changed.UiParts = original.GetUiParts()
		}
		out = append(out, changed)
	}
	return out, nil
}

var roles = map[string]eventv1.Role{
	"": eventv1.Role_ROLE_USER, "user": eventv1.Role_ROLE_USER, "assistant": eventv1.Role_ROLE_ASSISTANT, "system": eventv1.Role_ROLE_SYSTEM,
}

func roleWord(r eventv1.Role) string {
	return strings.ToLower(strings.TrimPrefix(r.String(), "ROLE_"))
}

func readAnswers(answers []*statev1.SubmittedAnswer) []Answer {
	var out []Answer
	for _, a := range answers {
		shown := Answer{ToolCallID: a.GetToolCallId(), Result: jsonOf(a.GetAnswer().GetResult()), Error: a.GetAnswer().GetError()}
		if d := a.GetAnswer().GetApproval(); d != nil {
			shown.Decision = &Decision{ApprovalID: d.GetApprovalId(), Approved: d.GetApproved(), Reason: d.GetReason()}
		}
		out = append(out, shown)
	}
	return out
}

func writeAnswers(answers []Answer) []*statev1.SubmittedAnswer {
	var out []*statev1.SubmittedAnswer
	for _, a := range answers {
		answer := &statev1.CallAnswer{}
		switch {
		case a.Decision != nil:
			answer.Answer = &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{
				ApprovalId: a.Decision.ApprovalID, Approved: a.Decision.Approved, Reason: a.Decision.Reason,
			}}
		case a.Error != "":
			answer.Answer = &statev1.CallAnswer_Error{Error: a.Error}
		default:
			answer.Answer = &statev1.CallAnswer_Result{Result: string(a.Result)}
		}
		out = append(out, &statev1.SubmittedAnswer{ToolCallId: a.ToolCallID, Answer: answer})
	}
	return out
}
