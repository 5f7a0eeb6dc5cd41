// Package server describes the executor to its callers.
package server

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/method"
)

// Server implements ExecutorService.
type Server struct {
	executorv1.UnimplementedExecutorServiceServer

	Name  string // of the executor
	Slots int
	// Agents returns the current agents.
	Agents func() []agent.Agent
	// Live returns the ids of the held runs.
	Live    func() []string
	Methods *method.Caller
}

// CallMethod calls a method of an agent.
func (s *Server) CallMethod(r *executorv1.CallMethodRequest, out executorv1.ExecutorService_CallMethodServer) error {
	return s.Methods.Call(out.Context(), r, out)
}

// Describe returns the agents, the slots and the held runs of the executor.
func (s *Server) Describe(context.Context, *executorv1.DescribeRequest) (*executorv1.DescribeResponse, error) {
	answer := &executorv1.DescribeResponse{ExecutorId: s.Name, Slots: int32(s.Slots), LiveRunIds: slices.Clone(s.Live())}
	for _, a := range s.Agents() {
		answer.Agents = append(answer.Agents, info(a))
	}
	return answer, nil
}

func info(a agent.Agent) *executorv1.AgentInfo {
	i := &executorv1.AgentInfo{AgentType: a.Name, Description: a.Description, Model: a.Model, MaxSteps: int32(a.MaxSteps)}
	switch a.MaxSteps {
	case 0:
		i.MaxSteps = agent.DefaultMaxSteps
		if a.Remote != nil {
			i.MaxSteps = agent.DefaultRemoteMaxSteps
		}
	case agent.NoMaxSteps:
		i.MaxSteps = 0 // no limit
	}
	for _, t := range a.Tools {
		i.Tools = append(i.Tools, t.Name)
	}
	return i
}
