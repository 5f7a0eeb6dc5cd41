package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// The tools of an agent with companions, as in the specification.
const (
	toolSpawn     = agent.CompanionPrefix + "spawnAgent"
	toolSend      = agent.CompanionPrefix + "sendMessage"
	toolList      = agent.CompanionPrefix + "listChildren"
	toolStatus    = agent.CompanionPrefix + "getChildStatus"
	toolWait      = agent.CompanionPrefix + "waitForResult"
	toolTerminate = agent.CompanionPrefix + "terminateChild"
)

// maxCompanionName bounds the name of a companion in bytes.
const maxCompanionName = 64

// companions are the companions of a run's session, for the tools of its agent. Each name has one session below the
// run's. Its record in the run's session holds the name. Safe for concurrent use.
//
// Every message to a companion has the idempotency key of its call as the request key, so a call that runs again
// sends nothing twice. The session of a new companion has an id that depends on the run and the name, so two calls
// cannot create two companions of one name.
type companions struct {
	worker   *Worker
	claimed  claimedRun
	agent    agent.Agent
	maxDepth int
}

// companionState is what the tools return about a companion.
type companionState struct {
	Name   string          `json:"name"`
	Agent  string          `json:"agent,omitempty"`
	Status string          `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	// Dropped counts the messages that waited for a terminated companion.
	Dropped int `json:"droppedMessages,omitempty"`
}

type (
	spawnInput struct {
		Agent          string `json:"agent" jsonschema:"the agent to consult"`
		Name           string `json:"name" jsonschema:"your name for the companion; the same name continues the same conversation"`
		InitialMessage string `json:"initialMessage" jsonschema:"the message to the companion, with everything that it has to know"`
	}
	sendInput struct {
		Name    string `json:"name" jsonschema:"the name of the companion"`
		Message string `json:"message" jsonschema:"the message"`
	}
	nameInput struct {
		Name string `json:"name" jsonschema:"the name of the companion"`
	}
	noInput struct{}
)

// tools returns the tools of the agent for its companions; none for an agent without companions.
func (c *companions) tools() []agent.Tool {
	if len(c.agent.Companions) == 0 {
		return nil
	}
	tools := []agent.Tool{
		agent.NewTool(toolSpawn, c.describe(), c.spawn, agent.Safe()),
		agent.NewTool(toolSend, "Sends a message to a companion, and does not wait for an answer.", c.send, agent.Safe()),
		agent.NewTool(toolList, "Lists your companions with their status.", c.list, agent.ReadOnly()),
		agent.NewTool(toolStatus, "Returns the status of a companion, and its output if it has completed.", c.status, agent.ReadOnly()),
		agent.NewTool(toolTerminate, "Stops a companion, and drops the messages that wait for it. A new message to it begins again.",
			c.terminate, agent.Safe()),
	}
	if slices.ContainsFunc(c.agent.Companions, isBlocking) {
		tools = append(tools, agent.NewTool(toolWait, "Waits until a companion has ended, and returns its output.", c.wait, agent.ReadOnly()))
	}
	for i := range tools {
		tools[i].Dynamic = true
	}
	return tools
}

func isBlocking(c agent.Companion) bool { return c.Mode != agent.CompanionNonBlocking }

// describe describes the companions to the model.
func (c *companions) describe() string {
	var text strings.Builder
	text.WriteString("Consults a companion: an agent that remembers your earlier messages to it by the same name. The agents:")
	for _, definition := range c.agent.Companions {
		returns := "returns its answer"
		if !isBlocking(definition) {
			returns = "returns at once, ask for its status later"
		}
		fmt.Fprintf(&text, "\n- %s (%s)", definition.Agent, returns)
		if definition.Description != "" {
			text.WriteString(": " + definition.Description)
		}
	}
	text.WriteString("\nSeveral messages to one companion in one reply are answered together, with what it says to the last of them.")
	return text.String()
}

// spawn sends the message to the companion, which it creates if the name is new. The call of a blocking companion
// waits for its end.
func (c *companions) spawn(ctx context.Context, call *agent.Call, in spawnInput) (any, error) {
	i := slices.IndexFunc(c.agent.Companions, func(definition agent.Companion) bool { return definition.Agent == in.Agent })
	if i < 0 {
		var types []string
		for _, definition := range c.agent.Companions {
			types = append(types, definition.Agent)
		}
		return nil, fmt.Errorf("there is no agent %q; there are: %s", in.Agent, strings.Join(types, ", "))
	}
	if in.Name == "" || len(in.Name) > maxCompanionName || strings.ContainsFunc(in.Name, isControl) {
		return nil, fmt.Errorf("the name must have 1 to %d bytes, without control characters", maxCompanionName)
	}
	known, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	child := named(known, in.Name)
	switch most := cmp.Or(c.agent.MaxCompanions, agent.DefaultMaxCompanions); {
	case child != nil && child.GetAgentType() != in.Agent:
		return nil, fmt.Errorf("the companion %q is a %s; choose another name", in.Name, child.GetAgentType())
	case child != nil:
	case int(c.claimed.session.GetDepth()) >= c.maxDepth:
		return nil, fmt.Errorf("an agent at depth %d of its tree cannot have companions; do the task without them", c.maxDepth)
	case len(known) >= most:
		return nil, fmt.Errorf("there are %d companions, and no more are allowed; send to one of them", len(known))
	default:
		child = &statev1.SubSession{SessionId: loop.CompanionID(c.claimed.plannerRun(), in.Name), AgentType: in.Agent, Name: in.Name}
	}
	sent, err := c.post(ctx, call, child, c.agent.Companions[i], in.InitialMessage)
	if err != nil || sent.Status == statusSuspended || !isBlocking(c.agent.Companions[i]) {
		return sent, err
	}
	return tool.Await{SessionID: child.GetSessionId(), AgentType: child.GetAgentType()}, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (c *companions) send(ctx context.Context, call *agent.Call, in sendInput) (*companionState, error) {
	child, err := c.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var definition agent.Companion
	for _, d := range c.agent.Companions {
		if d.Agent == child.GetAgentType() {
			definition = d
		}
	}
	return c.post(ctx, call, child, definition, in.Message)
}

// post starts a run of the companion with the message. If the companion is busy, the run waits behind its run.
func (c *companions) post(ctx context.Context, call *agent.Call, child *statev1.SubSession, definition agent.Companion,
	message string,
) (*companionState, error) {
	session, run := c.claimed.session, c.claimed.run
	request := &statev1.StartRunRequest{
		Tenant: c.claimed.ref.GetTenant(), SessionId: child.GetSessionId(), AgentType: child.GetAgentType(), Messages: userMessage(message),
		RequestKey: call.IdempotencyKey, Caller: &statev1.Caller{Actor: run.GetStartedBy()},
		UserId: session.GetUserId(), OrganizationId: session.GetOrganizationId(),
		Traceparent: run.GetTraceparent(), Tracestate: run.GetTracestate(), TimeoutMs: c.limit(definition),
		OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, Priority: run.GetPriority(),
		Parent: &statev1.Parent{
			SessionId: session.GetSessionId(), ToolCallId: call.ID, Mode: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT, Name: child.GetName(),
		},
	}
	var started *statev1.StartRunResponse
	err := retry.Call(ctx, c.worker.config.CallTimeout, func(ctx context.Context) (err error) {
		started, err = c.worker.peers.Runs.StartRun(ctx, request, c.claimed.granted())
		return err
	})
	state := &companionState{Name: child.GetName(), Status: statusDelivered}
	switch {
	case fault.ReasonOf(err) == "SESSION_SUSPENDED":
		state.Status = statusSuspended
	case err != nil:
		return nil, refusedByState(err)
	case started.GetWaiting():
		state.Status = statusQueued
	}
	return state, nil
}

// limit returns the time limit of a consultation in milliseconds; 0 for none.
func (c *companions) limit(definition agent.Companion) int64 {
	limit := definition.Timeout.Milliseconds()
	remaining := c.claimed.remaining(c.claimed.stateTime(c.worker.peers.Now()))
	if remaining == 0 {
		return limit
	}
	return min(cmp.Or(limit, remaining), remaining)
}

func (c *companions) list(ctx context.Context, _ *agent.Call, _ noInput) ([]companionState, error) {
	known, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	states := []companionState{}
	for _, child := range known {
		states = append(states, companionState{Name: child.GetName(), Agent: child.GetAgentType(), Status: companionStatus(child.GetStatus())})
	}
	return states, nil
}

func (c *companions) status(ctx context.Context, _ *agent.Call, in nameInput) (*companionState, error) {
	child, err := c.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	found, err := c.get(ctx, child.GetSessionId())
	if err != nil {
		return nil, err
	}
	session := found.GetSession()
	state := &companionState{Name: child.GetName(), Agent: child.GetAgentType(), Status: companionStatus(session.GetStatus())}
	if session.GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED {
		state.Output = toJSON(session.GetOutput())
	}
	state.Error = session.GetFailure().GetError()
	return state, nil
}

// wait lets the call wait for the end of the companion. The state service answers at once if it has ended.
func (c *companions) wait(ctx context.Context, _ *agent.Call, in nameInput) (any, error) {
	child, err := c.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if status := companionStatus(child.GetStatus()); status == statusInterrupted { // only a message continues it
		return &companionState{Name: child.GetName(), Status: status}, nil
	}
	return tool.Await{SessionID: child.GetSessionId(), AgentType: child.GetAgentType()}, nil
}

// terminate stops the companion, and drops its waiting messages: the newest first, so none of them begins. Calls to the
// companion get a failed result.
func (c *companions) terminate(ctx context.Context, _ *agent.Call, in nameInput) (*companionState, error) {
	child, err := c.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	found, err := c.get(ctx, child.GetSessionId())
	if err != nil {
		return nil, err
	}
	waiting := found.GetWaiting()
	for _, run := range slices.Backward(waiting) {
		if err := c.abort(ctx, child, run.GetRunId()); err != nil {
			return nil, err
		}
	}
	if err := c.abort(ctx, child, ""); err != nil {
		return nil, err
	}
	return &companionState{Name: child.GetName(), Status: statusTerminated, Dropped: len(waiting)}, nil
}

// abort aborts a run of the companion, or its current work.
func (c *companions) abort(ctx context.Context, child *statev1.SubSession, runID string) error {
	err := retry.Call(ctx, c.worker.config.CallTimeout, func(ctx context.Context) error {
		_, err := c.worker.peers.Runs.RequestStop(ctx, &statev1.RequestStopRequest{
			Tenant: c.claimed.ref.GetTenant(), SessionId: child.GetSessionId(), RunId: runID,
			Kind: statev1.StopKind_STOP_KIND_ABORT, Reason: "its parent has terminated it",
		}, c.claimed.granted())
		return err
	})
	if err != nil {
		return refusedByState(err)
	}
	return nil
}

// find returns the companion of a name.
func (c *companions) find(ctx context.Context, name string) (*statev1.SubSession, error) {
	known, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	if child := named(known, name); child != nil {
		return child, nil
	}
	names := []string{}
	for _, child := range known {
		names = append(names, fmt.Sprintf("%q", child.GetName()))
	}
	return nil, fmt.Errorf("there is no companion %q; there are: [%s]. %s creates one", name, strings.Join(names, ", "), toolSpawn)
}

func named(known []*statev1.SubSession, name string) *statev1.SubSession {
	for _, child := range known {
		if child.GetName() == name {
			return child
		}
	}
	return nil
}

// all returns the companions of the session, by name.
func (c *companions) all(ctx context.Context) ([]*statev1.SubSession, error) {
	found, err := c.get(ctx, c.claimed.ref.GetSessionId())
	if err != nil {
		return nil, err
	}
	known := slices.DeleteFunc(found.GetSubSessions(), func(s *statev1.SubSession) bool {
		return s.GetMode() != statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT
	})
	slices.SortFunc(known, func(a, b *statev1.SubSession) int { return strings.Compare(a.GetName(), b.GetName()) })
	return known, nil
}

func (c *companions) get(ctx context.Context, sessionID string) (found *statev1.GetSessionResponse, err error) {
	err = retry.Call(ctx, c.worker.config.CallTimeout, func(ctx context.Context) (err error) {
		request := &statev1.GetSessionRequest{Tenant: c.claimed.ref.GetTenant(), SessionId: sessionID}
		found, err = c.worker.peers.Sessions.GetSession(ctx, request, c.claimed.granted())
		return err
	})
	if err != nil {
		return nil, refusedByState(err)
	}
	return found, nil
}

// refusedByState returns the reason of a refusal, for the model.
func refusedByState(err error) error {
	if f, ok := fault.From(err); ok {
		return errors.New(f.Detail)
	}
	return err
}

// The statuses of companions, in addition to those of sessions.
const (
	statusDelivered   = "delivered"
	statusQueued      = "queued" // behind another message
	statusTerminated  = "terminated"
	statusSuspended   = "suspended" // on a client
	statusInterrupted = "interrupted"
	statusActive      = "active"
)

var companionStatuses = map[statev1.SessionStatus]string{
	statev1.SessionStatus_SESSION_STATUS_COMPLETED:              "completed",
	statev1.SessionStatus_SESSION_STATUS_FAILED:                 "failed",
	statev1.SessionStatus_SESSION_STATUS_INTERRUPTED:            statusInterrupted,
	statev1.SessionStatus_SESSION_STATUS_PAUSED:                 statusInterrupted,
	statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL:  statusSuspended,
	statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL: statusSuspended,
}

// companionStatus returns active for a companion at work, or with sub-agents at work.
func companionStatus(s statev1.SessionStatus) string {
	return cmp.Or(companionStatuses[s], statusActive)
}

// userMessage returns the messages of a request with a text of a user.
func userMessage(text string) []*eventv1.Message {
	return []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{
		{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: clean(text)}}},
	}}}
}
