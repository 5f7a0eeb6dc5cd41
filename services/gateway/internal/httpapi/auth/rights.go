package auth

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// methods is the table of rights: it names the scope for each method of the Connect service. A route of a method needs
// the same scope. The content of a request may need more: see checkContent.
var methods = map[string]Scope{
	"EraseTenant":     Admin,
	"EraseUser":       Admin,
	"ListAuditEvents": Admin,
	"ListKeys":        Admin,

	"AddContext":         Operate,
	"AppendMessages":     Operate,
	"CreateToken":        Operate,
	"DeleteAgent":        Operate,
	"DeleteStoreEntries": Operate,
	"MergeState":         Operate,
	"PutAgent":           Operate,
	"PutSubSession":      Operate,
	"ReadStore":          Operate,
	"RecordUsage":        Operate,
	"SetStatus":          Operate,
	"TruncateMessages":   Operate,

	"Abort":         Chat,
	"Branch":        Chat,
	"DeleteSession": Chat,
	"Interrupt":     Chat,
	"Resume":        Chat,
	"Rewind":        Chat,
	"Start":         Chat,
	"UpdateSession": Chat,

	"CanResume":        Read,
	"Get":              Read,
	"GetAgent":         Read,
	"GetCheckpoint":    Read,
	"GetRun":           Read,
	"GetSession":       Read,
	"GetUsage":         Read,
	"ListAgents":       Read,
	"ListCheckpoints":  Read,
	"ListMessages":     Read,
	"ListPendingCalls": Read,
	"ListRuns":         Read,
	"ListSessions":     Read,
	"ListUsage":        Read,
	"QueryUsage":       Read,
	"Stream":           Read,
	"WaitRun":          Read,

	"SubmitToolResult": Read, // and Chat or Approve, by the kind of the answer
}

// ScopeOf returns the scope that a method of the Connect service needs; empty for an unknown method.
func ScopeOf(method string) Scope { return methods[method] }

// Require gives Denied (SCOPE_MISSING) unless the caller has the scope. purpose completes the sentence "it is needed
// to …".
func (i Identity) Require(needed Scope, purpose string) error {
	if i.May(needed) {
		return nil
	}
	return fault.New(fault.Denied, "SCOPE_MISSING", "the credential lacks the scope %s, which is needed to %s", needed, purpose).
		With("scope", string(needed))
}
