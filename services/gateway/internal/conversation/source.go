package conversation

import statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"

// SourceOf says where an agent comes from: stored by its tenant, or announced by an executor.
func SourceOf(a *statev1.Agent) string {
	if a.GetStored() != nil {
		return "stored"
	}
	return "executor"
}
