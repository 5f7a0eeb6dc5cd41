package cloudflare

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Methods calls methods of agents on executors. It may be used by many goroutines.
type Methods struct {
	Executors []executorv1.ExecutorServiceClient
	Sessions  statev1.SessionServiceClient // grants executors the session of a call
	Timeout   time.Duration                // of a call, and of its grant

	mu    sync.Mutex
	known map[string]int // by agent: the executor of the last call
}

// maxGrant is the longest time of a grant.
const maxGrant = 24 * time.Hour

// Call calls a method on the first executor that serves the agent, and gives each response to f.
// NotFound (AGENT_NOT_FOUND: none does), Unavailable (EXECUTOR_UNREACHABLE: one that may serve it does not answer), and the
// faults of the method.
func (m *Methods) Call(ctx context.Context, r *executorv1.CallMethodRequest, f func(*executorv1.CallMethodResponse) error) error {
	granted, err := m.Sessions.GrantMethod(ctx, &statev1.GrantMethodRequest{
		Tenant: r.GetTenant(), SessionId: r.GetSessionId(), TtlMs: min(m.Timeout, maxGrant).Milliseconds(),
	})
	if err != nil {
		return err
	}
	r.Grant = granted.GetGrant()
	err = fault.New(fault.NotFound, "AGENT_NOT_FOUND",
		"no executor of HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES serves the agent %q", r.GetAgentType())
	first := m.knownFor(r.GetAgentType())
	for n := range m.Executors {
		at := (first + n) % len(m.Executors)
		opened, failed := call(ctx, m.Executors[at], r, f)
		if failed == nil || !isElsewhere(failed, opened) {
			m.note(r.GetAgentType(), at)
			return failed
		}
		switch {
		case fault.ReasonOf(failed) == "AGENT_NOT_FOUND":
		case !opened && errors.Is(failed, fault.Unavailable): // it may be the executor of the agent
			err = fault.New(fault.Unavailable, "EXECUTOR_UNREACHABLE",
				"no reachable executor of HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES serves the agent %q; check the addresses: %v",
				r.GetAgentType(), failed)
		default:
			err = failed
		}
	}
	return err
}

// isElsewhere reports whether another executor may take the call: this one has called nothing. An
// executor lost after the call was opened may have called the method.
func isElsewhere(err error, opened bool) bool {
	reason := fault.ReasonOf(err)
	return reason == "AGENT_NOT_FOUND" || reason == "TOO_MANY_CALLS" || !opened && errors.Is(err, fault.Unavailable)
}

// call calls a method on one executor. Unless opened, the executor has not received the call.
func call(
	ctx context.Context, executor executorv1.ExecutorServiceClient, r *executorv1.CallMethodRequest,
	f func(*executorv1.CallMethodResponse) error,
) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	responses, err := executor.CallMethod(ctx, r)
	if err != nil {
		return false, err
	}
	for {
		response, err := responses.Recv()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		if err := f(response); err != nil {
			return true, err
		}
	}
}

func (m *Methods) knownFor(agent string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[agent]
}

func (m *Methods) note(agent string, at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]int{}
	}
	m.known[agent] = at
}
