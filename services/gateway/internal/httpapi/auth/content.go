package auth

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// checkContent checks the rights to the content of a request to the state service. All transports send their commands
// there, so no transport can forget a check. Denied (SCOPE_MISSING).
func (i Identity) checkContent(request any) error {
	switch r := request.(type) {
	case *statev1.StartRunRequest:
		return i.checkStart(r)
	case *statev1.SubmitCallRequest:
		r.Operates = i.May(Operate)
		return i.checkAnswer(r.GetAnswer())
	case *statev1.SubmitCallsRequest:
		return i.checkSubmitted(r)
	case *statev1.UpdateSessionRequest:
		if r.UserId != nil || r.OrganizationId != nil || r.ExpiresAt != nil {
			return i.Require(Operate, "change the user, the organization or the expiry of a session")
		}
		return i.Require(Chat, "change a session")
	case *statev1.ListOpenCallsRequest:
		r.OwnOnly = !i.May(Approve) // the calls of others are listed for their approvers
		return nil
	case *statev1.AppendMessagesRequest:
		return i.Require(Operate, "append messages")
	case *statev1.MergeStateRequest:
		return i.Require(Operate, "write the custom state")
	case *statev1.SetStatusRequest:
		return i.Require(Operate, "set the status of a session")
	case *statev1.PutSubSessionRequest:
		return i.Require(Operate, "write a reference to a sub-session")
	case *statev1.RecordUsageRequest:
		return i.Require(Operate, "record usage")
	case *statev1.CreateSessionRequest, *statev1.SaveStateRequest, *statev1.TruncateMessagesRequest, *statev1.DeleteSessionRequest,
		*statev1.RequestStopRequest, *statev1.BranchRequest, *statev1.RewindRequest:
		return i.Require(Chat, "change a session")
	default:
		return nil
	}
}

func (i Identity) checkStart(r *statev1.StartRunRequest) error {
	if err := i.Require(Chat, "start a run"); err != nil {
		return err
	}
	appended, ops := changesOf(r)
	isSystem := func(m *eventv1.Message) bool {
		return m.GetRole() == eventv1.Role_ROLE_SYSTEM || m.GetRole() == eventv1.Role_ROLE_CONTEXT
	}
	purpose := ""
	switch {
	case r.GetCustomState() != "" || len(ops) > 0:
		purpose = "write the custom state"
	case len(appended) > 0:
		purpose = "append messages"
	case slices.ContainsFunc(r.GetMessages(), isSystem) || slices.ContainsFunc(r.GetHistory(), isSystem):
		purpose = "send system messages"
	}
	if purpose != "" && !i.May(Operate) {
		return i.Require(Operate, purpose)
	}
	if !i.May(Approve) { // the client repeats what the conversation shows, also approvals of others
		r.Answers = slices.DeleteFunc(slices.Clone(r.GetAnswers()), isApproval)
	}
	return nil
}

// changesOf returns what a resumed run changes first.
func changesOf(r *statev1.StartRunRequest) (appended []*eventv1.Message, ops []*statev1.StateOp) {
	switch intent := r.GetIntent().(type) {
	case *statev1.StartRunRequest_Resume:
		return intent.Resume.GetAppendMessages(), intent.Resume.GetStateOps()
	case *statev1.StartRunRequest_Retry:
		return intent.Retry.GetAppendMessages(), intent.Retry.GetStateOps()
	case *statev1.StartRunRequest_Branch:
		return intent.Branch.GetAppendMessages(), intent.Branch.GetStateOps()
	default:
		return nil, nil
	}
}

func isApproval(s *statev1.SubmittedAnswer) bool { return s.GetAnswer().GetApproval() != nil }

// checkAnswer checks the right to answer a call: Approve for an approval, and Chat for a result.
func (i Identity) checkAnswer(a *statev1.CallAnswer) error {
	if a.GetApproval() != nil {
		return i.Require(Approve, "answer an approval")
	}
	return i.Require(Chat, "answer a call")
}

// checkSubmitted is checkAnswer for the answers of a conversation. A client repeats the approvals of other people beside
// its own results. Without Approve, checkSubmitted leaves them out.
func (i Identity) checkSubmitted(r *statev1.SubmitCallsRequest) error {
	if err := i.Require(Chat, "answer a call"); err != nil || i.May(Approve) {
		return err
	}
	results := slices.DeleteFunc(slices.Clone(r.GetAnswers()), isApproval)
	if len(results) == 0 && len(r.GetAnswers()) > 0 {
		return i.Require(Approve, "answer an approval")
	}
	r.Answers = results
	return nil
}

// userField is the name of the field for a session's user in requests.
const userField protoreflect.Name = "user_id"

// confine makes the caller's user the owner of what a request creates, and the filter of what it lists. Denied
// (OWNER_REFUSED, SCOPE_MISSING): the request names another user.
func (i Identity) confine(m protoreflect.Message) error {
	field := m.Descriptor().Fields().ByName(userField)
	if field == nil || field.HasPresence() { // UpdateSession alone has an optional one: see checkContent
		return nil
	}
	owner, user := i.Owner(), m.Get(field).String()
	switch {
	case user == owner:
	case user == "":
		m.Set(field, protoreflect.ValueOfString(owner))
	case owner != "":
		return fault.New(
			fault.Denied,
			"OWNER_REFUSED",
			"the credential belongs to a user other than %.100q; leave the user out, or use a credential with the scope operate",
			user,
		)
	case creates(m):
		return i.Require(Operate, "start sessions for users")
	}
	return nil
}

// creates reports whether a request may create a session.
func creates(m protoreflect.Message) bool {
	switch m.Interface().(type) {
	case *statev1.StartRunRequest, *statev1.CreateSessionRequest:
		return true
	default:
		return false
	}
}
