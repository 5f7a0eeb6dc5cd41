package server

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// auditOf says for each call on behalf of a client what the audit log has of it, or why it has nothing. All transports of a
// gateway, with the frames of their sockets, end in these calls.
var auditOf = map[string]string{
	"StartRun":           "run.started for others, run.resumed, run.retried, message.edited, message.regenerated, session.branched, session.rewound",
	"RequestStop":        "run.interrupted, run.aborted",
	"CreateSession":      "session.created for others",
	"UpdateSession":      "session.changed for others, session.owner_changed, session.expiry_set",
	"DeleteSession":      "session.deleted with the counts",
	"AppendMessages":     "messages.appended",
	"TruncateMessages":   "session.rewound",
	"SaveState":          "state.changed",
	"MergeState":         "state.changed",
	"WriteStore":         "store.changed",
	"Rewind":             "session.rewound",
	"Branch":             "session.branched",
	"SubmitCall":         "call.approved, call.denied, call.answered for others",
	"SubmitCalls":        "as SubmitCall",
	"Erase":              "user.erased, tenant.erased: before and after",
	"SetStatus":          "session.status_set",
	"PutSubSession":      "session.sub_session_put",
	"RecordUsage":        "usage.recorded",
	"PutStoredAgent":     "agent.stored, unless nothing changes",
	"DeleteStoredAgent":  "agent.deleted",
	"PutSubscription":    "webhook.set",
	"DeleteSubscription": "webhook.deleted",
	"ReplayDeliveries":   "webhook.replayed",
	"GrantMethod":        "a method is code of the app, and writes by the calls above",

	"GetCheckpoint": "reads", "GetRun": "reads", "GetSession": "reads", "GetUsageRollup": "reads", "ListCheckpoints": "reads", "ListEvents": "reads; the gateway reports an export of all",
	"ListMessages": "reads", "ListOpenCalls": "reads", "ListRuns": "reads", "ListSessions": "reads", "ListSteps": "reads", "ListUsage": "reads", "ReadStore": "reads", "QueryUsage": "reads",
}

func TestTheAuditLogHasEachActOrThereIsAReason(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.state.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for n := range methods.Len() {
				method := methods.Get(n)
				if method.Input().Fields().ByName("caller") == nil {
					continue
				}
				name := string(method.Name())
				known[name] = true
				if auditOf[name] == "" {
					t.Errorf("%s is called on behalf of clients: add to auditOf what the audit log has of it, or why it has nothing", name)
				}
			}
		}
		return true
	})
	for name := range auditOf {
		if !known[name] {
			t.Errorf("auditOf has %s, which no client calls", name)
		}
	}
}
