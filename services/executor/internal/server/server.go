// Package server answers questions about the executor.
package server

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
)

// Server implements ExecutorService.
type Server struct {
	executorv1.UnimplementedExecutorServiceServer

	ExecutorID string
	Slots      int
	// Agents gives those that it serves now.
	Agents func() []agent.Agent
	// Live gives the runs that the executor holds now.
	Live func() []string
}

// Describe tells what the executor serves and does.
func (s *Server) Describe(context.Context, *executorv1.DescribeRequest) (*executorv1.DescribeResponse, error) {
	answer := &executorv1.DescribeResponse{ExecutorId: s.ExecutorID, Slots: int32(s.Slots), LiveRunIds: slices.Clone(s.Live())}
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
	case agent.NoMaxSteps:
		i.MaxSteps = 0 // which no cap can be
	}
	for _, t := range a.Tools {
		i.Tools = append(i.Tools, t.Name)
	}
	return i
}
