package server

import (
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Tables between the values of package session and those of the contract. A missing value
// converts to the zero value, and requests with it are refused.

// roleNames are the roles in the store.
var roleNames = map[eventv1.Role]string{
	eventv1.Role_ROLE_USER:      "user",
	eventv1.Role_ROLE_ASSISTANT: "assistant",
	eventv1.Role_ROLE_TOOL:      "tool",
	eventv1.Role_ROLE_SYSTEM:    "system",
	eventv1.Role_ROLE_CONTEXT:   "context",
}

var statusOut = map[session.Status]statev1.SessionStatus{
	session.Active:                    statev1.SessionStatus_SESSION_STATUS_ACTIVE,
	session.Completed:                 statev1.SessionStatus_SESSION_STATUS_COMPLETED,
	session.Failed:                    statev1.SessionStatus_SESSION_STATUS_FAILED,
	session.Interrupted:               statev1.SessionStatus_SESSION_STATUS_INTERRUPTED,
	session.Paused:                    statev1.SessionStatus_SESSION_STATUS_PAUSED,
	session.SuspendedClientTool:       statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
	session.SuspendedAwaitingChildren: statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN,
	session.SuspendedStepPartial:      statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL,
}

var statusIn = inverse(statusOut)

var runStatusOut = map[session.RunStatus]statev1.RunStatus{
	session.RunWaiting:                   statev1.RunStatus_RUN_STATUS_WAITING,
	session.RunQueued:                    statev1.RunStatus_RUN_STATUS_QUEUED,
	session.RunRunning:                   statev1.RunStatus_RUN_STATUS_RUNNING,
	session.RunCompleted:                 statev1.RunStatus_RUN_STATUS_COMPLETED,
	session.RunFailed:                    statev1.RunStatus_RUN_STATUS_FAILED,
	session.RunInterrupted:               statev1.RunStatus_RUN_STATUS_INTERRUPTED,
	session.RunSuspendedClientTool:       statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL,
	session.RunSuspendedAwaitingChildren: statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN,
	session.RunSuspendedStepPartial:      statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL,
}

var runStatusIn = inverse(runStatusOut)

var entryOut = map[session.Entry]statev1.RunEntry{
	session.EntryStart:        statev1.RunEntry_RUN_ENTRY_START,
	session.EntryResume:       statev1.RunEntry_RUN_ENTRY_RESUME,
	session.EntryContinuation: statev1.RunEntry_RUN_ENTRY_CONTINUATION,
}

var busyOut = map[session.BusyPolicy]statev1.BusyPolicy{
	session.BusyReject:    statev1.BusyPolicy_BUSY_POLICY_REJECT,
	session.BusyEnqueue:   statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
	session.BusyInterrupt: statev1.BusyPolicy_BUSY_POLICY_INTERRUPT,
	session.BusyRollback:  statev1.BusyPolicy_BUSY_POLICY_ROLLBACK,
}

var busyIn = inverse(busyOut)

var missingIn = map[statev1.MissingPolicy]session.MissingPolicy{
	statev1.MissingPolicy_MISSING_POLICY_UNSPECIFIED: session.MissingStays,
	statev1.MissingPolicy_MISSING_POLICY_REWIND:      session.MissingIsRemoved,
	statev1.MissingPolicy_MISSING_POLICY_REFUSE:      session.MissingIsRefused,
}

var stopOutKinds = map[session.StopKind]statev1.StopKind{
	session.StopInterrupt: statev1.StopKind_STOP_KIND_INTERRUPT,
	session.StopAbort:     statev1.StopKind_STOP_KIND_ABORT,
	session.StopAgentGone: statev1.StopKind_STOP_KIND_AGENT_GONE,
}

// stopInKinds are the kinds that a request may have.
var stopInKinds = map[statev1.StopKind]session.StopKind{
	statev1.StopKind_STOP_KIND_INTERRUPT: session.StopInterrupt,
	statev1.StopKind_STOP_KIND_ABORT:     session.StopAbort,
}

var callKindOut = map[session.CallKind]statev1.CallKind{
	session.ClientTool: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
	session.Approval:   statev1.CallKind_CALL_KIND_APPROVAL,
	session.SubAgent:   statev1.CallKind_CALL_KIND_SUB_AGENT,
	session.Callback:   statev1.CallKind_CALL_KIND_CALLBACK,
}

var callKindIn = inverse(callKindOut)

var approversOut = map[session.Approvers]statev1.Approvers{
	session.ApproversAny:    statev1.Approvers_APPROVERS_UNSPECIFIED,
	session.ApproversOthers: statev1.Approvers_APPROVERS_OTHERS,
}

var approversIn = inverse(approversOut)

var modeOut = map[session.ChildMode]statev1.SubSessionMode{
	session.Ephemeral:  statev1.SubSessionMode_SUB_SESSION_MODE_EPHEMERAL,
	session.Persistent: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT,
}

var modeIn = inverse(modeOut)

var locationOut = map[session.Location]statev1.SubSessionLocation{
	session.Local:  statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL,
	session.Remote: statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE,
}

var locationIn = inverse(locationOut)

var usageKindIn = map[eventv1.UsageKind]session.UsageKind{
	eventv1.UsageKind_USAGE_KIND_TOKENS:    session.UsageTokens,
	eventv1.UsageKind_USAGE_KIND_TOOL:      session.UsageTool,
	eventv1.UsageKind_USAGE_KIND_SUB_AGENT: session.UsageSubAgent,
	eventv1.UsageKind_USAGE_KIND_CUSTOM:    session.UsageCustom,
}

func inverse[K, V comparable](m map[K]V) map[V]K {
	inverted := make(map[V]K, len(m))
	for k, v := range m {
		inverted[v] = k
	}
	return inverted
}
