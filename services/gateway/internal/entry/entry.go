// Package entry asks the program around the gateway about each request that starts, continues, answers, stops or rewinds a
// run, before anything of it is done.
//
//	client ─▶ any transport ─▶ auth.Stamped: rights ─▶ Guard: BeforeEntry ─▶ state service: rules ─▶ AfterEntry
//
// All transports send their commands through one connection to the state service, so no transport has a hook of its own, and a
// new one cannot forget it. The state service then checks the command as the hooks have changed it.
package entry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Kind is what a request wants of a session, whatever transport it came by.
type Kind string

// The kinds of entries.
const (
	KindStart      Kind = "start"      // a message begins a run, in a new or a known session: /start, /chat and sockets
	KindEdit       Kind = "edit"       // a message replaces an earlier one
	KindRegenerate Kind = "regenerate" // a message is answered again
	KindResume     Kind = "resume"     // a stopped session continues
	KindRetry      Kind = "retry"      // a failed session continues
	KindBranch     Kind = "branch"     // a session begins at a checkpoint of another one
	KindAnswer     Kind = "answer"     // calls are answered: results of client tools, and decisions on approvals
	KindStop       Kind = "stop"       // a run ends early
	KindRewind     Kind = "rewind"     // a session goes back
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{KindStart, KindEdit, KindRegenerate, KindResume, KindRetry, KindBranch, KindAnswer, KindStop, KindRewind}
}

// Entry is a request that is about to be done. BeforeEntry may change what Run, Answers and Stop point at: the state service
// checks the changed request as it would check that of the client, but for the scopes of the caller. Changes of the other fields
// have no effect.
type Entry struct {
	Kind   Kind
	Caller auth.Caller
	// Actor names the caller in the audit log: user:NAME, key:NAME or local.
	Actor string
	// SessionID is the session. A client that begins one without an id gets this one. Of a branch, it is the session in which
	// the new one begins.
	SessionID string
	// NewSessionID is the session that a branch begins. Empty: the state service makes an id.
	NewSessionID string
	// CheckpointID is where a branch or a resumed run begins, or where a rewind ends; empty for none.
	CheckpointID string
	// RunID is the run to stop, or the newest run that the client has seen; empty for none.
	RunID string
	// Run is what begins a run. It is nil for answers, stops, rewinds, and branches without a run.
	Run *Run
	// Answers answer calls. They may come with a message.
	Answers []Answer
	// Stop is nil unless the request is a stop.
	Stop *StopRequest
	// Request is the HTTP request, without its body; of a socket, the handshake. It is nil for a request of no caller over HTTP.
	Request *http.Request

	sessions *conversation.Reader
}

// Run is a request for a run.
type Run struct {
	// AgentType is the agent of a new session; empty for the default.
	AgentType string `json:"agentType,omitempty"`
	// UserID and OrganizationID own a new session. A caller without the scope operate is the user itself.
	UserID         string `json:"userId,omitempty"`
	OrganizationID string `json:"organizationId,omitempty"`
	// Tags, Metadata and State are those of a new session. State is a JSON object.
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	State    json.RawMessage   `json:"state,omitempty"`
	// Messages are the new messages of the user. A new session of /chat may take in earlier ones of its client, which are not
	// here: see HOLDFAST_GATEWAY_CHAT_HISTORY.
	Messages []Message `json:"messages,omitempty"`
	// AppendMessages are appended first, by a resumed run, a retry or a branch.
	AppendMessages []Message `json:"appendMessages,omitempty"`
	// OnBusy is reject, enqueue, interrupt or rollback; empty for the agent's.
	OnBusy string `json:"onBusy,omitempty"`
	// TimeoutMs is how long the run may last, in milliseconds; 0 for no limit.
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// Priority is that of the run among the queued ones of its tenant, -100 to 100.
	Priority int32 `json:"priority,omitempty"`
}

// Message is a message of a request.
type Message struct {
	ID string `json:"id"`
	// Role is user, assistant or system; empty is user. A server may also send rows of context, which have the role context.
	Role string `json:"role"`
	// Text is that of all text parts. A changed text replaces them.
	Text string `json:"text"`
	// Files are references to files. Those that the client has sent are stored already.
	Files []File `json:"files,omitempty"`
	// Hidden: for the model only.
	Hidden bool `json:"hidden,omitempty"`
}

// File is a file of a message.
type File struct {
	URL       string `json:"url"`
	MediaType string `json:"mediaType"`
	Filename  string `json:"filename,omitempty"`
}

// Answer is the answer to a call: a result, an error or a decision.
type Answer struct {
	ToolCallID string          `json:"toolCallId"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
	Decision   *Decision       `json:"decision,omitempty"`
}

// Decision is the answer to an approval.
type Decision struct {
	ApprovalID string `json:"approvalId"`
	Approved   bool   `json:"approved"`
	Reason     string `json:"reason,omitempty"`
}

// StopRequest is a request to end a run early.
type StopRequest struct {
	// Abort ends the session; an interrupted one can be resumed.
	Abort  bool   `json:"abort"`
	Reason string `json:"reason"`
}

// Session is a session as it is before an entry.
type Session struct {
	Status    string            `json:"status"`
	AgentType string            `json:"agentType"`
	UserID    string            `json:"userId"`
	Title     string            `json:"title,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	// RunID is the newest run. Live: it runs or waits to.
	RunID string `json:"runId"`
	Live  bool   `json:"live"`
}

// Session reads the session of the entry, on behalf of its caller. It is nil for a new one.
func (e *Entry) Session(ctx context.Context) (*Session, error) {
	s, run, err := e.sessions.Session(ctx, e.Caller.Tenant, e.SessionID)
	if errors.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Session{
		Status: conversation.SessionStatus(s.GetStatus()), AgentType: s.GetAgentType(), UserID: s.GetUserId(), Title: s.GetTitle(),
		Tags: s.GetTags(), Metadata: s.GetMetadata(), RunID: run.GetRunId(),
		Live: conversation.Executing(run) || conversation.Waiting(run),
	}, nil
}

// Entered is a request that was done.
type Entered struct {
	*Entry
	// RunID is the run that the request has begun, or of a stop the run that ends; empty for none.
	RunID string
	// Created: the session is new. Repeated: an earlier request with the same key has done it. Waiting: the run waits for
	// another one of the session.
	Created, Repeated, Waiting bool
}

// outcome returns what the answer of the state service says.
func outcome(e *Entry, answer any) Entered {
	done := Entered{Entry: e}
	switch a := answer.(type) {
	case *statev1.StartRunResponse:
		done.RunID, done.Created, done.Repeated, done.Waiting = a.GetRun().GetRunId(), a.GetSessionCreated(), a.GetRepeated(), a.GetWaiting()
		if e.Kind == KindBranch {
			e.NewSessionID = a.GetSession().GetSessionId()
		}
	case *statev1.BranchResponse:
		done.Created, e.NewSessionID = true, a.GetSession().GetSessionId()
	case *statev1.SubmitCallResponse:
		done.RunID = a.GetRunId()
	case *statev1.SubmitCallsResponse:
		done.RunID = a.GetRun().GetRunId()
	case *statev1.RequestStopResponse:
		done.RunID = a.GetRunId()
	}
	return done
}
