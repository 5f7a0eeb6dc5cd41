package server

import (
	"cmp"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// checkStart checks the request, but for the fields checked by their conversion.
func (l Limits) checkStart(r *statev1.StartRunRequest) error {
	if err := cmp.Or(checkID("tenant", r.GetTenant()),
		checkOptionalID("session_id", r.GetSessionId()),
		checkOptionalID("agent_type", r.GetAgentType()),
		checkOptionalID("default_agent_type", r.GetDefaultAgentType()),
		checkOptionalID("request_key", r.GetRequestKey()),
		checkOptionalID("user_id", r.GetUserId()),
		checkOptionalID("organization_id", r.GetOrganizationId()),
		checkOptionalID("seen_run_id", r.GetSeenRunId()),
		checkParent(r.GetParent()),
		checkTimeout(r.GetTimeoutMs()),
		checkPriority(r.GetPriority()),
		checkBusy(r.GetOnBusy()),
		checkBusy(r.GetDefaultOnBusy()),
		checkMissing(r.GetMissing())); err != nil {
		return err
	}
	if len(r.GetAnswers()) > 0 && !r.GetAbandonCalls() {
		return invalid("ANSWER_INVALID", "answers need abandon_calls; to answer calls without abandoning the others, use SubmitCalls")
	}
	sends := r.GetIntent() == nil || r.GetEdit() != nil
	return cmp.Or(l.checkUserMessages(r.GetMessages(), !sends),
		l.checkHistory(r.GetHistory()),
		checkEarlier(r.GetEarlierMessageIds()),
		l.checkIntent(r),
		l.checkProperties(r.GetTags(), r.GetMetadata(), r.GetCustomState()))
}

// maxPriority bounds priorities, and -maxPriority does.
const maxPriority = 100

func checkPriority(priority int32) error {
	if priority < -maxPriority || priority > maxPriority {
		return invalid("PRIORITY_INVALID", "priority is %d; it must be -%d to %d", priority, maxPriority, maxPriority)
	}
	return nil
}

func checkMissing(p statev1.MissingPolicy) error {
	if _, known := missingIn[p]; !known {
		return invalid("MISSING_POLICY_INVALID", "%s is not a policy for missing messages; the policies are REWIND and REFUSE", p)
	}
	return nil
}

// maxEarlier bounds the ids of messages that a client has.
const maxEarlier = 1000

func checkEarlier(ids []string) error {
	if len(ids) > maxEarlier {
		return messageInvalid("earlier_message_ids has %d ids; the limit is %d", len(ids), maxEarlier)
	}
	for _, id := range ids {
		if err := checkID("an id in earlier_message_ids", id); err != nil {
			return err
		}
	}
	return nil
}

// checkIntent gives Invalid (ID_INVALID), and the faults of checkAppended.
func (l Limits) checkIntent(r *statev1.StartRunRequest) error {
	switch intent := r.GetIntent().(type) {
	case *statev1.StartRunRequest_Edit:
		return checkID("edit's message_id", intent.Edit.GetMessageId())
	case *statev1.StartRunRequest_Regenerate:
		return cmp.Or(checkID("regenerate's message_id", intent.Regenerate.GetMessageId()),
			checkOptionalID("regenerate's answer_id", intent.Regenerate.GetAnswerId()))
	case *statev1.StartRunRequest_Resume:
		return cmp.Or(checkOptionalCheckpointID(intent.Resume.GetCheckpointId()),
			l.checkAppended(intent.Resume.GetAppendMessages()))
	case *statev1.StartRunRequest_Retry:
		return l.checkAppended(intent.Retry.GetAppendMessages())
	case *statev1.StartRunRequest_Branch:
		return cmp.Or(checkID("branch's from_session_id", intent.Branch.GetFromSessionId()),
			checkCheckpointID(intent.Branch.GetCheckpointId()),
			l.checkAppended(intent.Branch.GetAppendMessages()))
	default:
		return nil
	}
}
