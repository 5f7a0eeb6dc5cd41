package client

import (
	"context"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Resume continues a stopped session in the request's mode; see agent.v1.AgentService.Resume. Failures are
// faults: Invalid (RESUME_INVALID) for fields foreign to the mode, Conflict (SESSION_BUSY, SESSION_COMPLETED,
// SESSION_SUSPENDED; SESSION_CHANGED for a retry of an interrupted session), NotFound (SESSION_NOT_FOUND,
// CHECKPOINT_NOT_FOUND). With a request key it may be repeated after any failure.
func (c *Client) Resume(ctx context.Context, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	return call(ctx, c.agents.Resume, r)
}

// CanResume reports whether Resume would succeed now, and why not. NotFound (SESSION_NOT_FOUND).
func (c *Client) CanResume(ctx context.Context, session string) (*agentv1.CanResumeResponse, error) {
	return callWithRetry(ctx, c, c.agents.CanResume, &agentv1.CanResumeRequest{SessionId: session})
}

// Interrupt stops a session's live run softly: the run keeps its output, and the session can be resumed. With
// the id of a queued run it cancels that run. The request is durable when Interrupt returns, and may be
// repeated. NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND); with WaitMs, Unavailable (STOP_NOT_OBSERVED) if the run
// has not ended within that time. It will end later.
func (c *Client) Interrupt(ctx context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	return call(ctx, c.agents.Interrupt, r)
}

// Abort stops the live run permanently: it fails with framework_cancelled.
func (c *Client) Abort(ctx context.Context, r *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	return call(ctx, c.agents.Abort, r)
}

// Session returns a session with its properties, its newest run, its pending calls and its sub-sessions. NotFound
// (SESSION_NOT_FOUND).
func (c *Client) Session(ctx context.Context, session string) (*agentv1.GetSessionResponse, error) {
	return callWithRetry(ctx, c, c.agents.GetSession, &agentv1.GetSessionRequest{SessionId: session})
}

// UpdateSession changes the set fields of a session: title, tags, metadata, user, organization. NotFound
// (SESSION_NOT_FOUND), Stale (VERSION_STALE), Invalid (TITLE_INVALID, TAGS_INVALID, METADATA_INVALID).
func (c *Client) UpdateSession(ctx context.Context, r *agentv1.UpdateSessionRequest) (*agentv1.UpdateSessionResponse, error) {
	return call(ctx, c.agents.UpdateSession, r)
}

// ExpireSession sets when a session fails (session_expired) unless it has ended before; the zero time for never.
// NotFound (SESSION_NOT_FOUND), Denied (SCOPE_MISSING): it needs the scope operate.
func (c *Client) ExpireSession(ctx context.Context, session string, at time.Time) error {
	millis := int64(0)
	if !at.IsZero() {
		millis = at.UnixMilli()
	}
	_, err := callWithRetry(ctx, c, c.agents.UpdateSession, &agentv1.UpdateSessionRequest{SessionId: session, ExpiresAt: &millis})
	return err
}

// ReadStore reads entries of the private store of a session, by pages of at most 4 MiB. Needs the scope operate. NotFound
// (SESSION_NOT_FOUND), Invalid (STORE_KEY_INVALID, LIMIT_INVALID).
func (c *Client) ReadStore(ctx context.Context, r *agentv1.ReadStoreRequest) (*agentv1.ReadStoreResponse, error) {
	return callWithRetry(ctx, c, c.agents.ReadStore, r)
}

// DeleteStoreEntries deletes keys of the private store of a session, if they exist. Needs the scope operate. NotFound
// (SESSION_NOT_FOUND), Invalid (STORE_KEY_INVALID, STORE_WRITES_INVALID).
func (c *Client) DeleteStoreEntries(ctx context.Context, sessionID string, keys ...string) error {
	_, err := call(ctx, c.agents.DeleteStoreEntries, &agentv1.DeleteStoreEntriesRequest{SessionId: sessionID, Keys: keys})
	return err
}

// MergeState writes keys of the custom state, in order. The next run reads them; a live run keeps the state that it has
// read. With an append and without a version, a repetition appends again. Needs the scope operate. NotFound
// (SESSION_NOT_FOUND), Stale (VERSION_STALE), Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
func (c *Client) MergeState(ctx context.Context, r *agentv1.MergeStateRequest) (*agentv1.MergeStateResponse, error) {
	return call(ctx, c.agents.MergeState, r)
}

// SetStatus sets the status of a session if it is as expected. Otherwise Ok is false, and the answer has the status and
// the version that the session had. A live run ends with it. Needs the scope operate. NotFound (SESSION_NOT_FOUND),
// Invalid (STATUS_INVALID, FAILURE_MISSING), Conflict (FAMILY_TOO_LARGE).
func (c *Client) SetStatus(ctx context.Context, r *agentv1.SetStatusRequest) (*agentv1.SetStatusResponse, error) {
	return call(ctx, c.agents.SetStatus, r)
}

// PutSubSession writes a reference to a session that the caller runs elsewhere below a session of this Holdfast, or
// changes it. It may be repeated, and retries during an outage. Needs the scope operate. NotFound (SESSION_NOT_FOUND),
// Conflict (LOCATION_FIXED, CHILD_UNKNOWN), Invalid (ID_INVALID, STATUS_INVALID).
func (c *Client) PutSubSession(ctx context.Context, parent string, sub *agentv1.SubSession) error {
	_, err := callWithRetry(ctx, c, c.agents.PutSubSession, &agentv1.PutSubSessionRequest{SessionId: parent, SubSession: sub})
	return err
}

// RecordUsage adds measurements to a session, outside of its steps; run may be empty. A repetition counts again. Needs
// the scope operate. NotFound (SESSION_NOT_FOUND), Invalid (USAGE_INVALID).
func (c *Client) RecordUsage(ctx context.Context, session, run string, usage ...*eventv1.UsageEntry) error {
	_, err := call(ctx, c.agents.RecordUsage, &agentv1.RecordUsageRequest{SessionId: session, RunId: run, Usage: usage})
	return err
}

// DeleteSession deletes a session and all sessions below it. NotFound (SESSION_NOT_FOUND), Conflict
// (FAMILY_TOO_LARGE).
func (c *Client) DeleteSession(ctx context.Context, session string) (*agentv1.DeleteSessionResponse, error) {
	return call(ctx, c.agents.DeleteSession, &agentv1.DeleteSessionRequest{SessionId: session})
}

// Run returns a run with its output. NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
func (c *Client) Run(ctx context.Context, session, run string) (*agentv1.Run, error) {
	found, err := callWithRetry(ctx, c, c.agents.GetRun, &agentv1.GetRunRequest{SessionId: session, RunId: run})
	return found.GetRun(), err
}

// AppendMessages appends messages to the conversation without a run. With ids it may be repeated. NotFound
// (SESSION_NOT_FOUND), Conflict (MESSAGE_EXISTS), Invalid (MESSAGE_INVALID), TooLarge (MESSAGE_TOO_LARGE).
func (c *Client) AppendMessages(
	ctx context.Context, session string, messages ...*agentv1.InputMessage,
) (*agentv1.AppendMessagesResponse, error) {
	return call(ctx, c.agents.AppendMessages, &agentv1.AppendMessagesRequest{SessionId: session, Messages: messages})
}

// AddContext appends rows of context, which the model sees and users do not. With a request key it may be repeated, and is
// repeated in an outage. NotFound (SESSION_NOT_FOUND), Invalid (CONTEXT_INVALID, CONTEXT_TOO_LARGE, CONTEXT_TOO_MANY), Conflict
// (MESSAGE_EXISTS), Denied (SCOPE_MISSING).
func (c *Client) AddContext(ctx context.Context, r *agentv1.AddContextRequest) (*agentv1.AddContextResponse, error) {
	if r.GetRequestKey() == "" {
		return call(ctx, c.agents.AddContext, r)
	}
	return callWithRetry(ctx, c, c.agents.AddContext, r)
}

// TruncateMessages removes all messages after the first ones. NotFound (SESSION_NOT_FOUND), Conflict (SESSION_BUSY),
// Invalid (COUNT_INVALID).
func (c *Client) TruncateMessages(ctx context.Context, session string, count int64) (*agentv1.TruncateMessagesResponse, error) {
	return call(ctx, c.agents.TruncateMessages, &agentv1.TruncateMessagesRequest{SessionId: session, Count: count})
}

// Checkpoint returns a checkpoint with its custom state; the newest one for an empty id. NotFound
// (SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND).
func (c *Client) Checkpoint(ctx context.Context, session, checkpoint string) (*agentv1.Checkpoint, error) {
	found, err := callWithRetry(ctx, c, c.agents.GetCheckpoint, &agentv1.GetCheckpointRequest{SessionId: session, CheckpointId: checkpoint})
	return found.GetCheckpoint(), err
}

// Branch creates a session from a checkpoint, without a run. NotFound (SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND),
// Conflict (SESSION_EXISTS).
func (c *Client) Branch(ctx context.Context, r *agentv1.BranchRequest) (*agentv1.Session, error) {
	created, err := call(ctx, c.agents.Branch, r)
	return created.GetSession(), err
}

// Rewind restores the messages and the custom state of a checkpoint. NotFound (SESSION_NOT_FOUND,
// CHECKPOINT_NOT_FOUND), Conflict (SESSION_BUSY).
func (c *Client) Rewind(ctx context.Context, session, checkpoint string) (*agentv1.Session, error) {
	rewound, err := call(ctx, c.agents.Rewind, &agentv1.RewindRequest{SessionId: session, CheckpointId: checkpoint})
	return rewound.GetSession(), err
}

// Usage adds up the usage of a session, or of one of its runs unless that is empty, and the tokens of the session
// with all sessions below it. NotFound (SESSION_NOT_FOUND).
func (c *Client) Usage(ctx context.Context, session, run string) (*eventv1.UsageRollup, error) {
	found, err := callWithRetry(ctx, c, c.agents.GetUsage, &agentv1.GetUsageRequest{SessionId: session, RunId: run})
	return found.GetUsage(), err
}

// QueryUsage adds up usage over sessions, in buckets of time. Invalid (QUERY_INVALID), Exhausted (QUERY_TOO_LARGE).
func (c *Client) QueryUsage(ctx context.Context, r *agentv1.QueryUsageRequest) ([]*eventv1.UsageBucket, error) {
	found, err := callWithRetry(ctx, c, c.agents.QueryUsage, r)
	return found.GetBuckets(), err
}

// PutAgent stores an agent, or replaces the one of its name. An equal definition changes nothing. Invalid (AGENTS_INVALID: the
// detail has a line for each mistake, DEFINITION_TOO_LARGE, TOO_MANY_AGENTS), Conflict (AGENT_ANNOUNCED,
// STORED_AGENTS_DISABLED), Stale (AGENT_CHANGED), Unavailable (EXECUTOR_UNREACHABLE).
func (c *Client) PutAgent(ctx context.Context, r *agentv1.PutAgentRequest) (*agentv1.PutAgentResponse, error) {
	if r.ExpectedHash != nil {
		return call(ctx, c.agents.PutAgent, r)
	}
	return callWithRetry(ctx, c, c.agents.PutAgent, r)
}

// StoredAgent returns a stored agent with its definition. NotFound (AGENT_NOT_FOUND).
func (c *Client) StoredAgent(ctx context.Context, name string) (*agentv1.GetAgentResponse, error) {
	return callWithRetry(ctx, c, c.agents.GetAgent, &agentv1.GetAgentRequest{AgentType: name})
}

// DeleteAgent deletes a stored agent, with the expected hash unless that is nil. NotFound (AGENT_NOT_FOUND), Stale
// (AGENT_CHANGED).
func (c *Client) DeleteAgent(ctx context.Context, name string, expectedHash *string) error {
	_, err := call(ctx, c.agents.DeleteAgent, &agentv1.DeleteAgentRequest{AgentType: name, ExpectedHash: expectedHash})
	return err
}

// Agents returns the announced and the stored agents, and the default one.
func (c *Client) Agents(ctx context.Context) (*agentv1.ListAgentsResponse, error) {
	return callWithRetry(ctx, c, c.agents.ListAgents, &agentv1.ListAgentsRequest{})
}
