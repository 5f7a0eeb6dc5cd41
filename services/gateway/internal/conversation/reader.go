// Package conversation reads sessions from the state service, and builds UI messages from their
// stored messages, runs and calls.
package conversation

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Reader reads sessions. It may be used by many goroutines.
type Reader struct {
	Runs     statev1.RunServiceClient
	Sessions statev1.SessionServiceClient
	Policy   retry.Policy // how long outages of the state service may last
	// DefaultAgent is the agent of new sessions without one. If empty, the state service takes the only
	// announced agent.
	DefaultAgent string
}

// Session returns a session and its newest run. NotFound (SESSION_NOT_FOUND).
func (r *Reader) Session(ctx context.Context, tenant, id string) (*statev1.Session, *statev1.Run, error) {
	got, err := r.SessionDetails(ctx, tenant, id)
	return got.GetSession(), got.GetCurrentRun(), err
}

// SessionDetails returns a consistent view of a session with its run and calls, but not its messages.
// NotFound (SESSION_NOT_FOUND).
func (r *Reader) SessionDetails(ctx context.Context, tenant, id string) (*statev1.GetSessionResponse, error) {
	return r.getSession(ctx, &statev1.GetSessionRequest{Tenant: tenant, SessionId: id})
}

// SessionOfMessage is SessionDetails with the runs of the assistant message that the run writes; of the newest message
// for an empty id. NotFound (RUN_NOT_FOUND).
func (r *Reader) SessionOfMessage(ctx context.Context, tenant, id, run string) (*statev1.GetSessionResponse, error) {
	return r.getSession(ctx, &statev1.GetSessionRequest{Tenant: tenant, SessionId: id, MessageOfRun: &run})
}

func (r *Reader) getSession(ctx context.Context, request *statev1.GetSessionRequest) (*statev1.GetSessionResponse, error) {
	var got *statev1.GetSessionResponse
	err := retry.Do(ctx, r.Policy, func() (err error) {
		got, err = r.Sessions.GetSession(ctx, request)
		return err
	})
	return got, err
}

// PreviousRun returns the run before another; nil for the first.
func (r *Reader) PreviousRun(ctx context.Context, tenant string, run *statev1.Run) (*statev1.Run, error) {
	previous, err := r.previousRuns(ctx, tenant, run, 1)
	if err != nil || len(previous) == 0 {
		return nil, err
	}
	return previous[0], nil
}

// MaxRunsBehind limits the runs of RunsBehind.
const MaxRunsBehind = 1000

// RunsBehind returns the runs before the run that ended behind the position, oldest first. Of more than MaxRunsBehind, it
// returns the newest.
func (r *Reader) RunsBehind(ctx context.Context, tenant string, run *statev1.Run, at int64) ([]*statev1.Run, error) {
	var behind []*statev1.Run
	for before := run; len(behind) < MaxRunsBehind; before = behind[len(behind)-1] {
		page, err := r.previousRuns(ctx, tenant, before, storedPage)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(page, func(earlier *statev1.Run) bool { return earlier.GetEndPosition() <= at })
		if n < 0 {
			n = len(page)
		}
		behind = append(behind, page[:n]...)
		if n == 0 || n < len(page) {
			break
		}
	}
	behind = behind[:min(len(behind), MaxRunsBehind)]
	slices.Reverse(behind)
	return behind, nil
}

// previousRuns returns the runs before the run, newest first.
func (r *Reader) previousRuns(ctx context.Context, tenant string, run *statev1.Run, limit int32) ([]*statev1.Run, error) {
	if run.GetTurn() <= 1 { // there is none, and BeforeTurn 0 would request the newest
		return nil, nil
	}
	return r.ListRuns(ctx, &statev1.ListRunsRequest{Tenant: tenant, SessionId: run.GetSessionId(), BeforeTurn: run.GetTurn(), Limit: limit})
}

// ListRuns returns a page of a session's runs, newest first.
func (r *Reader) ListRuns(ctx context.Context, request *statev1.ListRunsRequest) ([]*statev1.Run, error) {
	var got *statev1.ListRunsResponse
	err := retry.Do(ctx, r.Policy, func() (err error) {
		got, err = r.Runs.ListRuns(ctx, request)
		return err
	})
	return got.GetRuns(), err
}

// runTimeout limits a read of a run. Heartbeats read on the goroutine that sends a stream's frames,
// and a hanging state service must not delay frames.
const runTimeout = 2 * time.Second

// Run returns the current state of the run, without retries. Unavailable (STATE_TIMEOUT): the state
// service did not answer within runTimeout.
func (r *Reader) Run(ctx context.Context, tenant string, run *statev1.Run) (*statev1.Run, error) {
	limited, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	got, err := r.Runs.GetRun(limited, &statev1.GetRunRequest{Tenant: tenant, SessionId: run.GetSessionId(), RunId: run.GetRunId()})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fault.New(fault.Unavailable, "STATE_TIMEOUT", "the state service did not answer within %v; retry", runTimeout)
	}
	return got.GetRun(), retry.HideCredentialFault(err)
}

// Agents returns the announced agents, with executors and queued runs if a tenant is given.
func (r *Reader) Agents(ctx context.Context, tenant string) ([]*statev1.Agent, error) {
	got, err := r.Announced(ctx, tenant)
	return got.GetAgents(), err
}

// Announced returns what Agents returns, and what is out of service.
func (r *Reader) Announced(ctx context.Context, tenant string) (got *statev1.ListAgentsResponse, err error) {
	err = retry.Do(ctx, r.Policy, func() (err error) {
		got, err = r.Sessions.ListAgents(ctx, &statev1.ListAgentsRequest{Tenant: tenant})
		return err
	})
	return got, err
}

const storedPage = 200

func (r *Reader) listMessages(ctx context.Context, s *statev1.Session, offset int64, limit int) (*statev1.ListMessagesResponse, error) {
	var got *statev1.ListMessagesResponse
	request := &statev1.ListMessagesRequest{
		Tenant: s.GetTenant(), SessionId: s.GetSessionId(), Offset: offset, Limit: int32(min(limit, storedPage)),
	}
	err := retry.Do(ctx, r.Policy, func() (err error) {
		got, err = r.Sessions.ListMessages(ctx, request)
		return err
	})
	return got, err
}
