package conversation

import (
	"context"
	"path"
	"path/filepath"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// VisibleProblems returns problems as the caller may see them. Only operators read the reasons, and the folders of files.
func VisibleProblems(ctx context.Context, of []*statev1.Problem) []*statev1.Problem {
	caller, _ := auth.From(ctx) // a caller without a credential may do nothing
	if caller.May(auth.Operate) {
		return of
	}
	visible := make([]*statev1.Problem, len(of))
	for i, p := range of {
		visible[i] = &statev1.Problem{Kind: p.GetKind(), Name: p.GetName(), AgentType: p.GetAgentType(), Executors: p.GetExecutors()}
		if p.GetKind() == "file" {
			visible[i].Name = path.Base(filepath.ToSlash(p.GetName()))
		}
	}
	return visible
}
